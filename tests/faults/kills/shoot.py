"""Fires shots at a running job, one after the other, and sees it recover from each.

A shot waits for its victims to exist (a rank that is about to be launched, a spare that boots), lets some steps pass,
waits for its moment, and kills. The job has `RECOVER_S` to finish a step after it. What is measured is the time from
the kill to the end of that step.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from tests.faults.kills.aim import Eye, Seat, Steps, until
from tests.faults.kills.draw import ENDS_EPOCH, ENDS_VAULT, Kind, Moment, Shot, Victim
from tests.integration.house import House
from trainmaster.core.base.value import Value
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import ProcessName, send
from trainmaster.ports.errors import UserError

RECOVER_S, REST_S = 90.0, 240.0
"""From a kill to the next finished step, on a machine that has much else to do. A host that nobody can replace has to
boot, to be verified and to import the framework first. And until all is whole again, which is several such imports."""
AIM_S = 30.0
OPENINGS = 3
"""A moment of a re-forming that passed unseen is brought about again, so many times in all."""
STEPS_LOOK = 20
"""One look of so many asks for steps as well, which takes longer."""
BUSY_S, IDLE_S = 0.02, 5.0
"""What a step takes at least: while something is aimed at, and while hosts come back."""
HELD_S = 0.3
"""For how long a copy that is aimed at is held before it is whole: one of a small model is over before it is seen."""


class Hit(Value):
    """What a shot did."""

    shot: Shot
    step: int
    """The newest finished step at the kill."""
    epoch: int
    aimed: bool
    """The moment was there just before the kill."""
    back_s: float
    """From the kill to the end of the next step."""
    next_epoch: int


class Range:
    """A job to shoot at. `pace`: the file that sets its pace."""

    def __init__(self, house: House, name: str, eye: Eye, steps: Steps, pace: Path, say: Callable[[str], None]) -> None:
        self.house, self.name, self.eye, self.steps, self.pace, self.say = house, name, eye, steps, pace, say
        self.hits: list[Hit] = []

    def fire(self, shot: Shot, of: int) -> Hit:
        """Raises `AssertionError` if the job does not recover."""
        for victim in shot.victims:
            until(f"{victim.words()} exists", lambda victim=victim: self._exists(victim), REST_S, 0.02)
        self.set_pace(BUSY_S, HELD_S if shot.moment is Moment.COPY else 0.0)
        before = self.steps.newest()
        until(f"{shot.after_steps} more steps", lambda: self.steps.newest() >= before + shot.after_steps, RECOVER_S)
        triggers = [self._trigger(victim) for victim in shot.victims] if shot.opener is None else None
        held = self._hold_a_vault(shot) if shot.moment is Moment.REPLICATION else None
        broken = self._aim(shot)
        triggers = triggers or [self._trigger(victim) for victim in shot.victims]
        aimed = shot.moment is Moment.ANY or self.eye.is_at(shot.moment, broken)
        killed_s, epoch = _pull(triggers, self.eye)
        if held is not None:
            send(held, SIGCONT)
        step = self.steps.newest()
        ends = any(victim.kind in ENDS_EPOCH for victim in shot.victims)
        # Who falls while an epoch forms may be replaced in it; no step of it ends after the shot without all its ranks.
        least = broken + 1 if shot.opener is not None and aimed else epoch + 1 if ends else epoch
        until(f"a step after {shot.words()}", lambda: self.steps.after(killed_s, least), RECOVER_S, 0.005)
        found = self.steps.after(killed_s, least)
        assert found is not None
        hit = Hit(
            shot=shot, step=step, epoch=epoch, aimed=aimed, back_s=found[1].time_s - killed_s, next_epoch=found[0]
        )
        self.hits.append(hit)
        self.say(
            f"kill {shot.number} of {of}: {shot.words()}: step {step}, epoch {epoch}; a step after {hit.back_s:.2f} s"
            f"{'' if aimed else ' (the moment had passed)'}"
        )
        self.set_pace(IDLE_S)
        if shot.rested:
            self.rest()
        return hit

    def rest(self) -> None:
        """Waits until everything is whole again: every host, every spare, the job."""
        deadline = time.monotonic() + REST_S
        while lacking := self._lacking():
            assert time.monotonic() < deadline, f"not whole within {REST_S:g} s: {lacking}"
            time.sleep(0.1)

    def _lacking(self) -> str:
        """What is not whole yet."""
        job, hosts = self.house.detail(self.name).job, self.house.hosts().values()
        away = [host.id for host in hosts if not host.connected]
        wanted, busy = len(self.eye.plan.hosts) - len(job.hosts), self.eye.busy()
        if job.attempt_state != "running" or away or busy:
            return f"the job is {job.attempt_state}; away: {away}; at work: {busy}"
        return "" if len(job.spares) == len(self.eye.spares()) == wanted else f"spares are {job.spares}"

    def set_pace(self, step_s: float, copy_s: float = 0.0) -> None:
        """How long a step takes at least, and how long a copy is held before it is whole."""
        whole = self.pace.with_suffix(".next")
        whole.write_text(f"{step_s} {copy_s}")
        whole.rename(self.pace)

    # --- aiming

    def _hold_a_vault(self, shot: Shot) -> ProcessName | None:
        """Stops a vault in its tracks, so that a replication to it is still under way when the shot falls."""
        hit = {victim.place for victim in shot.victims if victim.kind in ENDS_VAULT}
        seats = [seat for seat in self.eye.seats(self.eye.epoch()) if seat.rank not in hit]
        vault = self.eye.vault(seats[0].host)
        if vault is not None:
            send(vault, SIGSTOP)
        return vault

    def _aim(self, shot: Shot) -> int:
        """Waits for the moment of a shot; for one of a re-forming, the epoch that was broken."""
        if shot.moment is Moment.ANY:
            self._part_of_step(shot.part_of_step)
            return 0
        if shot.opener is None:
            until(f"it is {shot.moment.value}", lambda: self.eye.is_at(shot.moment, 0), AIM_S)
            return 0
        for _ in range(OPENINGS):
            broken, met = self._open(shot.moment, shot.opener)
            if met:
                break
        return broken

    def _open(self, moment: Moment, rank: int) -> tuple[int, bool]:
        """Kills a rank and waits for a moment of the re-forming that follows: the epoch that was broken, and whether
        the moment was seen before it was over."""
        opener = self._worker(rank)
        assert opener.process is not None
        broken = opener.epoch
        killed_s = time.time()
        send(opener.process, SIGKILL)
        seen: list[bool] = []

        def look() -> bool:
            seen.append(self.eye.is_at(moment, broken))
            return seen[-1] or (len(seen) % STEPS_LOOK == 0 and bool(self.steps.after(killed_s, broken + 1)))

        until(f"it is {moment.value}, or over", look, RECOVER_S)
        return broken, seen[-1]

    def _part_of_step(self, part: float) -> None:
        """Anywhere in a step: right after one ended, the time that a part of one takes."""
        newest = self.steps.newest()
        until("a step ends", lambda: self.steps.newest() > newest, RECOVER_S)
        end = time.monotonic() + part * BUSY_S
        until("a part of a step", lambda: time.monotonic() >= end, 1.0)

    # --- victims

    def _exists(self, victim: Victim) -> bool:
        match victim.kind:
            case Kind.SERVER:
                return local.process_of(self.house.state, "server") is not None
            case Kind.SPARE:
                return len(self.eye.spares()) > victim.place
            case Kind.STANDBY:
                return sum(self.eye.standby(host) is not None for host in self.eye.spares()) > victim.place
            case Kind.AGENT:
                seat = self.eye.seat(victim.place)
                return seat is not None and local.process_of(self.house.state, local.agent_of(seat.host)) is not None
            case Kind.VAULT:
                seat = self.eye.seat(victim.place)
                return seat is not None and self.eye.vault(seat.host) is not None
            case _:
                seat = self.eye.seat(victim.place)
                return seat is not None and self.eye.keeper(seat.host) is not None

    def _worker(self, rank: int) -> Seat:
        """A rank that runs, as soon as there is one."""
        seat: Seat | None = None

        def taken() -> bool:  # a membership that forms just then may have emptied it again for whoever looks twice
            nonlocal seat
            seat = self.eye.seat(rank)
            return seat is not None and seat.runs()

        until(f"rank {rank} runs", taken, AIM_S)
        assert seat is not None
        return seat

    def _trigger(self, victim: Victim) -> Callable[[], object]:
        """What kills a victim; it has been looked up before, so that pulling it takes no time."""
        state = self.house.state
        if victim.kind is Kind.SERVER:
            return lambda: _unless_gone(lambda: local.kill_server(state))
        if victim.kind is Kind.SPARE:
            spares = self.eye.spares()
            host = spares[victim.place % len(spares)] if spares else None
            assert host is not None, "no spare is there any more"
            return lambda: local.kill_host(state, host)
        if victim.kind is Kind.STANDBY:
            waiting = [process for host in self.eye.spares() if (process := self.eye.standby(host)) is not None]
            assert waiting, "no worker stands by any more"
            return lambda: send(waiting[victim.place % len(waiting)], SIGKILL)
        if victim.kind is Kind.WORKER:
            process = self._worker(victim.place).process
            assert process is not None
            return lambda: send(process, SIGKILL)
        seat = self.eye.seat(victim.place)
        assert seat is not None, victim
        if victim.kind is Kind.HOST:
            return lambda: local.kill_host(state, seat.host)
        if victim.kind is Kind.AGENT:
            return lambda: _unless_gone(lambda: local.kill_agent(state, seat.host))
        process = self.eye.keeper(seat.host) if victim.kind is Kind.KEEPER else self.eye.vault(seat.host)
        assert process is not None, victim
        return lambda: send(process, SIGKILL)


def _unless_gone(kill: Callable[[], None]) -> None:
    """Who died by itself in this moment need not be killed."""
    try:
        kill()
    except UserError as error:
        print(f"not killed: {error}")


def _pull(triggers: list[Callable[[], object]], eye: Eye) -> tuple[float, int]:
    """Pulls all of them at once; when, in seconds since 1970, and in which epoch."""
    together = threading.Barrier(len(triggers))

    def pull(trigger: Callable[[], object]) -> None:
        together.wait()
        trigger()

    threads = [threading.Thread(target=pull, args=(trigger,)) for trigger in triggers[1:]]
    for thread in threads:
        thread.start()
    epoch, killed_s = eye.epoch(), time.time()
    pull(triggers[0])
    for thread in threads:
        thread.join()
    return killed_s, epoch
