"""The journal: started once, answered for ever, fenced by lease and boot, dropped when nobody can ask again."""

from trainmaster.core.agent.journal import KEPT_LOOSE, Journal, Line
from trainmaster.core.base.ids import AttemptId, BootId, EffectId, HostId
from trainmaster.core.base.time import Duration
from trainmaster.core.effects import AnyEffect, ReleaseAttempt, ReserveStore, StopWorkers, VerifyHost

HOST, ATTEMPT = HostId("h1"), AttemptId("job-1.a1")
B1, B2 = BootId("b1"), BootId("b2")


def reserve(name: str) -> ReserveStore:
    return ReserveStore(id=EffectId(name), host=HOST, attempt=ATTEMPT, epoch=1)


def release(name: str) -> ReleaseAttempt:
    return ReleaseAttempt(id=EffectId(name), hosts=(HOST,), attempt=ATTEMPT)


def carry_out(journal: Journal, effect: AnyEffect, lease: int = 1) -> list[Line]:
    answer = journal.offer(effect, lease)
    assert answer.verdict == "start"
    return [*answer.lines, *journal.ended(effect.id, "done", "", {"port": 7})]


def test_effect_is_started_once_and_then_answered() -> None:
    """1. An effect is offered: start. 2. Again while it runs: wait. 3. Again after it ended: its outcome."""
    journal = Journal(B1)
    assert journal.offer(reserve("e1.1"), 1).verdict == "start"
    assert journal.offer(reserve("e1.1"), 1).verdict == "wait"
    journal.ended(EffectId("e1.1"), "done", "", {"port": 7})
    again = journal.offer(reserve("e1.1"), 1)
    assert (again.verdict, again.entry.outcome, again.entry.numbers) == ("ended", "done", {"port": 7})


def test_older_lease_is_refused_and_known_effects_are_still_answered() -> None:
    """1. Lease 5 is seen. 2. A new effect of lease 4 is not run, and leaves no entry. 3. A known one is answered."""
    journal = Journal(B1)
    carry_out(journal, reserve("e1.1"), lease=5)
    stale = journal.offer(reserve("e2.1"), 4)
    assert (stale.verdict, stale.entry.outcome) == ("ended", "not-run")
    assert stale.entry.detail == "stale lease: 4 is older than 5"
    assert journal.entry(EffectId("e2.1")) is None
    assert journal.offer(reserve("e1.1"), 4).entry.outcome == "done"


def test_lines_rebuild_the_journal() -> None:
    """1. Lines are kept as they come. 2. A journal from them answers the same and knows the lease."""
    lines = carry_out(Journal(B1), reserve("e1.1"), lease=3)
    again = Journal(B1, lines)
    assert again.lease == 3
    assert again.offer(reserve("e1.1"), 3).entry.numbers == {"port": 7}
    assert Journal(B1, again.lines()).lines() == again.lines()


def test_interrupted_effect_is_started_again() -> None:
    """1. The agent crashed between start and outcome. 2. The next one starts the effect again."""
    answer = Journal(B1).offer(reserve("e1.1"), 1)
    assert Journal(B1, answer.lines).offer(reserve("e1.1"), 1).verdict == "start"


def test_reboot_undoes_what_was_done_except_ends() -> None:
    """1. A reservation and a stop were done before a reboot. 2. After it the reservation has failed, the stop is
    done."""
    journal = Journal(B1)
    stop = StopWorkers(id=EffectId("e2.1"), hosts=(HOST,), attempt=ATTEMPT, epoch=1, grace=Duration(0))
    lines = [*carry_out(journal, reserve("e1.1")), *carry_out(journal, stop)]
    rebooted = Journal(B2, lines)
    undone = rebooted.offer(reserve("e1.1"), 1)
    assert (undone.verdict, undone.entry.outcome, undone.entry.numbers) == ("ended", "failed", {})
    assert rebooted.offer(stop, 1).entry.outcome == "done"


def test_entries_go_with_the_acknowledged_release() -> None:
    """1. Entries of an attempt stay after their acknowledgement. 2. The acknowledged release drops all of them."""
    journal = Journal(B1)
    lines = [*carry_out(journal, reserve("e1.1")), *journal.acknowledged(EffectId("e1.1"))]
    assert len(journal) == 1
    lines += [*carry_out(journal, release("e2.1")), *journal.acknowledged(EffectId("e2.1"))]
    assert len(journal) == 0
    assert len(Journal(B1, lines)) == 0


def test_failed_release_drops_nothing() -> None:
    """1. A release failed and that was acknowledged. 2. The entries of the attempt stay."""
    journal = Journal(B1)
    carry_out(journal, reserve("e1.1"))
    journal.offer(release("e2.1"), 1)
    journal.ended(EffectId("e2.1"), "failed", "a process does not end", {})
    journal.acknowledged(EffectId("e2.1"))
    assert len(journal) == 2


def test_verifications_do_not_fill_the_journal() -> None:
    """1. A host is verified again and again. 2. Only the newest entries stay."""
    journal = Journal(B1)
    for number in range(1, 3 * KEPT_LOOSE):
        verify = VerifyHost(id=EffectId(f"e{number}.1"), host=HOST, tasks=("disk",))
        carry_out(journal, verify)
        journal.acknowledged(verify.id)
    assert len(journal) == KEPT_LOOSE
    assert journal.entry(EffectId("e1.1")) is None
    assert journal.entry(EffectId(f"e{3 * KEPT_LOOSE - 1}.1")) is not None
