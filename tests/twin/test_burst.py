"""A burst in a small store: what admission does for readers, and what it costs the save."""

from pathlib import Path

import pytest

from trainmaster.cli.burstfile import load
from trainmaster.cli.main import main
from trainmaster.live.tomlfile import FileError
from trainmaster.twin.burst import BurstReport, BurstScenario, both, possible

EXABYTE = Path(__file__).parents[2] / "scenarios" / "exabyte-burst.toml"
SMALL = (
    "store.servers=117", "store.sustained_gb_s=31.25", "store.peak_gb_s=109.375", "save.ranks=256",
    "data.readers=32", "data.gb_s=6.25", "admission.window_gb=1.0",
)  # fmt: skip
"""A sixty-fourth of the file's store."""


@pytest.fixture(scope="module")
def found() -> tuple[BurstScenario, BurstReport, BurstReport]:
    scenario = load(EXABYTE, SMALL)
    return scenario, *both(scenario)


def test_the_file_is_the_published_store() -> None:
    scenario = load(EXABYTE)
    assert (scenario.servers, scenario.ranks, scenario.largest_bytes) == (7_500, 16_384, 4 * 10**9)
    assert (scenario.sustained_bytes_s, scenario.peak_bytes_s) == (2 * 10**12, 7 * 10**12)


def test_readers_hardly_notice_an_admitted_save(found: tuple[BurstScenario, BurstReport, BurstReport]) -> None:
    """1. The same save, without and with. 2. With admission reads are several times faster, at the median and in the
    tail, and what readers want is served. 3. The save takes at most a fifth longer."""
    _, without, admitted = found
    assert without.save_bytes == admitted.save_bytes
    assert without.quiet_reads == admitted.quiet_reads
    assert admitted.reads.p99 * 1.5 < without.reads.p99
    assert admitted.reads.median * 3 < without.reads.median
    assert admitted.data_served > 0.98
    assert admitted.makespan < 1.2 * without.makespan
    assert 0.99 < without.over_possible < 1.3
    assert admitted.phase == "queued"


def test_greedy_readers_get_their_share(found: tuple[BurstScenario, BurstReport, BurstReport]) -> None:
    """1. Readers want nearly all that the store sustains, and ranks run far ahead. 2. Without admission the save takes
    what it takes, and readers get less than their share. 3. With it they have what was configured."""
    scenario = found[0]
    greedy = scenario.but(
        data_bytes_s=30 * 10**9,
        buffer_bytes=0,
        peak_bytes_s=scenario.sustained_bytes_s,
        ahead=32,
        smallest_bytes=scenario.largest_bytes // 10,
        reads_ahead=12,
        policy=scenario.policy.but(window_bytes=4 * scenario.policy.window_bytes),
    )
    without, admitted = both(greedy)
    assert without.data_share < 0.15
    assert admitted.data_share == pytest.approx(25 / 95, abs=0.02)
    assert admitted.over_sustained == pytest.approx(95 / 70, abs=0.15)


def test_the_same_seed_is_the_same_burst(found: tuple[BurstScenario, BurstReport, BurstReport]) -> None:
    scenario, *reports = found
    assert list(both(scenario)) == reports
    other, _ = both(scenario.but(seed=2))
    assert other.save_bytes != reports[0].save_bytes


def test_what_is_possible() -> None:
    """1. A small save goes at the peak. 2. A large one at the peak until the buffers are full, then as sustained. 3.
    What others take is missing."""
    scenario = load(EXABYTE)
    assert possible(scenario, 7 * 10**12 // 2) == 500_000
    fast = 3_750 * 10**9 * 7 // 5
    assert possible(scenario, fast + 2 * 10**12) == 750_000 + 1_000_000
    assert possible(scenario, 10**13, 400 * 10**9) > possible(scenario, 10**13)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("admission.data_percent=26", "admission"),
        ("admission.window_gb=0.01", "admission"),
        ("store.peak_gb_s=1", "store.peak_gb_s"),
        ("save.largest_mb=0.5", "save.largest_mb"),
        ("data.gb_s=2000", "data.gb_s"),
        ("store.disks=3", "store.disks"),
    ],
)
def test_impossible_files_are_refused(change: str, key: str) -> None:
    with pytest.raises(FileError) as caught:
        load(EXABYTE, [change])
    assert [problem.key for problem in caught.value.problems] == [key]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [word for change in (*SMALL, "save.ranks=16") for word in ("--set", change)]
    assert main(["twin", "burst", str(EXABYTE), *changes]) == 0
    shown = capsys.readouterr()
    assert "simulated, not measured: 16 ranks" in shown.err
    assert "reads in the save, 99th percentile" in shown.out
    assert main(["twin", "burst", str(EXABYTE), *changes, "-o", "json"]) == 0
    assert '"over_sustained"' in capsys.readouterr().out
