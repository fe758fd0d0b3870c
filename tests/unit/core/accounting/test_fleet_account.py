"""The accounts of many jobs as one; and the published interruptions of a large run, counted again."""

import csv
import json
from pathlib import Path

import pytest
from tests.unit.fixtures import job_spec, stage

from trainmaster.core.accounting.fleet import DAY_S, FleetAccount, Interruptions, JobLine, fleet_account, shares
from trainmaster.core.base.ids import JobId

CASE = Path(__file__).parents[3] / "cases" / "96-llama3-interruptions"


def test_the_interruptions_of_llama_3() -> None:
    """Field case 96. 1. 466 interruptions of 2,048 hosts in 54 days, 47 of them planned. 2. An unexpected one comes
    each 3.09 h, and 3.79 times in a thousand host-days. 3. For 90 % each may cost 18.6 min; 16.7 if the planned ones
    share in it. 4. The share of faulty GPUs is computed from the count: 35.3 %, not the 30.1 that was printed."""
    told = json.loads((CASE / "summary.json").read_text())
    hosts, run_s = told["gpus"] // told["gpus_per_node"], told["days"] * DAY_S
    seen = Interruptions(planned=told["planned"], unplanned=told["unexpected"], run_s=run_s, host_s=hosts * run_s)
    assert seen.planned + seen.unplanned == told["interruptions"]
    assert seen.mean_time_between_s == pytest.approx(3.093 * 3600, rel=1e-3)
    assert seen.per_thousand_host_days == pytest.approx(3.789, rel=1e-3)
    goal = told["effective_training_time_min"]
    assert (seen.budget_s(goal, planned=False) or 0) / 60 == pytest.approx(18.6, abs=0.05)
    assert (seen.budget_s(goal) or 0) / 60 == pytest.approx(16.7, abs=0.05)
    rows = list(csv.DictReader((CASE / "causes.csv").read_text().splitlines()))
    counts = {row["cause"]: int(row["count"]) for row in rows}
    counts["the rest"] = told["unexpected"] - sum(counts.values())
    found = shares(counts)
    wrong = [row["cause"] for row in rows if abs(100 * found[row["cause"]] - float(row["percent_printed"])) > 0.1]
    assert wrong == ["faulty GPU"]
    assert found["faulty GPU"] == pytest.approx(0.353, abs=5e-4)


def test_nothing_ran_and_nothing_was_interrupted() -> None:
    """1. A fleet without jobs, then one whose job waits. 2. What can't be said is said to be unknown, not zero."""
    for lines in ((), (_waiting(),)):
        told = fleet_account(lines)
        assert told.goodput == 0.0
        assert told.mean_time_between_s is told.per_thousand_host_days is told.lost_each_s is None
        assert told.interruptions.budget_s(0.9) is None


def _waiting() -> JobLine:
    play = stage(1)
    play.submit(job_spec(hosts=2))
    play.wait(10)
    return JobLine(id=JobId("job-1"), name="llama", state="queued", hosts=2, account=play.account("job-1"))


def two_jobs() -> FleetAccount:
    """Each of two jobs is killed after 57 steps of a second, once; the second is twice as wide."""
    lines = []
    for number, hosts in ((1, 1), (2, 2)):
        play = stage(2)
        attempt = play.running(job_spec(hosts=hosts, ranks_per_host=4))
        play.at(57)
        play.exit(attempt, 1, "failed", signal=9, step=57)
        play.at(60)
        play.train(attempt, restored=50)
        play.at(100)
        told = play.account("job-1", last_step=91)
        lines.append(JobLine(id=JobId(f"job-{number}"), name="llama", state="active", hosts=hosts, account=told))
    return fleet_account(lines)


def test_jobs_add_up() -> None:
    """1. Two jobs of 4 and 8 ranks, killed alike. 2. Each GPU-second of both is productive or of one cause. 3. The
    wider one stands first. 4. A kill cost nine seconds: three away, and six of steps done again."""
    told = two_jobs()
    assert told.unit == "rank"
    assert told.gpu_s == pytest.approx(100.0 * 12)
    assert sum(line.gpu_s for line in told.causes) + told.productive_gpu_s == pytest.approx(told.gpu_s)
    assert [line.id for line in told.jobs] == ["job-2", "job-1"]
    (killed,) = [line for line in told.causes if line.cause == "worker-killed"]
    assert (killed.incidents, killed.share) == (2, 1.0)
    assert killed.gpu_s_by_phase["replay"] == pytest.approx(6.0 * 12)
    assert killed.gpu_s == pytest.approx(9.0 * 12)
    assert told.lost_each_s == pytest.approx(9.0)
    assert (told.interruptions.unplanned, told.interruptions.planned) == (2, 0)
    assert told.mean_time_between_s == pytest.approx(100.0)
    assert told.per_thousand_host_days == pytest.approx(1000 * 2 / (300 / DAY_S))
