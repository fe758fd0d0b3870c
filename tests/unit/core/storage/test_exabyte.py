"""The arithmetic of a large store, and the page that shows it."""

import math
from pathlib import Path

import pytest

from trainmaster.core.storage.exabyte import Store, fan, figures, overhead, save, typical_bytes, upkeep

PAGE = Path(__file__).parents[4] / "docs" / "design" / "exabyte.md"
STORE = Store()


def test_the_page_shows_these_figures() -> None:
    """Every row of the function stands in the page, to the letter, and the page has no others in that table."""
    rows = [f"| {name} | {usual} | {largest} |" for name, usual, largest in figures(STORE)]
    text = PAGE.read_text("utf-8")
    assert [row for row in rows if row not in text] == []
    table = text.split("| figure | typical save | largest save |")[1].split("\n\n")[0]
    assert table.count("\n") == len(rows) + 1


def test_the_largest_save() -> None:
    """The published bounds: 65.5 TB, 33 s at the sustained rate, 9.4 s at the peak."""
    largest = save(STORE, 16_384 * 4 * 10**9)
    assert largest.size_bytes == 65_536 * 10**9
    assert largest.sustained_s == pytest.approx(32.77, abs=0.01)
    assert largest.peak_s == pytest.approx(9.36, abs=0.01)
    assert largest.requests - largest.pieces == 2 * 16_384 + 1
    assert largest.shards * 10_000 * largest.peak_s >= largest.requests > (largest.shards - 1) * 10_000 * largest.peak_s


def test_the_interval_is_youngs_or_a_little_less() -> None:
    """2,048 hosts at 4 failures in 1,000 host-days: one in 2.9 hours."""
    largest = save(STORE, 16_384 * 4 * 10**9)
    young = math.sqrt(2 * largest.sustained_s * 86_400_000 / (2_048 * 4))
    assert 0.9 * young < largest.interval_s < young
    assert largest.day_bytes == pytest.approx(86_400 / (largest.interval_s + 32.77) * 65.536e12 * 15 / 9, rel=1e-3)


def test_the_typical_save_is_the_mean_of_its_law() -> None:
    """1. By the formula. 2. By a sum over the law. 3. Equal sizes are their own mean."""
    steps = 10_000
    summed = sum(10**6 * 4_000 ** ((step + 0.5) / steps) for step in range(steps)) / steps * 16_384
    assert typical_bytes(STORE) == pytest.approx(summed, rel=1e-4)
    assert typical_bytes(STORE.but(smallest_bytes=7, largest_bytes=7)) == 7 * 16_384


def test_upkeep() -> None:
    """1. 30 outages a day, 3 of which lose 25.6 TB; each byte is made of nine. 2. Twice the servers of the same size
    have twice the work, at twice the rate: the same part. 3. Without failures there is none."""
    kept = upkeep(STORE)
    assert (kept.outages, kept.lost_servers) == pytest.approx((30, 3))
    assert kept.server_repair_bytes == 256 * 10**12
    assert kept.server_repair_s == pytest.approx(256e12 / 0.2e12)
    twice = upkeep(STORE.but(servers=15_000, capacity_bytes=2 * STORE.capacity_bytes, sustained_bytes_s=4 * 10**12))
    assert twice.traffic_share == pytest.approx(kept.traffic_share)
    quiet = upkeep(STORE.but(server_outages_per_thousand_days=0.0, disk_failures_a_year=0.0))
    assert quiet.traffic_share == quiet.busy_share == 0
    assert overhead(STORE) == pytest.approx(5 / 3)


def test_a_fan_beats_reading_by_all() -> None:
    spread = fan(STORE)
    assert spread.by_rank_s == pytest.approx(8 * spread.by_host_s)
    assert spread.fanned_s < spread.by_host_s / 10
    assert spread.hops == 12
    assert fan(STORE.but(hosts=1)).hops == 1
