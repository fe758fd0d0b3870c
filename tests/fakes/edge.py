"""A clock that stands until it is moved, and a sender that remembers."""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import Duration, Instant
from trainmaster.core.effects import AnyEffect


class FakeClock:
    def __init__(self, at: int = 1_800_000_000_000_000) -> None:
        self.at = at
        self.wall_offset = 0

    def now(self) -> Instant:
        return Instant(self.at + self.wall_offset)

    def elapsed(self) -> Duration:
        return Duration(self.at)


class FakeSender:
    def __init__(self) -> None:
        self.sent: list[tuple[HostId, int, AnyEffect]] = []

    def send(self, host: HostId, lease: int, effect: AnyEffect) -> None:
        self.sent.append((host, lease, effect))
