"""What a shared store is told about its users: classes, their shares, how much may be under way.

Three classes use a store: *checkpoint* (bursts: all ranks at once, then nothing for minutes), *data* (steady, and a
step waits for the slowest read) and *code* (rare and small, and a launch waits for it). A share is the part of the
moved bytes that a class gets while it asks for more than it is given; shares are whole percents and sum up to 100.

`window_bytes` may be under way at once, of all classes. It is the queue that the store sees, so it sets both how well
the store is used and how long a late class waits: a class that comes back finds at most a window before it. Twice the
store's bandwidth times its latency is enough; more only makes reads wait.
"""

from collections.abc import Mapping
from typing import Final, Literal

from trainmaster.core.base.time import SECOND, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

Kind = Literal["checkpoint", "data", "code"]
KINDS: Final[tuple[Kind, ...]] = ("checkpoint", "data", "code")
MEBIBYTE: Final = 1 << 20
MILLION: Final = 1_000_000


class Pace(Value):
    """A bucket of tokens that all classes draw from: what this store, or this host's part of it, gives for long.
    `depth_bytes` may go at once after a silence."""

    rate_bytes_s: int
    depth_bytes: int


class Policy(Value):
    """How a store is shared. The defaults are those of one host and one disk."""

    checkpoint_percent: int = 85
    data_percent: int = 12
    code_percent: int = 3
    window_bytes: int = 64 * MEBIBYTE
    quantum_bytes: int = 8 * MEBIBYTE
    """One grant is at most so much."""
    lease: Duration = Duration(10 * SECOND)
    """Who was granted something and moved nothing for so long holds nobody up any more."""
    pace: Pace | None = None
    """None: the store's own answers set the pace."""

    def percents(self) -> Mapping[Kind, int]:
        return {"checkpoint": self.checkpoint_percent, "data": self.data_percent, "code": self.code_percent}

    def back_within(self, rate_bytes_s: int) -> Duration:
        """How long at most a class that was silent waits for its first grant, at a store of this rate: what is under
        way has to end, and one grant of each other class may come before, since they may have had as little."""
        assert rate_bytes_s > 0, rate_bytes_s
        paced = rate_bytes_s if self.pace is None else min(rate_bytes_s, self.pace.rate_bytes_s)
        before_bytes = self.window_bytes + len(KINDS) * self.quantum_bytes
        return Duration(-(-before_bytes * MILLION // paced) + 1)


def problems(policy: Policy) -> tuple[Problem, ...]:
    """What is wrong with a policy; one without problems never starves a class."""
    found: list[Problem] = []
    percents = policy.percents()
    whole = sum(percents.values())
    if whole != 100:
        sentence = f"the shares of {', '.join(KINDS)} sum up to {whole} %, not to 100 %"
        found.append(Problem(token="shares-not-whole", sentence=sentence, numbers={"percent": whole}))
    for kind, percent in percents.items():
        if percent < 1:
            sentence = f"the class {kind} has a share of {percent} % and would never be served: give it 1 % at least"
            found.append(Problem(token="share-too-small", sentence=sentence, numbers={"percent": percent}))
    if policy.quantum_bytes < 1 or policy.window_bytes < 2 * policy.quantum_bytes:
        sentence = (
            f"a window of {policy.window_bytes} bytes holds no two grants of {policy.quantum_bytes}: "
            "the store would stand still between them"
        )
        numbers = {"window_bytes": policy.window_bytes, "quantum_bytes": policy.quantum_bytes}
        found.append(Problem(token="window-too-small", sentence=sentence, numbers=numbers))
    if policy.pace is not None and (policy.pace.rate_bytes_s < 1 or policy.pace.depth_bytes < policy.quantum_bytes):
        sentence = "a pace needs a rate, and a bucket that holds one grant"
        numbers = {"rate_bytes_s": policy.pace.rate_bytes_s, "depth_bytes": policy.pace.depth_bytes}
        found.append(Problem(token="pace-too-small", sentence=sentence, numbers=numbers))
    return tuple(found)
