"""Once more, before it is said that a task could not be run.

What keeps a device busy or its memory used up just after a drain is what the last job left, and that is gone a moment
later: a process that was killed needs seconds to give back what a GPU held. So a task that did not run is tried three
times, with pauses. Samples that contradicted themselves are taken once more. Then the answer stands: whoever asked must
not ask again at once, since an answer that makes the asker repeat himself at once is a loop without an end.
"""

from collections.abc import Callable
from time import sleep
from typing import Final

from trainmaster.core.health.verification.outcome import Outcome, TaskReport

TRIES: Final = {Outcome.NOT_RUN: 3, Outcome.INVALID: 2}
PAUSE_S: Final = 3.0


def settled(run: Callable[[], TaskReport], pause: Callable[[float], None] = sleep) -> TaskReport:
    """The first report that passes or fails, or the last of the tries."""
    tries = 1
    while True:
        report = run()
        if tries >= TRIES.get(report.outcome, 1):
            more = f" ({tries} tries)" if tries > 1 and report.outcome is not Outcome.PASS else ""
            return report.but(sentence=f"{report.sentence}{more}")
        tries += 1
        pause(PAUSE_S)
