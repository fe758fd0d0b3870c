"""The picture of what a domain size costs."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.fakes.command import CommandLine

from trainmaster.cli.maint_domain_size_picture import HEIGHT, WIDTH, svg
from trainmaster.core.base.time import HOUR, MINUTE, Duration
from trainmaster.core.maintenance.domain_size import GangClass, SizeModel, best, cost, sizes_around
from trainmaster.twin.domain_cost import LivedSize

NAME = "{http://www.w3.org/2000/svg}"


def model(hosts: int, gang_hosts: int, **more: object) -> SizeModel:
    made = SizeModel(
        hosts=hosts,
        gangs=(GangClass(hosts=gang_hosts),),
        cycle=Duration(720 * HOUR),
        lost=Duration(15 * MINUTE),
        stop=Duration(2 * HOUR),
    )
    return made.but(**more)


def drawn(world: SizeModel, twin: bool) -> ET.Element:
    found = best(world)
    simulated = [lived(world, size) for size in sizes_around(world, found.cost.size)] if twin else []
    return ET.fromstring(svg(world, found, simulated))


def lived(world: SizeModel, size: int) -> LivedSize:
    """As if the twin had been a little dearer than the closed form."""
    expected = cost(world, size)
    total = expected.total_host_h
    return LivedSize(
        size=size,
        seeds=3,
        mean_host_h=1.01 * total,
        low_host_h=0.98 * total,
        high_host_h=1.05 * total,
        interruptions_host_h=expected.interruptions_host_h,
        held_out_host_h=expected.held_out_host_h,
        hits=expected.hits,
        late=Duration(0),
    )


def words(picture: ET.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{NAME}text")]


def curves(picture: ET.Element) -> list[list[tuple[float, float]]]:
    lines = [each.get("points", "").split() for each in picture.iter(f"{NAME}polyline")]
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in line)] for line in lines]


def test_the_curves() -> None:
    """1. Held out rises with the size, interruptions fall, their sum has its lowest point between its ends. 2. The sum
    is drawn where both parts add up."""
    held, interrupted, total = curves(drawn(model(3072, 2048), twin=False))
    assert held[0][1] > held[-1][1]
    assert interrupted[0][1] < interrupted[-1][1]
    lowest = max(y for _, y in total)
    assert max(total[0][1], total[-1][1]) < lowest - 100
    zero = HEIGHT - 68
    for (_, one), (_, other), (_, both) in zip(held, interrupted, total, strict=True):
        assert zero - both == pytest.approx((zero - one) + (zero - other), abs=0.2)


def test_the_words() -> None:
    """1. Title, axes with units, legend, the best size. 2. Simulated is marked, and absent where nothing was."""
    found = best(model(3072, 2048))
    with_twin, without = words(drawn(model(3072, 2048), True)), words(drawn(model(3072, 2048), False))
    for wanted in ("host-hours a cycle", "hosts of a domain (logarithmic)", "share of the fleet", "interruptions"):
        assert wanted in without
    assert any(text.startswith(f"best: {found.cost.size} hosts") for text in without)
    assert [text for text in with_twin if "simulated" in text] == [
        "simulated: mean and range of 3 seeds, one cycle each"
    ]
    assert not [text for text in without if "simulated" in text]


def test_sizes_that_do_not_fit_are_shaded() -> None:
    """1. The cycle forbids small sizes, the buffer large ones. 2. Both are shaded and named; else neither is."""
    free, tight = drawn(model(3072, 2048, stop=Duration(HOUR)), False), drawn(model(3072, 2048, size_limit=60), False)
    assert len(list(tight.iter(f"{NAME}rect"))) == 3
    assert [text for text in words(tight) if "grey" in text] == [
        "◂ grey: stops do not fit into the cycle",
        "grey: above what the buffer lets out ▸",
    ]
    assert len(list(free.iter(f"{NAME}rect"))) == 1


@pytest.mark.parametrize("hosts", [1, 2, 5, 64, 3072, 100_000])
@pytest.mark.parametrize("rest", [False, True])
def test_everything_lies_inside(hosts: int, rest: bool) -> None:
    """Whatever the fleet, all points and words are inside of the picture."""
    picture = drawn(model(hosts, max(1, hosts // 2), rest=rest), twin=True)
    points = [point for curve in curves(picture) for point in curve]
    points += [(float(each.get("x", "nan")), float(each.get("y", "nan"))) for each in picture.iter(f"{NAME}text")]
    points += [(float(each.get("cx", "nan")), float(each.get("cy", "nan"))) for each in picture.iter(f"{NAME}circle")]
    assert points
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_the_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The file is written, once, and named on stderr; the table is on stdout."""
    file = tmp_path / "cost.svg"
    line = CommandLine(tmp_path, monkeypatch)
    ran = line.run(*f"maint domain-size --hosts 96 --job 32x2 --twin --seeds 2 --out {file}".split())
    assert ran.code == 0
    assert ran.err.endswith(f"drawn: {file}\n")
    assert ran.out.startswith("SIZE")
    assert ET.fromstring(file.read_text()).tag == f"{NAME}svg"


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The path is a directory. 2. One sentence, no report of a crash."""
    (tmp_path / "taken.svg").mkdir()
    ran = CommandLine(tmp_path, monkeypatch).run(
        *f"maint domain-size --hosts 9 --job 3 --out {tmp_path}/taken.svg".split()
    )
    assert ran.code == 1
    assert "give a file; this is a directory" in ran.err
