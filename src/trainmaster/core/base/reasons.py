"""Reasons: every "no" has a token, a sentence and numbers. (The table of tokens is being written.)"""

from trainmaster.core.base.value import Value


class Reason(Value):
    token: str
    sentence: str
    numbers: dict[str, int | float | str] = {}
