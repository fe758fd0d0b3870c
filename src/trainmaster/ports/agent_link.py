"""The way to the agents."""

from typing import Protocol

from trainmaster.core.base.ids import HostId
from trainmaster.core.effects import AnyEffect


class EffectSender(Protocol):
    def send(self, host: HostId, lease: int, effect: AnyEffect) -> None:
        """Passes the effect on if the host is connected; otherwise does nothing, since what is pending goes out again
        when it connects. Never blocks."""
        ...
