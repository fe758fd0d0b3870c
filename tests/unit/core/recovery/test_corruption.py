"""Replicas that disagree, as the engine hears it: whose fault, where the job goes on, what stands against whom."""

import pytest
from tests.unit.fixtures import Stage, failure, job_spec, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.diagnosis.replicas import judge, sentence
from trainmaster.core.health.corruption import AGAIN_WITHIN, RULE
from trainmaster.core.health.words import SUSPECT, TRIAGE, Answer
from trainmaster.core.recovery.attempt import Attempt

PEER = failure("PeerDisagreed", "lost its peers: rank 2 differed from its replicas after step 30")


def told_of(*odd: int) -> str:
    found = judge(("head",), {rank: (1 + (rank in odd),) for rank in range(3)})
    assert found is not None
    return sentence(found, {rank: f"h{rank + 1}" for rank in range(3)}, step=30, agreed=20)


def corrupted(play: Stage, attempt: Attempt, text: str, exception: str = "ReplicaDisagreement") -> None:
    """Rank 2 says what it is, the others that they lost it; and they say it first."""
    for rank in (0, 1):
        play.exit(attempt, rank, "failed", PEER, step=30)
    play.wait(0.05)
    play.exit(attempt, 2, "failed", failure(exception, text), step=30)


def answers(play: Stage, host: str) -> list[Answer]:
    found = play.engine.state.health.standings.get(HostId(host), ())
    return [each.finding.answer for each in found if each.finding.rule == RULE]


@pytest.mark.parametrize(
    ("exception", "before"), [("ReplicaDisagreement", ""), ("", "trainmaster: ")], ids=["record", "last line"]
)
def test_the_odd_rank_is_the_cause(exception: str, before: str) -> None:
    """1. Two ranks say that they lost a peer; the third, a moment later, that its replicas disagree: in its record, or
    in the last line of its output. 2. It is the cause, with its host; the job goes on; its host is suspect."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=3))
    play.at(30)
    corrupted(play, attempt, before + told_of(2), exception)
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert (cause.token, cause.numbers["host"], cause.numbers["rank"]) == (Token.REPLICAS_DISAGREE, "h3", 2)
    assert cause.sentence == told_of(2)
    assert len(attempt.epochs) == 2
    assert (answers(play, "h3"), answers(play, "h1")) == ([SUSPECT], [])


def test_the_second_time_it_is_bad() -> None:
    """1. The same host is odd again. 2. It is bad, and a person has to look. 3. Long after, it is suspect again."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=3))
    for again in range(2):
        play.wait(600)
        corrupted(play, attempt, told_of(2))
        assert answers(play, "h3") == [TRIAGE if again else SUSPECT]
        play.wait(1.0)
        play.train(attempt, restored=20)
    play.wait(AGAIN_WITHIN / 1e6 + 1)
    corrupted(play, attempt, told_of(2))
    assert answers(play, "h3") == [SUSPECT]


def test_without_a_majority_no_host_is_named() -> None:
    """1. Two replicas differ, and both say so. 2. The job goes on, and nothing stands against either host."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    found = judge(("head",), {0: (1,), 1: (2,)})
    assert found is not None
    text = sentence(found, {}, step=30, agreed=20)
    play.at(30)
    for rank in (0, 1):
        play.exit(attempt, rank, "failed", failure("ReplicaDisagreement", text), step=30)
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.REPLICAS_DISAGREE
    assert "host" not in cause.numbers
    assert answers(play, "h1") == answers(play, "h2") == []
