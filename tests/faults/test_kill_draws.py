"""What is drawn for runs of random kills, and how a run is judged: the parts that need no fleet."""

from collections import Counter

import pytest

from tests.faults.kills import draw, ledger
from tests.faults.kills.draw import Kind, Moment
from trainmaster.core.accounting.report import Incident, JobAccount, Loss
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.time import Instant
from trainmaster.core.recovery.events import EpochPhase, WorkerExited
from trainmaster.training.metrics import Line

RANKS, SPARES = 4, 2
ATTEMPT, HOST = AttemptId("job-1.a1"), HostId("h1")


@pytest.mark.parametrize("seed", range(20))
def test_fifty_shots_meet_everything(seed: int) -> None:
    """Whatever the seed: every kind alone, every pair of kinds, every moment; nothing dies twice in one shot."""
    shots = draw.draw(seed, 50, RANKS, SPARES, tuple(Kind), tuple(Moment))
    groups = Counter(tuple(victim.kind for victim in shot.victims) for shot in shots)
    assert set(groups) == {(kind,) for kind in Kind} | set(draw.pairs(tuple(Kind)))
    moments = Counter(shot.moment for shot in shots)
    assert set(moments) == set(Moment)
    assert min(moments.values()) >= 4
    assert [shot.number for shot in shots] == list(range(1, 51))
    for shot in shots:
        assert (shot.opener is not None) == (shot.moment in draw.OPENED)
        of_ranks = [victim.place for victim in shot.victims if victim.kind not in {*draw.ON_SPARES, Kind.SERVER}]
        assert len(set(of_ranks)) == len(of_ranks)
        assert all(victim.place < (SPARES if victim.kind in draw.ON_SPARES else RANKS) for victim in shot.victims)


def test_seeds_draw_the_same_again_and_differ() -> None:
    assert draw.draw(7, 50, RANKS, SPARES) == draw.draw(7, 50, RANKS, SPARES)
    assert len({draw.draw(seed, 5, RANKS, SPARES) for seed in range(20)}) == 20


def test_only_what_is_possible_is_drawn() -> None:
    kinds, moments = (Kind.WORKER, Kind.HOST), (Moment.ANY, Moment.SAVE)
    shots = draw.draw(1, 50, RANKS, SPARES, kinds, moments)
    assert {victim.kind for shot in shots for victim in shot.victims} == set(kinds)
    assert {shot.moment for shot in shots} == set(moments)


def test_the_default_seed_of_five_meets_a_host_the_server_two_at_once_and_a_reforming() -> None:
    """What `make test` runs."""
    shots = draw.draw(draw.SEED, 5, RANKS, SPARES)
    assert {Kind.HOST, Kind.SERVER, Kind.WORKER} <= {victim.kind for shot in shots for victim in shot.victims}
    assert len({shot.moment for shot in shots} & draw.OPENED) > 1
    assert max(len(shot.victims) for shot in shots) == 2


# --- the ledger: a run of six steps whose first epoch ended after step 4, and whose second went on from step 2


def line(step: int, at_s: float) -> Line:
    return Line(step=step, loss=1.0, loss_hex=f"loss {step}", time_s=at_s, samples=step, step_s=1.0)


def phase(epoch: int, step: int) -> EpochPhase:
    return EpochPhase(at=Instant(0), host=HOST, attempt=ATTEMPT, epoch=epoch, phase=Phase.RESTORED, step=step)


def exited(epoch: int, step: int) -> WorkerExited:
    return WorkerExited(
        at=Instant(0),
        host=HOST,
        attempt=ATTEMPT,
        epoch=epoch,
        rank=0,
        how="failed",
        exit_code=None,
        signal=9,
        attached=True,
        phase=Phase.TRAINING,
        step=step,
        step_at=Instant(0),
        save_s=0.0,
    )


INCIDENT = Incident(
    attempt=ATTEMPT,
    epoch=1,
    planned=False,
    cause=Reason(token=Token.WORKER_KILLED, sentence="rank 0 was killed"),
    left=(),
    joined=(),
    last_step_at=Instant(4_000_000),
    detected_at=Instant(4_500_000),
    decided_at=Instant(4_500_000),
    resumed_at=Instant(6_000_000),
    steps_lost=2,
    seconds_by_phase={"interrupt": 0.5, "first_step": 1.5, "replay": 2.0},
)
ACCOUNT = JobAccount(
    wall_s=10.0,
    productive_s=6.0,
    goodput=0.6,
    seconds_by_phase={"productive": 6.0, "first_step": 4.0},
    steps=6,
    steps_lost_planned=0,
    steps_lost_unplanned=2,
    planned_handovers=0,
    unplanned_recoveries=1,
    failed_saves=0,
    losses=(Loss(cause="start", phase="first_step", seconds=4.0, gpu_s=4.0),),
    incidents=(INCIDENT,),
)
RUN = ledger.Run(
    total=6,
    every=2,
    unheard=3,
    lines={1: tuple(line(step, step) for step in range(1, 5)), 2: tuple(line(step, 3 + step) for step in range(3, 7))},
    expected={step: f"loss {step}" for step in range(1, 7)},
    events=(phase(1, 0), exited(1, 4), phase(2, 2)),
    account=ACCOUNT,
    epochs=2,
)


def test_a_run_in_order_has_no_complaint() -> None:
    assert ledger.complaints(RUN) == ()


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RUN.but(total=7), "1 steps were never done, the first is 7"),
        (RUN.but(lines={**RUN.lines, 2: RUN.lines[2][1:]}), "restored step 2, and its first step was 4"),
        (RUN.but(lines={**RUN.lines, 2: (*RUN.lines[2], line(8, 20.0))}), "step 8 follows on step 6"),
        (RUN.but(expected={**RUN.expected, 4: "another"}), "epoch 2: 1 losses differ"),
        (RUN.but(every=1), "more than 1 were lost"),
        (RUN.but(lines={1: RUN.lines[1][:1], 2: RUN.lines[2]}), "epoch 2 began with step 3, but only 1 were done"),
        (RUN.but(events=(phase(1, 0), exited(1, 3), phase(2, 2))), "has 2 lost steps, its log 1"),
        (RUN.but(events=(phase(1, 0), exited(1, 4))), "none after it restored anything"),
        (RUN.but(lines={**RUN.lines, 1: RUN.lines[1][:2]}), "has 2 lost steps, the metrics 0"),
        (RUN.but(account=ACCOUNT.but(steps=5)), "has 5 steps of 6"),
        (RUN.but(account=ACCOUNT.but(wall_s=11.0)), "the job took 11.0 s"),
        (RUN.but(account=ACCOUNT.but(losses=())), "6.0 s were productive and 0 s lost"),
        (RUN.but(account=ACCOUNT.but(seconds_by_phase={"productive": 11.0, "save": -1.0})), "below zero: save"),
        (RUN.but(account=ACCOUNT.but(incidents=(), steps_lost_unplanned=0)), "0 incidents, and 2 epochs"),
        (RUN.but(account=ACCOUNT.but(steps_lost_unplanned=3)), "the incidents lost 2 steps"),
        (
            RUN.but(account=ACCOUNT.but(incidents=(INCIDENT.but(seconds_by_phase={"interrupt": 0.5}),))),
            "its spans are not the 2.0 s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_disorder_is_told(run: ledger.Run, words: str) -> None:
    assert [text for text in ledger.complaints(run) if words in text], ledger.complaints(run)


def test_tracebacks_are_found_and_echoes_are_told_from_others() -> None:
    """1. A rank that lost a peer may say so, and be killed while it does. 2. Nobody else may, and it may say nothing
    else."""
    head = "Traceback (most recent call last):\n  File x, line 1\n    f()\n"
    echo, own = head + "RuntimeError: Connection closed by peer\n", head + "KeyError: 3\nmore\n"
    assert ledger.tracebacks(f"a\n{echo}b\n", True) == []
    assert ledger.tracebacks(f"a\n{echo}b\n", False) == ["RuntimeError: Connection closed by peer"]
    assert ledger.tracebacks(echo + own, True) == ["KeyError: 3"]
    assert ledger.tracebacks(head, True) == []
    assert ledger.tracebacks(head, False) == ["a traceback that was cut"]


def test_the_table_has_a_row_for_each_kind() -> None:
    rows = ledger.ways({"worker": [0.5, 0.1, 0.2], "host + server": [3.0]})
    assert [row.split() for row in rows[1:]] == [
        ["host", "+", "server", "1", "3.00", "3.00"],
        ["worker", "3", "0.20", "0.50"],
    ]
