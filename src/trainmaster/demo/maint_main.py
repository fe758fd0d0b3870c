"""The maintenance demo from nothing to its report, and everything down again, whatever happens."""

from pathlib import Path

from trainmaster.cli.client import Client
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import encode
from trainmaster.demo import maint_log, maint_page, maint_picture, maint_report, maint_scene
from trainmaster.demo.lanes import lanes
from trainmaster.demo.main import stage
from trainmaster.demo.maint_report import MaintReport
from trainmaster.demo.maint_story import TRAIN, MaintStory
from trainmaster.demo.narrator import Narrator
from trainmaster.demo.scene import HOSTS, SPARES, Settings, write_job
from trainmaster.live.server.maintenance_resources import RolloutDetail


def run(out: Path, settings: Settings) -> int:
    """Plays the demo; 0 if every promise was kept. What an earlier demo left in `out` is replaced."""

    def prepare(out: Path) -> Path:
        fleet = maint_scene.write_fleet(out)
        maint_scene.stock(out / "state", [HostId(f"h{number}") for number in range(HOSTS + SPARES)])
        return fleet

    def play(client: Client, narrator: Narrator, out: Path) -> tuple[str, list[str]]:
        told = _play(client, narrator, out, settings)
        return maint_report.text(told), maint_report.failures(told)

    return stage(out, "five hosts with six components each come up on this machine", prepare, play)


def _play(client: Client, narrator: Narrator, out: Path, settings: Settings) -> MaintReport:
    story = MaintStory(client, narrator, out / "state", settings.steps)
    undisturbed = story.undisturbed(write_job(out, "undisturbed", settings))
    story.wait_for_hosts()
    ends = out / "maintenance-is-over"
    maintained, told = story.maintained(story.submit(write_job(out, "maintained", settings, ends)), ends)
    where = {
        "report": str(out / "report.json"),
        "page": str(out / "report.html"),
        "picture": str(out / "timeline.svg"),
        "packages": str(out / "state" / "packages"),
        "hosts": str(out / "state" / "hosts"),
        "event log": str(out / "state"),
    }
    rollout = client.get(f"/v1/rollouts/{told.rollout}", RolloutDetail).rollout
    reason = rollout.reason.sentence if rollout.state == "off-boarded" and rollout.reason is not None else ""
    events = story.log()
    built = maint_report.build(undisturbed, maintained, told, maint_log.read(events, TRAIN), reason, where)
    drawn = maint_picture.svg(built, lanes(events, maintained.job.id))
    (out / "report.json").write_bytes(encode(built) + b"\n")
    (out / "timeline.svg").write_text(drawn)
    (out / "report.html").write_text(maint_page.html(built, drawn, maint_report.failures(built)))
    return built
