"""Reasons: every "no", every wait and every end has a token, a sentence and numbers.

Tokens are a closed vocabulary, so that a script, an alert and `trainmaster explain` mean the same thing; the sentence
is for the reader of this one case; the numbers are what it counted. Where several reasons hold, the dominant one is
shown: the one that stands first in the table (`tokens.py`). Free text alone was rejected: the loudest message wins and
nothing can be counted.
"""

from collections.abc import Iterable

from trainmaster.core.base.tokens import Token as Token
from trainmaster.core.base.value import Value


class Reason(Value):
    """Why something is so, in one case."""

    token: Token
    sentence: str
    """One sentence with the particulars, without the token."""
    numbers: dict[str, int | float | str] = {}
    """What was counted; units stand last in the keys."""


def because(token: Token, sentence: str, **numbers: int | float | str) -> Reason:
    """Builds a reason: `because(Token.NOT_ENOUGH_HOSTS, "3 of 4 hosts are free", free=3, wanted=4)`."""
    assert sentence, token
    return Reason(token=token, sentence=sentence, numbers=numbers)


def dominant(reasons: Iterable[Reason]) -> Reason | None:
    """The reason to show first; of equals the first one given. None if there is no reason."""
    return min(reasons, key=lambda reason: reason.token.precedence, default=None)
