"""What agents report of worker groups, and the outcomes of effects."""

from typing import Literal

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.event import Event
from trainmaster.core.base.ids import AttemptId, EffectId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.diagnosis.answer import Kind

Outcome = Literal["done", "failed", "not-run", "unknown"]
How = Literal["finished", "yielded", "failed", "stopped"]
"""*finished*: exit code 0 (and the board does not say otherwise); *yielded*: left on request with a checkpoint;
*failed*: any other end; *stopped*: ended by our own StopWorkers or ReleaseAttempt."""


class EffectEnded(Event):
    """The outcome of an effect. `numbers` carries results, such as `port` of a reserved store."""

    host: HostId
    effect: EffectId
    outcome: Outcome
    detail: str = ""
    numbers: dict[str, int | float | str] = {}

    @property
    def hosts(self) -> tuple[HostId, ...]:
        return (self.host,)


class EffectsEnded(Event):
    """The same outcome at several hosts at once, as a launcher of gangs reports it."""

    hosts: tuple[HostId, ...]
    effect: EffectId
    outcome: Outcome
    detail: str = ""
    numbers: dict[str, int | float | str] = {}


class Failure(Value):
    """The first error of a worker, as precisely as it is known."""

    at: Instant
    exception: str = ""
    """Type name, such as ModuleNotFoundError; empty if unknown."""
    message: str = ""
    """First line, at most 500 characters."""
    location: str = ""
    """FILE:LINE of the innermost frame of the script, if known."""


class WorkerExited(Event):
    """A worker process ended. `at` is the instant of the exit on its host."""

    host: HostId
    attempt: AttemptId
    epoch: int
    rank: int
    how: How
    exit_code: int | None
    signal: int | None
    attached: bool
    """The script had opened a training session, so in-job recovery is possible."""
    phase: Phase
    step: int
    """Last completed step; -1 unknown."""
    step_at: Instant
    save_s: float
    failure: Failure | None = None
    warm: bool = True
    """The host can start the rank again at once. False: what was imported ahead is gone as well."""


class WorkersExited(Event):
    """All ranks on these hosts ended in the same way, in one go. For the fields see `WorkerExited`."""

    attempt: AttemptId
    epoch: int
    hosts: tuple[HostId, ...]
    """In rank order: the first stands for all where one rank is named."""
    how: How
    exit_code: int | None
    signal: int | None
    attached: bool
    phase: Phase
    step: int
    step_at: Instant
    save_s: float
    failure: Failure | None = None


class HangFound(Event):
    """The server's watch found that an epoch will not go on by itself. `at` is when it was found."""

    attempt: AttemptId
    epoch: int
    kind: Kind
    ranks: tuple[int, ...]
    """Those that hang; the others wait for them. Empty: nobody is named."""
    step: int
    """Last completed step."""
    still_s: float
    """Since then."""
    bound_s: float
    """What a step may take. 0: ranks have failed already, and this says why."""
    summary: str


class EpochPhase(Event):
    """Rank 0 reached a phase of its epoch. Sent once a phase; RESTORED and TRAINING carry the step."""

    host: HostId
    attempt: AttemptId
    epoch: int
    phase: Phase
    step: int
    note: str = ""
    origin: str = ""
    """Of RESTORED: own memory, peer memory, storage; empty: it began anew, or the agent does not say."""


class CheckpointPublished(Event):
    host: HostId
    attempt: AttemptId
    epoch: int
    step: int
    stall_s: float = 0.0
    """How long the save held the steps up; 0: not known."""
    lag_s: float = 0.0
    """Of a save that was made from a snapshot, beside the steps: from that until it was published. 0: the ranks wrote
    it themselves."""


class CheckpointFailed(Event):
    """A save ended without a publish; the last good checkpoint stays."""

    host: HostId
    attempt: AttemptId
    epoch: int
    step: int
    detail: str
