"""The published interruptions of a run of 16,384 GPUs: what follows from the counts, and what must not be copied."""

import csv
import json
from pathlib import Path

import pytest

from trainmaster.core.base.time import DAY
from trainmaster.core.checkpoint.rate import PUBLISHED_PER_THOUSAND_HOST_DAYS, History, Rate, estimate
from trainmaster.twin.faults import CAUSES

CASE = Path(__file__).parents[1] / "cases" / "96-llama3-interruptions"
SUMMARY = json.loads((CASE / "summary.json").read_text())
NODES = SUMMARY["gpus"] // SUMMARY["gpus_per_node"]
HOST_DAYS = SUMMARY["days"] * NODES
NAMES = {
    "faulty GPU": "faulty GPU", "GPU HBM3": "GPU HBM3", "network switch/cable": "network switch or cable",
    "GPU SRAM": "GPU SRAM", "GPU system processor": "GPU system processor",
}  # fmt: skip


def rows() -> list[dict[str, str]]:
    with (CASE / "causes.csv").open() as file:
        return list(csv.DictReader(file))


def test_rate_and_time_between_interruptions() -> None:
    """1. 419 in 54 days of 2,048 hosts are 3.79 per 1,000 host-days, one in 3.09 h. 2. A history as long as that is
    believed, whatever was published before."""
    rate = Rate(per_host_day=SUMMARY["unexpected"] / HOST_DAYS, failures=419, host_days=HOST_DAYS, source="measured")
    assert rate.per_host_day * 1000 == pytest.approx(3.789, abs=0.001)
    assert 1 / rate.per_s(NODES) / 3600 == pytest.approx(3.093, abs=0.001)
    learnt = estimate(History(failures=SUMMARY["unexpected"], host_time=HOST_DAYS * DAY))
    assert learnt.source == "measured"
    assert learnt.per_host_day == pytest.approx(rate.per_host_day, rel=0.01)
    assert pytest.approx(rate.per_host_day * 1000, rel=0.1) == PUBLISHED_PER_THOUSAND_HOST_DAYS


def test_counts_are_taken_and_not_the_printed_percentages() -> None:
    """1. One printed percentage does not follow from its count: 148 of 419 are 35.3 %, not 30.1. 2. All others do.
    3. The twin draws by counts."""
    total = SUMMARY["unexpected"]
    assert SUMMARY["planned"] + total == SUMMARY["interruptions"]
    wrong = {
        row["cause"]: round(100 * int(row["count"]) / total, 1)
        for row in rows()
        if abs(100 * int(row["count"]) / total - float(row["percent_printed"])) > 0.1
    }
    assert wrong == {"faulty GPU": 35.3}
    weights = {cause.name: cause.weight for cause in CAUSES}
    assert {NAMES[row["cause"]]: int(row["count"]) for row in rows()}.items() <= weights.items()
