"""Brings the fleet up, plays the story, writes the report, takes everything down again, whatever happens."""

import shutil
import subprocess
import sys
from pathlib import Path

from trainmaster.cli.client import Client, Place
from trainmaster.cli.errors import Failed
from trainmaster.core.base.value import encode
from trainmaster.demo import page, picture, report
from trainmaster.demo.lanes import lanes
from trainmaster.demo.narrator import Narrator
from trainmaster.demo.scene import Settings, write_fleet, write_job
from trainmaster.demo.story import Story
from trainmaster.live.server.resources import JobDetail


def run(out: Path, settings: Settings) -> int:
    """Plays the demo; 0 if every promise was kept. What an earlier demo left in `out` is replaced."""
    narrator = Narrator()
    out = out.resolve()
    _clear(out)
    state_dir = out / "state"
    fleet = write_fleet(out)
    narrator.say(f"five hosts come up on this machine; everything lies below {out}")
    try:
        _trainmaster("up", str(fleet), "--state", str(state_dir))
        told = _play(out, state_dir, settings, narrator)
    finally:
        _trainmaster("down", "--state", str(state_dir))
    narrator.say("everything is down again")
    broken = report.failures(told)
    sys.stdout.write(report.text(told))
    for promise in broken:
        sys.stdout.write(f"  NOT KEPT: {promise}\n")
    return 1 if broken else 0


def _play(out: Path, state_dir: Path, settings: Settings, narrator: Narrator) -> report.Report:
    token = state_dir / "tokens" / "operator.token"
    client = Client(Place(url=_url(state_dir), origin=str(state_dir / "server.json"), token_file=str(token)))
    story = Story(client, narrator, state_dir, settings.steps)
    undisturbed = story.undisturbed(write_job(out, "undisturbed", settings))
    story.wait_for_hosts()
    disturbed, told = story.disturbed(write_job(out, "disturbed", settings))
    where = {
        "report": str(out / "report.json"),
        "page": str(out / "report.html"),
        "picture": str(out / "timeline.svg"),
        "job files": str(out),
        "job directory": disturbed.directory,
        "event log": str(state_dir),
    }
    built = report.build(undisturbed, disturbed, told, where)
    _write(out, story, disturbed, built)
    return built


def _write(out: Path, story: Story, disturbed: JobDetail, built: report.Report) -> None:
    drawn = picture.svg(built, lanes(story.log(), disturbed.job.id))
    (out / "report.json").write_bytes(encode(built) + b"\n")
    (out / "timeline.svg").write_text(drawn)
    (out / "report.html").write_text(page.html(built, drawn, report.failures(built)))


def _clear(out: Path) -> None:
    """Removes what an earlier demo left; refuses a folder that is not one."""
    if out.exists() and any(out.iterdir()) and not (out / "fleet.toml").exists():
        why = "it is not empty and does not look like the folder of a demo (no fleet.toml in it)"
        raise Failed(f"{out} can't be used", why, "give another --out")
    if (out / "state").exists():
        _trainmaster("down", "--state", str(out / "state"))
    shutil.rmtree(out, ignore_errors=False) if out.exists() else None
    out.mkdir(parents=True)


def _trainmaster(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "trainmaster", *arguments], check=False)
    if done.returncode != 0:
        command = f"trainmaster {' '.join(arguments)}"
        raise Failed(f"`{command}` failed", f"exit code {done.returncode}; its message stands above", command)


def _url(state_dir: Path) -> str:
    import msgspec

    written = msgspec.json.decode((state_dir / "server.json").read_bytes())
    return str(written["url"])
