"""Brings the fleet up, plays the story, writes the report, takes everything down again, whatever happens."""

import shutil
import subprocess
import sys
from collections.abc import Callable
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

    def play(client: Client, narrator: Narrator, out: Path) -> tuple[str, list[str]]:
        told = _play(client, narrator, out, settings)
        return report.text(told), report.failures(told)

    return stage(out, "five hosts come up on this machine", write_fleet, play)


Play = Callable[[Client, Narrator, Path], tuple[str, list[str]]]
"""Plays a story in a folder: the report in words, and the promises that were not kept."""


def stage(out: Path, first: str, prepare: Callable[[Path], Path], play: Play) -> int:
    """Brings the fleet of a demo up, plays it, and takes it down. `prepare` writes the files and names that of the
    fleet. 0 if every promise was kept."""
    narrator = Narrator()
    out = out.resolve()
    _clear(out)
    state_dir = out / "state"
    fleet = prepare(out)
    narrator.say(f"{first}; everything lies below {out}")
    try:
        _trainmaster("up", str(fleet), "--state", str(state_dir))
        token = state_dir / "tokens" / "operator.token"
        client = Client(Place(url=_url(state_dir), origin=str(state_dir / "server.json"), token_file=str(token)))
        text, broken = play(client, narrator, out)
    finally:
        _trainmaster("down", "--state", str(state_dir))
    narrator.say("everything is down again")
    sys.stdout.write(text)
    for promise in broken:
        sys.stdout.write(f"  NOT KEPT: {promise}\n")
    return 1 if broken else 0


def _play(client: Client, narrator: Narrator, out: Path, settings: Settings) -> report.Report:
    state_dir = out / "state"
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
