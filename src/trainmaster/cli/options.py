"""Flags that several commands share, so that they are spelled, documented and refused in one way.

    @settings_flags      --server --token-file --run-dir --color --readonly   (shown by `trainmaster --help` only)
    @shows               -o --columns --sort --no-header                      -> parameter `output: Output`
    @changes             --dry-run --yes --reason                             -> parameter `change: Change`

and the classes `Command` and `Noun`, whose help pages begin with examples and end with exit codes.
"""

import difflib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trainmaster.cli.errors import EXIT_CODES, Failed, NotAllowed, WrongUsage

if TYPE_CHECKING:
    from trainmaster.live.config import Config, Resolved

F = TypeVar("F", bound=Callable[..., Any])
_FLAGS = "trainmaster.flags"
FORMS = ("table", "wide", "json", "jsonl", "yaml", "name")


class Command(click.Command):
    """A command whose help shows usage, what it does, examples, flags, exit codes, in this order."""

    def __init__(
        self, *arguments: Any, examples: Sequence[tuple[str, str]] = (), exit_codes: Sequence[int] = (0, 2), **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self.examples, self.exit_codes = examples, exit_codes

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)
        self.format_options(ctx, formatter)
        write_exit_codes(formatter, self.exit_codes)


class Noun(click.Group):
    """A noun with its verbs."""

    command_class = Command

    def __init__(self, *arguments: Any, examples: Sequence[tuple[str, str]] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.examples = examples

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """Command and comment a line."""
    if examples:
        width = max(len(command) for command, _ in examples)
        with formatter.section("Examples"):
            for command, comment in examples:
                formatter.write(f"  {command:<{width}}   {comment}".rstrip() + "\n")


def write_exit_codes(formatter: click.HelpFormatter, codes: Sequence[int]) -> None:
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), EXIT_CODES[code]) for code in codes])


def settings_flags(hidden: bool = True) -> Callable[[F], F]:
    """Flags of the config tree. They may stand before or behind the noun; hidden behind it, to keep pages short."""

    def remember(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        if value is not None and parameter.name is not None:
            ctx.meta.setdefault(_FLAGS, {})[parameter.name] = value

    def decorate(function: F) -> F:
        if any(parameter.name == "run_dir" for parameter in getattr(function, "__click_params__", ())):
            return function  # Another decorator brought them.
        common: dict[str, Any] = {"expose_value": False, "callback": remember, "default": None, "hidden": hidden}
        color = click.Choice(["auto", "always", "never"])
        for option in (
            click.option("--readonly", is_flag=True, help="Refuse to change anything.", **common),
            click.option("--color", type=color, help="When to colour states.", **common),
            click.option("--run-dir", metavar="DIR", help="Directory of log, sockets, reports.", **common),
            click.option("--token-file", metavar="FILE", help="File with the token for the server.", **common),
            click.option("--server", metavar="URL", help="Server to talk to.", **common),
        ):
            function = option(function)
        return function

    return decorate


def resolved() -> "Resolved":
    """The settings of this call, with origins; read once."""
    from trainmaster.live import config

    ctx = click.get_current_context()
    key = "trainmaster.resolved"
    if key not in ctx.meta:
        ctx.meta[key] = config.resolve(ctx.meta.get(_FLAGS, {}), os.environ)
    found: Resolved = ctx.meta[key]
    return found


def settings() -> "Config":
    """The settings of this call."""
    return resolved().config


def shows(function: F) -> F:
    """Adds the flags of output; the command gets an `Output` as `output`."""

    @settings_flags()
    @click.option("-o", "--output", "form", type=click.Choice(FORMS), help="Form; the default is table.")
    @click.option("--columns", metavar="A,B", help="Columns of the table, in this order.")
    @click.option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN for the reverse.")
    @click.option("--no-header", is_flag=True, help="Leave out the header of the table.")
    @functools.wraps(function)
    def command(
        *arguments: Any, form: str | None, columns: str | None, sort: str | None, no_header: bool, **more: Any
    ) -> Any:
        from trainmaster.cli.output import Output

        config = settings()
        chosen = form or config.output
        if chosen not in ("table", "wide") and (columns or no_header):
            raise WrongUsage("--columns and --no-header are for tables", f"the form is {chosen}", "use -o table")
        names = tuple(name.strip().lower() for name in columns.split(",")) if columns else ()
        output = Output(form=chosen, columns=names, sort=sort or "", header=not no_header, color=config.color)
        return function(*arguments, output=output, **more)

    return command  # type: ignore[return-value]


class Change:
    """The safety of one change: dry run, consent, reason."""

    def __init__(self, dry_run: bool, yes: bool, reason: str) -> None:
        self.dry_run, self.yes, self.reason = dry_run, yes, reason

    def confirm(self, preview: str) -> None:
        """Asks, with the blast radius in `preview`, unless --yes was given. Not to be called in a dry run.

        Raises `WrongUsage` where nobody can be asked, `Failed` if the answer is no.
        """
        assert not self.dry_run
        if self.yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise WrongUsage("not done: nobody can be asked here", f"this would {preview}", "add --yes, or --dry-run")
        if not click.confirm(f"This will {preview}. Go on?", err=True):
            raise Failed("not done: the answer was no")


def check_writable(dry_run: bool) -> None:
    """Raises `NotAllowed` when read-only, unless nothing will be changed."""
    if settings().readonly and not dry_run:
        why = f"readonly is set by {resolved().origins['readonly']}"
        raise NotAllowed("this command changes things", why, "use --dry-run, or unset it")


def changes(function: F) -> F:
    """Adds the flags of safety; the command gets a `Change` as `change`. When read-only, only a dry run goes on."""
    return _changes(function, "Why; kept with your name.", may_lack=False)


def changes_by_file(function: F) -> F:
    """The same for a command whose reason may stand in the file that it reads; the command checks that there is one."""
    return _changes(function, "Why; kept with your name. It goes before what the file says.", may_lack=True)


def _changes(function: F, why: str, may_lack: bool) -> F:
    @settings_flags()
    @click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--reason", metavar="TEXT", default="", help=why)
    @functools.wraps(function)
    def command(*arguments: Any, dry_run: bool, yes: bool, reason: str, **more: Any) -> Any:
        check_writable(dry_run)
        if not reason.strip() and not dry_run and not may_lack:
            fix = 'add --reason "why", or --dry-run'
            raise WrongUsage("a change needs a reason", "it is kept with your name for those who wonder later", fix)
        return function(*arguments, change=Change(dry_run, yes, reason.strip()), **more)

    return command  # type: ignore[return-value]
