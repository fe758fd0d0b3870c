"""The last save of a session: there is nobody who would save that state later.

In the middle of training a save that finds no room costs little: training goes on, and the next one tries again. At the
end, or when the job is asked to leave, the state is in the memory of these processes and nowhere else. To end with an
error would let a restart find the same full disk some seconds later, until the budget is spent and the state is thrown
away. So the ranks stay, say what is missing, and try again, with pauses that grow from one second to half a minute.
How often is counted and not timed, so all ranks give up at the same try.

A pause is a row of small collectives: a peer that is lost, or an epoch that is given up, ends it at once. Other
failures than a lack of room are not waited for: they do not end because somebody removes a file.
"""

import math
import time
from collections.abc import Iterator
from typing import Final

from trainmaster.training.agreement import maxima

LONGEST_S: Final = 30
_LOOK_S: Final = 0.2


def pauses(wait_s: int) -> Iterator[tuple[int, str]]:
    """(seconds until the next try, what is said of it), `wait_s` seconds all told."""
    left_s, pause_s = wait_s, 1
    while left_s > 0:
        pause_s = min(pause_s, left_s)
        yield pause_s, f"; its state is kept in memory; tried again in {pause_s} s, for {left_s} s more"
        left_s -= pause_s
        pause_s = min(2 * pause_s, LONGEST_S)


def pause(seconds: float) -> None:
    """A collective. Raises what a collective raises if a peer is lost."""
    for _ in range(math.ceil(seconds / _LOOK_S)):
        time.sleep(_LOOK_S)
        maxima(0)
