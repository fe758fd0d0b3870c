"""That the disk of the log has no room: what the service knows of it and the views tell."""

from typing import NamedTuple

from trainmaster.core.base.time import Instant


class Full(NamedTuple):
    """A disk without room."""

    since: Instant
    refused: int
    """Requests and reports that were refused since."""
    sentence: str
