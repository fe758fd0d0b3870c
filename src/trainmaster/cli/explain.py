"""`trainmaster explain`: what a reason token means and what to do about it."""

import difflib

import click

from trainmaster.cli.errors import NoSuchThing
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value


class TokenView(Value):
    """One token."""

    token: Token
    meaning: str
    advice: str
    precedence: int


_COLUMNS = [
    Column("token", lambda view: view.token.value),
    Column("meaning", lambda view: view.meaning),
    Column("advice", lambda view: view.advice, wide=True),
    Column("precedence", lambda view: view.precedence, wide=True),
]
_FIELDS = [
    Column("token", lambda view: view.token.value),
    Column("meaning", lambda view: view.meaning),
    Column("to do", lambda view: view.advice),
]


@click.command(
    cls=Command,
    examples=[
        ("trainmaster explain", "all tokens, the dominant ones first"),
        ("trainmaster explain host-lost", "one token"),
        ("trainmaster explain -o json", "for programs"),
    ],
    exit_codes=(0, 2, 3),
)
@click.argument("token", required=False, metavar="[TOKEN]")
@shows
def explain(token: str | None, output: Output) -> None:
    """Explain a reason token, or list them all.

    Where several reasons hold at once, the one that stands first in the list is shown.
    """
    if token is None:
        output.listing("token", [_view(each) for each in Token], _COLUMNS)
        return
    known = {str(each): each for each in Token}
    if token.lower() not in known:
        near = difflib.get_close_matches(token.lower(), known, n=1)
        fix = f"trainmaster explain {near[0]}" if near else "trainmaster explain (lists all tokens)"
        raise NoSuchThing(f"no token {token!r}", fix=fix)
    output.one("token", _view(known[token.lower()]), _FIELDS)


def _view(token: Token) -> TokenView:
    return TokenView(token=token, meaning=token.meaning, advice=token.advice, precedence=token.precedence)
