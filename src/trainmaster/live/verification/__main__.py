"""One task in a process of its own, so that a deadline can end it: TASK and a JSON object with its settings.

Not for people: `child` starts it. It prints a line of JSON for its progress now and then, and one for its report.
"""

import sys
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from trainmaster.core.base.value import encode
from trainmaster.core.health.verification.outcome import TaskReport
from trainmaster.live.agent.paths import HostPaths
from trainmaster.live.verification.child import Ask, Line
from trainmaster.live.verification.tries import settled

_TOLD_EVERY_S: Final = 0.5


class _Teller:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, share: float, words: str) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + _TOLD_EVERY_S
            print(encode(Line(share=share, words=words)).decode(), flush=True)


def _task(task: str, ask: Ask) -> Callable[[], TaskReport]:
    tell = _Teller()
    if task == "quick":
        from trainmaster.live.verification import quick

        paths = HostPaths(host_dir=ask.host_dir, memory_dir=ask.memory_dir, jobs_dir=ask.jobs_dir)
        return lambda: quick.run(paths)
    if task == "deep":
        from trainmaster.live.verification import deep

        return lambda: deep.run(ask.budget_s, share=ask.share, progress=tell)
    from trainmaster.live.verification import ranks

    return lambda: ranks.run(ask.budget_s, ask.ranks, progress=tell)


def main(arguments: list[str]) -> None:
    task, text = arguments
    report = settled(_task(task, msgspec.json.decode(text, type=Ask)))
    print(encode(Line(report=report)).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
