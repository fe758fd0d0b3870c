"""`trainmaster agent run`: the agent of one host, in the foreground. Service managers and `trainmaster up` start it."""

import asyncio
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed, NoSuchThing, NotAllowed, WrongUsage
from trainmaster.cli.options import Command, Noun, settings, settings_flags

if TYPE_CHECKING:
    from trainmaster.live.agent.agent import AgentSettings


@click.group(cls=Noun, examples=[("trainmaster agent run --host h1 --address 10.0.0.1 ...", "the agent of h1")])
def agent() -> None:
    """Run the agent of a host."""


@agent.command(
    "run",
    cls=Command,
    examples=[
        (
            "trainmaster agent run --server http://head:7000 --token-file agent.token --host h1 --address 10.0.0.1 "
            "--host-dir /var/lib/trainmaster --memory-dir /dev/shm/trainmaster --jobs-dir /shared/jobs",
            "own the host h1",
        )
    ],
    exit_codes=(0, 1, 2, 3, 5),
)
@settings_flags()
@click.option("--host", required=True, metavar="NAME", help="Name of the host, as the fleet file has it.")
@click.option("--address", required=True, metavar="ADDRESS", help="Where other hosts reach this one.")
@click.option("--host-dir", required=True, metavar="DIR", help="Journal and logs; on a disk of the host.")
@click.option("--memory-dir", required=True, metavar="DIR", help="State of one boot; on a memory file system.")
@click.option("--jobs-dir", required=True, metavar="DIR", help="Directory that all hosts share.")
@click.option(
    "--reboot-command",
    default="",
    metavar="COMMAND",
    help="Boots the host anew, such as 'systemctl reboot'; without it operations that need a reboot are refused.",
)
@click.option("--kernel-log", default="/dev/kmsg", metavar="FILE", show_default=True,
              help="Where the kernel's log is read; none: nowhere.")  # fmt: skip
@click.option("--kmsg-facility", type=click.Choice(["kernel", "user"]), default="kernel", show_default=True,
              help="user: lines that programs wrote count as well. For tests only.")  # fmt: skip
@click.option("--probes", default="all", metavar="NAMES", show_default=True,
              help="What else is looked at: all, none, or names of `trainmaster health run --list`.")  # fmt: skip
@click.option("--probe-root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path("/"),
              metavar="DIR", show_default=True, help="Where /sys and /proc of the host are.")  # fmt: skip
@click.option("--expect", default="", metavar="KIND=N,...", help="How many parts the host has: gpu=8,nic=9.")
@click.option("--policy", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Rows of the health policy that take the place of those shipped.")  # fmt: skip
def run(
    host: str,
    address: str,
    host_dir: str,
    memory_dir: str,
    jobs_dir: str,
    reboot_command: str,
    kernel_log: str,
    kmsg_facility: str,
    probes: str,
    probe_root: Path,
    expect: str,
    policy: Path | None,
) -> None:
    """Own a host: carry out what the server asks for, report what happens. SIGTERM ends all work on the host; a crash
    ends none."""
    from trainmaster.core.base.ids import HostId
    from trainmaster.live.agent.agent import AgentSettings
    from trainmaster.live.agent.health.choice import chosen, counts
    from trainmaster.live.agent.health.monitor import HealthSettings, policy_index

    config = settings()
    if not config.server:
        raise WrongUsage("no server is set", "an agent needs one to report to", "add --server URL, or --server @FILE")
    made = AgentSettings(
        host=HostId(host),
        server=config.server,
        token=_token(Path(config.token_file)),
        address=address,
        host_dir=str(Path(host_dir).absolute()),
        memory_dir=str(Path(memory_dir).absolute()),
        jobs_dir=str(Path(jobs_dir).absolute()),
        reboot_command=_words(reboot_command),
        health=HealthSettings(
            kernel_log="" if kernel_log == "none" else kernel_log,
            facility=kmsg_facility,
            policy=str(policy.absolute()) if policy else "",
            probes=() if probes == "none" else chosen(() if probes == "all" else tuple(probes.split(","))),
            root=str(probe_root.absolute()),
            expected=counts(expect),
        ),
    )
    if policy is not None:
        policy_index(made.health.policy)  # a bad file is refused now and not at the first line
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {host} %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _run(made)


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise WrongUsage(
            f"--reboot-command can't be read: {error}", f"it is {command!r}", "check its quotes"
        ) from error


def _run(made: "AgentSettings") -> None:
    from trainmaster.live.agent.agent import Agent
    from trainmaster.live.agent.session import NotAdmitted

    async def live() -> None:
        await Agent(made).run()

    try:
        asyncio.run(live())
    except NotAdmitted as error:
        fix = "use the token that the server made for this host"
        raise NotAllowed(str(error), f"it was read from {settings().token_file}", fix) from error
    except OSError as error:
        raise Failed("the agent can't use its directories", str(error), "check --host-dir and --memory-dir") from error


def _token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError as error:
        raise NoSuchThing(
            f"no token file {file}", "an agent shows a token to the server", "use --token-file"
        ) from error
    except OSError as error:
        raise NotAllowed(f"the token file {file} can't be read", str(error), "check its owner and mode") from error
