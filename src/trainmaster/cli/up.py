"""`trainmaster up` and `trainmaster down`: a fleet of local processes."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.options import Command, settings, settings_flags

if TYPE_CHECKING:
    from trainmaster.live.adapters.local import LocalPlan

state_option = click.option(
    "--state", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the fleet; default: run_dir."
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def chosen(state: Path | None) -> Path:
    return (state if state is not None else Path(settings().run_dir)).absolute()


@click.command(
    cls=Command,
    examples=[
        ("trainmaster up scenarios/local.toml", "start it and wait until all hosts are ready"),
        ("trainmaster up fleet.toml --state /tmp/fleet", "with its files there"),
        ("trainmaster up fleet.toml --foreground", "until Ctrl-C, which ends it"),
    ],
    exit_codes=(0, 1, 2, 130),
)
@click.argument("fleet", type=click.Path(path_type=Path))
@state_option
@click.option("--foreground", is_flag=True, help="Stay, and end the fleet on Ctrl-C.")
@settings_flags()
def up(fleet: Path, state: Path | None, foreground: bool) -> None:
    """Start a server and the hosts of a fleet file as processes of this machine."""
    from trainmaster.live.adapters import local

    directory = chosen(state)
    try:
        _tell(directory, local.up(directory, fleet, say))
        if foreground:
            _wait_for_end()
            local.down(directory, say)
    except local.AlreadyUp:
        say(f"it is up already; state in {directory}")
        print(local.server_url(directory) or "")
    except KeyboardInterrupt:
        if foreground:
            local.down(directory, say)
        raise


def _tell(directory: Path, plan: "LocalPlan") -> None:
    from trainmaster.core.words import count_text
    from trainmaster.live.adapters import local

    say(f"{plan.fleet} is up: {count_text(len(plan.hosts), 'host')} ready")
    say(f"  logs    {directory}/run/*.log, {directory}/hosts/HOST/logs")
    say(f"  tokens  {directory}/tokens")
    say(f"  end it  trainmaster down --state {directory}")
    print(local.server_url(directory) or "")


def _wait_for_end() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(3600):
        pass


@click.command(
    cls=Command,
    examples=[
        ("trainmaster down", "end the fleet of run_dir"),
        ("trainmaster down --state /tmp/fleet", "end that one"),
        ("trainmaster down && trainmaster up fleet.toml", "begin anew; what was logged is kept"),
    ],
    exit_codes=(0, 1, 2),
)
@state_option
@settings_flags()
def down(state: Path | None) -> None:
    """End what `trainmaster up` started, workers included. Logs stay. Done again, it does nothing."""
    from trainmaster.live.adapters import local

    directory = chosen(state)
    say("down" if local.down(directory, say) else f"nothing is up in {directory}{os.sep}")
