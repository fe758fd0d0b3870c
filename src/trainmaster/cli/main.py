"""The command `trainmaster`: finds the noun, runs it, and turns every end into a message and an exit code.

Nouns are imported when they are used: `trainmaster --help` reads the table below and nothing else, so it answers in the
time that Python needs to start. To add a noun, write `cli/NOUN.py` with a click command or group (classes `Command` and
`Noun` of `cli/options.py`) and add a row here: name, "module:attribute", one line of help.

An unexpected exception is a defect of ours: the user sees one line and the path of a report with the traceback.
"""

import contextlib
import importlib
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Final

import click

from trainmaster.cli.errors import translate
from trainmaster.cli.options import Noun, settings_flags, write_exit_codes

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "agent": ("trainmaster.cli.agent:agent", "Run the agent of a host."),
    "chaos": ("trainmaster.cli.chaos:chaos", "Break something of a local fleet, to see what follows."),
    "ckpt": ("trainmaster.cli.ckpt:ckpt", "See, verify, keep, clean and export checkpoints."),
    "completion": ("trainmaster.cli.completion:completion", "Print the completion script of a shell."),
    "config": ("trainmaster.cli.config:config", "Show the settings and where they come from."),
    "demo": ("trainmaster.cli.demo:demo", "Train through a killed host and a drain, with a report."),
    "diagnose": ("trainmaster.cli.diagnose:diagnose", "Say why a job stopped, from what it left behind."),
    "down": ("trainmaster.cli.up:down", "End a fleet of local processes."),
    "event": ("trainmaster.cli.event:event", "Read the log of events."),
    "explain": ("trainmaster.cli.explain:explain", "Explain a reason token."),
    "fleet": ("trainmaster.cli.fleet:fleet", "Look at a fleet file."),
    "health": ("trainmaster.cli.health:health", "Judge hosts, see what stands against them, and act on it."),
    "host": ("trainmaster.cli.host:host", "See hosts, take them out and put them back."),
    "hosts": ("trainmaster.cli.hosts:hosts", "Expand, fold and count host lists."),
    "job": ("trainmaster.cli.job:job", "Submit training jobs, see how they are, end them."),
    "maint": ("trainmaster.cli.maint:maint", "Plan maintenance, ask for it, and follow it."),
    "mount": ("trainmaster.cli.mount:mount", "Mount a store of files."),
    "node": ("trainmaster.cli.host:host", "The same as host."),
    "report": ("trainmaster.cli.report:report", "Show what all jobs lost, and to what."),
    "rma": ("trainmaster.cli.rma:rma", "See and steer parts that go back to their vendor."),
    "server": ("trainmaster.cli.server:server", "Run the server."),
    "status": ("trainmaster.cli.status:status", "Show what needs a person, hosts, jobs and the server."),
    "store": ("trainmaster.cli.store:store", "Ask what a mounted store knows of its files."),
    "twin": ("trainmaster.cli.twin:twin", "Let a simulated fleet live under the same policies."),
    "umount": ("trainmaster.cli.mount:umount", "End a mount."),
    "up": ("trainmaster.cli.up:up", "Start a fleet of local processes."),
    "version": ("trainmaster.cli.version:version", "Print the version."),
}


class LazyGroup(Noun):
    """The root. Its commands are rows of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        write_exit_codes(formatter, (0, 1, 2, 3, 4, 5, 6, 7, 130))


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=[
        ("trainmaster fleet show scenarios/local.toml", "what a fleet file declares"),
        ("trainmaster hosts fold h1 h2 h10", "h[1-2,10]"),
        ("trainmaster explain host-lost", "what a reason means and what to do"),
    ],
)
@settings_flags(hidden=False)
def root() -> None:
    """Keeps large synchronous training jobs running on a fleet that is always being repaired and upgraded."""


def main(arguments: list[str] | None = None) -> int:
    """Runs a command line (default: that of the process) and returns the exit code."""
    if "_TRAINMASTER_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "trainmaster", "_TRAINMASTER_COMPLETE", os.environ["_TRAINMASTER_COMPLETE"])
    ctx: click.Context | None = None
    _open_streams()
    try:
        with root.make_context("trainmaster", list(sys.argv[1:] if arguments is None else arguments)) as ctx:
            result = root.invoke(ctx)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        return _say(error.ctx.get_help() if error.ctx else "", 2)
    except click.ClickException as error:
        return _say(_usage(error), 2)
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (the outermost edge: whatever it is becomes a message)
        known = translate(error)
        return _say(known.text(), known.exit_code) if known else _say(_report(error, ctx), 1)


def _open_streams() -> None:
    """A stream that the caller closed (`>&-`) is wanted by nobody: what is written there is dropped, and the exit code
    still says what it says."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (it stays open)


def _say(text: str, exit_code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        # A closed pipe or a full disk; what is said below tells of it, and it must not be said again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
    return exit_code


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "trainmaster"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        near = f" Did you mean {error.possibilities[0]}?" if error.possibilities else ""
        message = f"No such option '{error.option_name}'.{near}"
    return f"error: {message}\n  try: {path} --help"


def _report(error: Exception, ctx: click.Context | None) -> str:
    """Writes the traceback to a file below the run directory; returns the line for the user."""
    line = " ".join(f"internal error: {type(error).__name__}: {error}".split())[:300]
    try:
        directory = _run_dir(ctx) / "crashes"
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
        file.write_text("".join(traceback.format_exception(error)))
    except OSError as failed:
        return f"{line}; the traceback could not be written ({failed})"
    return f"{line}; this is a defect of trainmaster, please report it with {file}"


def _run_dir(ctx: click.Context | None) -> Path:
    """The run directory, even if the settings are what is broken."""
    from trainmaster.live.config import SettingError, resolve
    from trainmaster.live.tomlfile import FileError

    flags = ctx.meta.get("trainmaster.flags", {}) if ctx else {}
    try:
        return Path(resolve(flags, os.environ).config.run_dir)
    except (SettingError, FileError):
        return Path(resolve({}, {"HOME": os.path.expanduser("~")}, Path(os.devnull)).config.run_dir)


if __name__ == "__main__":
    sys.exit(main())
