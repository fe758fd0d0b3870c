"""A step that changes nothing: plans and views ask the very functions that decide, and nothing comes of it.

What such a function does beside answering is to ask for a wake-up; here that is left out. Anything else that would
change the state is a defect of the asker.
"""

from typing import NoReturn

from trainmaster.core.base.time import Instant
from trainmaster.core.step import Step


class Glance(Step):
    def wake(self, key: str, at: Instant) -> None:
        """Nobody is woken."""

    def unwake(self, key: str) -> NoReturn:
        raise AssertionError(f"a look withdraws the wake-up {key}")

    def emit(self, effect: object) -> NoReturn:
        raise AssertionError(f"a look causes {effect}")
