"""Commands whose exit code is a verdict: 0 ok, 1 watch, 2 bad, 3 unknown, as Nagios and Slurm's health checks have it.

So everything that goes wrong on the way ends with 3 here, wrong usage too: a misspelt option must not look like a
broken host.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import click

from trainmaster.cli.errors import NoSuchThing, UserError, translate
from trainmaster.cli.options import Command, write_examples

_CODES: Final = {0: "ok", 1: "watch: look at it, take nothing out", 2: "bad", 3: "unknown, or wrong usage"}


class NotJudged(NoSuchThing):
    """Whatever kept a verdict from being given; exits with 3, as unknown does."""


class Check(Command):
    """A command whose exit code is a verdict."""

    codes: ClassVar[Mapping[int, str]] = _CODES

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **more)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "trainmaster health"
            what = error.format_message()
            if isinstance(error, click.NoSuchOption):
                near = f" Did you mean {error.possibilities[0]}?" if error.possibilities else ""
                what = f"No such option '{error.option_name}'.{near}"
            raise NotJudged(what, fix=f"{path} --help") from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            known = translate(error)
            if not isinstance(known, UserError):
                raise
            raise NotJudged(known.what, known.why, known.fix) from error

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)
        self.format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in self.codes.items()])


class Shown(Check):
    """One of the same family that only shows something."""

    codes: ClassVar[Mapping[int, str]] = {0: "shown", 3: "wrong usage, or a policy that can't be used"}
