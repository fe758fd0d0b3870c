"""A small simulated fleet, lived through under the very engine and watched after every event."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import twin as bench

from trainmaster.cli.scenariofile import load
from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import HOUR, Duration, Instant
from trainmaster.core.base.value import encode
from trainmaster.core.events import AgentDisconnected, AnyEvent, OperationRequested
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import Scenario

FILE = Path(__file__).with_name("small.toml")
OFTEN = Options(whole_every=50, hashed=True)


def scenario(hours: float = 24.0) -> Scenario:
    return load(FILE).but(duration=Duration(round(hours * HOUR)))


class Heard(Run):
    """A run that keeps its events."""

    def __init__(self, chosen: Scenario) -> None:
        super().__init__(chosen, OFTEN)
        self.heard: list[AnyEvent] = []
        handle = self.world.handle

        def kept(event: AnyEvent) -> object:
            self.heard.append(event)
            return handle(event)

        self.world.handle = kept  # type: ignore[assignment]

    def failures(self) -> list[tuple[Instant, HostId]]:
        return [(event.at, event.host) for event in self.heard if isinstance(event, AgentDisconnected)]


def test_a_day() -> None:
    """1. A day of two small clusters, with failures twenty times denser than life. 2. Operations are requested, run and
    end; visits, failures, repairs, hand-overs and lost hosts happen; jobs finish. 3. No invariant is broken."""
    run = Run(scenario(), OFTEN)
    report = run.run()
    assert report.broken == ()
    assert report.invariants_broken == 0
    assert report.simulated_s == 86400
    assert report.operations_requested > 5500
    ended = sum(report.operations_by_outcome.values())
    assert ended + report.unfinished == report.operations_requested
    assert report.operations_done > 0.95 * report.operations_requested
    assert report.wide > 0.1 * report.operations_requested
    assert report.disruptive > 100
    assert report.kinds_used > 50
    assert report.hosts_visited + report.hosts_missed == 64
    assert report.visits > 20
    assert report.failures["failures"] > 2
    assert report.interruptions["hand-over"] > 0
    assert report.interruptions["host-lost"] > 0
    assert report.jobs["finished"] > 20
    assert report.watched.whole_states > 200
    assert {"resource-busy", "notice-given"} <= set(report.waits_by_reason)


def test_conservation() -> None:
    """1. A day. 2. What was trained and what was lost fits into the GPU time that there was."""
    run = Run(scenario(), OFTEN)
    report = run.run()
    capacity = 64 * 8 * 86400
    spent = report.trained_gpu_s + sum(report.lost_gpu_s_by_cause.values())
    assert 0.2 * capacity < report.trained_gpu_s < capacity
    assert spent < capacity


def test_the_same_seed_is_the_same_history() -> None:
    """1. A scenario runs twice here, and in another process under another hash seed. 2. All event logs have one hash.
    3. Another seed has another."""
    first, again = (Run(scenario(6.0), OFTEN).run().log_hash for _ in range(2))
    assert first == again
    other = Run(scenario(6.0).but(seed=2), OFTEN).run().log_hash
    assert other != first
    command = [
        sys.executable,
        "-m",
        "trainmaster",
        "twin",
        "run",
        str(FILE),
        "--duration",
        "6h",
        "--hash",
        "-o",
        "json",
    ]
    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert first in told.stdout


def test_a_further_job_moves_no_failure() -> None:
    """1. A day with more jobs, and with other operations. 2. Hosts fail at the same instants, but for those that
    were down already."""
    usual = Heard(scenario(12.0))
    usual.run()
    chosen = scenario(12.0)
    more = Heard(
        chosen.but(
            jobs=(*chosen.jobs, chosen.jobs[1].but(name="more", count=3)),
            operations=chosen.operations.but(per_day=3000, disruptive_per_day=0),
        )
    )
    more.run()
    assert len(usual.failures()) > 2
    only = set(usual.failures()) ^ set(more.failures())
    assert len(only) <= 2, only
    assert len([one for one in more.heard if isinstance(one, OperationRequested)]) < 1800


@pytest.mark.parametrize("seed", [3, 4])
def test_a_restored_engine_goes_on_alike(seed: int) -> None:
    """1. A run, whose engine is replaced in the middle by one that is restored from a snapshot. 2. The history is the
    same as without."""
    plain = Run(scenario(4.0).but(seed=seed), OFTEN)
    cut = Run(scenario(4.0).but(seed=seed), OFTEN)

    def restore(_: None) -> None:
        engine = cut.world.engine
        cut.world.engine = type(engine).restore(engine.snapshot())
        cut.attach()

    cut.world.kernel.after(2 * HOUR, restore, None, 2)
    assert cut.run().log_hash == plain.run().log_hash
    assert cut.world.engine.snapshot() == plain.world.engine.snapshot()


def test_the_benches_in_little() -> None:
    """1. The day and the year of two clusters, a small part of each. 2. They give figures, and nothing is broken."""
    figures = [bench.day(0.0005), bench.year(0.0001)]
    assert [figure.figure for figure in figures] == ["twin.day_million_operations_s", "twin.year_two_clusters_s"]
    assert "failures" in figures[0].note


def test_a_report_is_a_value() -> None:
    """1. A short run. 2. Its report says that it is simulated, and encodes."""
    report = Run(scenario(0.5), Options(whole_every=0)).run()
    assert b'"simulated":true' in encode(report)
    assert report.watched.events == 0
