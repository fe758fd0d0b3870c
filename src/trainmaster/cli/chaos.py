"""`trainmaster chaos`: faults on purpose, in a fleet of local processes, to see what becomes of a job.

Each is what happens to real machines: the power of a host fails (its memory goes, and with `host` its disk too), an
agent or the server crashes, an agent falls silent. Who keeps the fleet up starts again what crashed, as on real hosts.
Nothing but what `trainmaster up` started can be hit, so a wrong name costs nobody anything.
"""

from collections.abc import Callable
from pathlib import Path

import click

from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.options import Command, check_writable, settings_flags
from trainmaster.cli.up import chosen, say, state_option
from trainmaster.core.base.ids import HostId

ACTS = {
    "host": "its power fails, and its disk is lost: agent, workers, memory and directory are gone",
    "reboot": "its power fails, its disk stays",
    "agent": "its agent crashes; workers run on",
    "silence": "its agent is stopped, as a host is that swaps; workers run on",
    "resume": "its agent, stopped before, goes on",
    "server": "the server crashes",
}


@click.command(
    cls=Command,
    examples=[
        ("trainmaster chaos host h1", "h1 loses its power, its memory and its disk"),
        ("trainmaster chaos silence h2", "its agent says nothing more; `chaos resume h2` ends that"),
        ("trainmaster chaos server", "the server crashes, and is started again"),
    ],
    exit_codes=(0, 1, 2, 5),
)
@click.argument("act", type=click.Choice(list(ACTS)), metavar="ACT")
@click.argument("host", required=False, metavar="[HOST]")
@state_option
@settings_flags()
def chaos(act: str, host: str | None, state: Path | None) -> None:
    """Break something of a fleet that `trainmaster up` started: host, reboot, agent, silence, resume HOST; server."""
    from trainmaster.live.adapters import local

    check_writable(dry_run=False)
    directory = chosen(state)
    if act == "server":
        if host is not None:
            raise WrongUsage(f"the server is no host, so {host} means nothing", fix="trainmaster chaos server")
        local.kill_server(directory)
        say(f"server: {ACTS[act]}")
        return
    if host is None:
        fix = f"trainmaster chaos {act} HOST; `trainmaster host ls` has them"
        raise WrongUsage(f"chaos {act} needs a host", fix=fix)
    hits: dict[str, Callable[[Path, HostId], None]] = {
        "host": local.kill_host,
        "reboot": local.reboot_host,
        "agent": local.kill_agent,
        "silence": local.pause_host,
        "resume": local.resume_host,
    }
    hits[act](directory, HostId(host))
    say(f"{host}: {ACTS[act]}")
