"""The vocabulary of reasons."""

import re

import msgspec
import pytest

from trainmaster.core.base.reasons import Reason, Token, because, dominant
from trainmaster.core.base.value import decode, encode


def test_rows_are_complete() -> None:
    """1. Each token is a kebab word with a sentence and an advice. 2. Its name in the code is the same word."""
    for token in Token:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", token.value)
        assert token.name.lower().replace("_", "-") == token.value
        assert token.meaning.endswith(".")
        assert token.advice.endswith(".")
        assert str(token) == token.value


def test_a_reason_survives_the_wire() -> None:
    reason = because(Token.NOT_ENOUGH_HOSTS, "3 of 4 hosts are free", free=3, wanted=4)
    data = encode(reason)
    assert b'"token":"not-enough-hosts"' in data
    assert decode(data, Reason) == reason


def test_the_vocabulary_is_closed() -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'whatever'"):
        decode(b'{"token":"whatever","sentence":"x"}', Reason)


def test_the_first_row_dominates() -> None:
    """1. A job waits for verifying hosts and, for good, because it never fits. 2. The latter is what is shown."""
    passing = because(Token.HOSTS_VERIFYING, "2 hosts are being verified")
    lasting = because(Token.NEVER_FITS, "the fleet has 5 hosts")
    assert dominant([passing, lasting]) == lasting
    assert dominant([passing, because(Token.HOSTS_VERIFYING, "later")]) == passing
    assert dominant([]) is None
