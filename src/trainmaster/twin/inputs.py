"""What comes into a simulated world from outside, each with a name, so that a history can be had with a part of it.

    r17       the 17th request for an operation
    s17       the steps of that operation fail
    b17       the unit does not come back from the boot that it asked for
    f3        the third failure of a host
    small-2   the job of this name is submitted

Requests and failures come from streams of chance that do not look at the fleet, so `r17` is the same request whatever
became of the first sixteen; what is left out is drawn and dropped. Failing steps and boots are drawn the first time,
and in a history with a part of its inputs they fail where their names are given, and nowhere else. Jobs follow one
another, so one that is left out takes those along that would have come in its place.
"""

from trainmaster.core.base.ids import OperationId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value


class Input(Value):
    name: str
    at: Instant
    words: str


class Inputs:
    """All inputs of a world, or only those of these names; `seen` has those that came in."""

    def __init__(self, only: frozenset[str] | None = None) -> None:
        self.only = only
        self.seen: list[Input] = []
        self._counts: dict[str, int] = {}
        self._requests: dict[OperationId, str] = {}

    def next_name(self, letter: str) -> str:
        """The name of the next input of this kind, whether it is let in or not."""
        number = self._counts[letter] = self._counts.get(letter, 0) + 1
        return f"{letter}{number}"

    def admits(self, name: str, at: Instant, words: str) -> bool:
        if self.only is not None and name not in self.only:
            return False
        self.seen.append(Input(name=name, at=at, words=words))
        return True

    def requested(self, name: str, operation: OperationId) -> None:
        """The input became this operation."""
        self._requests[operation] = name

    def fails(self, letter: str, operation: OperationId, drawn: bool, at: Instant) -> bool:
        """Whether the steps (s) or the boot (b) of an operation go wrong: as named, or as drawn where nothing is named
        or no input asked for the operation."""
        request = self._requests.get(operation)
        if request is None or (self.only is None and not drawn):
            return drawn
        words = f"the steps of {request} fail" if letter == "s" else f"no unit comes back from the boot for {request}"
        return self.admits(letter + request.removeprefix("r"), at, words)
