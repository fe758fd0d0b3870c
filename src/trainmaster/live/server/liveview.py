"""What heartbeats say, kept in memory: who was heard when, and how far the ranks are. None of it is in the log; a
server that starts anew knows it again within one heartbeat."""

from trainmaster.core.agent.wire import GroupProgress, Heartbeat, RankProgress
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.time import Instant
from trainmaster.core.diagnosis.live import LiveDiagnosis
from trainmaster.core.diagnosis.pace import Bound
from trainmaster.core.fleet.events import Reached


class LiveView:
    def __init__(self) -> None:
        self._beats: dict[HostId, tuple[Instant, dict[AttemptId, GroupProgress]]] = {}
        self._diagnoses: dict[AttemptId, LiveDiagnosis] = {}
        self._bounds: dict[AttemptId, tuple[int, Bound]] = {}

    def beat(self, heartbeat: Heartbeat, now: Instant) -> None:
        """`now`: when it arrived, by our clock."""
        self._beats[heartbeat.host] = (now, {group.attempt: group for group in heartbeat.groups})

    def heard_at(self, host: HostId) -> Instant | None:
        beat = self._beats.get(host)
        return beat[0] if beat is not None else None

    def reached(self, host: HostId) -> tuple[Reached, ...]:
        """The newest step of each epoch on a host, as it last told; epochs without one are left out."""
        _, groups = self._beats.get(host, (Instant(0), {}))
        newest = [(group, max(group.ranks, key=lambda rank: rank.step)) for group in groups.values() if group.ranks]
        return tuple(
            Reached(attempt=group.attempt, epoch=group.epoch, step=rank.step, step_at=rank.step_at)
            for group, rank in newest
            if rank.step > 0 and rank.step_at > 0
        )

    def ranks(
        self, attempt: AttemptId, epoch: int, hosts: tuple[HostId, ...]
    ) -> tuple[tuple[HostId, Instant, RankProgress], ...]:
        """The ranks of this epoch as their hosts last told, by rank; hosts that told nothing are left out."""
        found = []
        for host in hosts:
            at, groups = self._beats.get(host, (Instant(0), {}))
            group = groups.get(attempt)
            if group is not None and group.epoch == epoch:
                found += [(host, at, rank) for rank in group.ranks]
        return tuple(sorted(found, key=lambda row: row[2].rank))

    # --- what holds up jobs, as the watch found it

    def diagnosis(self, attempt: AttemptId, epoch: int) -> LiveDiagnosis | None:
        """What holds up this epoch; None: nothing that is known."""
        found = self._diagnoses.get(attempt)
        return found if found is not None and found.epoch == epoch else None

    def keep_diagnosis(self, attempt: AttemptId, found: LiveDiagnosis) -> None:
        self._diagnoses[attempt] = found

    def forget_diagnosis(self, attempt: AttemptId) -> None:
        self._diagnoses.pop(attempt, None)

    def keep_diagnoses(self, attempts: set[AttemptId]) -> None:
        """Forgets those of all other attempts."""
        self._diagnoses = {name: found for name, found in self._diagnoses.items() if name in attempts}
        self._bounds = {name: found for name, found in self._bounds.items() if name in attempts}

    def bound(self, attempt: AttemptId, epoch: int) -> Bound | None:
        """What a step of this epoch may take, as far as the watch has learnt it."""
        number, found = self._bounds.get(attempt, (0, None))
        return found if number == epoch else None

    def keep_bound(self, attempt: AttemptId, epoch: int, found: Bound) -> None:
        self._bounds[attempt] = (epoch, found)
