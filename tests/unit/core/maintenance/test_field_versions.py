"""Cases from the field on mixed and left-behind versions: `tests/cases/58-...`, `70-...`, `72-...`, `74-...`.

What is read here from logs and tables are the facts; the judgement is that of the core. Beside each case stand others
of its kind: other versions, other hosts, another order, facts that are not known.
"""

import csv
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainmaster.core.base.ids import ComponentName, HostId, JobId
from trainmaster.core.base.time import MINUTE, Instant
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Pin, Rule, Spread
from trainmaster.core.maintenance.compat import agree, broken_rules
from trainmaster.core.maintenance.diagnose import (
    DriverSeen,
    FabricManagerSeen,
    held_jobs,
    judge_driver,
    judge_fabric_manager,
    missed_reboots,
)
from trainmaster.core.maintenance.rebuild import Candidate, RebuildPlan, check_rebuild, place_on_one_version

CASES = Path(__file__).parents[3] / "cases"
REBOOT, MANAGER, MODULES, REBUILD = (
    CASES / "58-one-node-missed-the-reboot",
    CASES / "70-fabric-manager-exact-version",
    CASES / "72-peermem-lost-on-driver-pod-restart",
    CASES / "74-rolling-rebuild-mixes-images",
)
SPREAD = Spread(median=MINUTE, p90=MINUTE, limit=MINUTE)


def table(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


# 58: a host that missed the reboot


def instant(text: str) -> Instant:
    return Instant(round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6))


def failures(sacct: str) -> dict[JobId, tuple[HostId, ...]]:
    """Hosts of the runs that did not complete."""
    rows = [line.split() for line in sacct.splitlines()]
    return {JobId(row[0]): (HostId(row[1]),) for row in rows if row[2:] != ["COMPLETED"]}


def held(squeue: str) -> list[JobId]:
    return [JobId(line.split()[0]) for line in squeue.splitlines() if "requeued held" in line]


def test_58_the_host_that_is_up_and_old() -> None:
    """1. All hosts are up; one booted six weeks before the order. 2. It alone is to be rebooted, and its boot checked.
    3. The held jobs failed there only: they are released, after the reboot."""
    order = json.loads((REBOOT / "order.json").read_text())
    boots: dict[HostId, Instant | None] = {
        HostId(row["node"]): instant(row["boot_time"]) for row in table(REBOOT / "boot.csv")
    }
    [verdict] = missed_reboots(boots, instant(order["reboot_ordered"]), order["reason"])
    assert (verdict.host, verdict.health, verdict.action, verdict.check) == (
        "gpu-017",
        "unhealthy",
        "reboot",
        ("boot",),
    )
    assert verdict.sentence == (
        "it booted 1,053.0 h before the reboot was ordered (config change needs reboot) and runs the old state: reboot"
    )
    failed = failures((REBOOT / "sacct.txt").read_text())
    jobs = held_jobs({job: failed[job] for job in held((REBOOT / "squeue.txt").read_text())}, (verdict,))
    assert (jobs.release, jobs.look) == (("811", "812", "815"), ())


def test_58_others_of_its_kind() -> None:
    """1. Several missed it, in any order: they come in natural order. 2. One that does not tell is unknown, not fine.
    3. One that booted in the moment of the order has followed it. 4. A job that failed on a good host too, or nobody
    knows where, is for a person."""
    order = instant("2024-02-29T12:00")
    boots = {
        HostId("n10"): Instant(order - 1),
        HostId("n2"): Instant(order - 1),
        HostId("n3"): None,
        HostId("n4"): order,
        HostId("n5"): Instant(order + 1),
    }
    verdicts = missed_reboots(boots, order)
    assert [(item.host, item.health) for item in verdicts] == [
        ("n2", "unhealthy"), ("n3", "unknown"), ("n10", "unhealthy")
    ]  # fmt: skip
    ran = {JobId("9"): ("n2", "n10"), JobId("7"): ("n2", "n4"), JobId("10"): (), JobId("8"): ("n3",)}
    jobs = held_jobs({job: tuple(HostId(host) for host in hosts) for job, hosts in ran.items()}, verdicts)
    assert (jobs.release, jobs.look) == (("9",), ("7", "8", "10"))


# 70: fabric manager and driver


def fabric_manager_seen(host: str, has_nvswitch: bool | None, log: str) -> FabricManagerSeen:
    versions = re.search(r"interface version (\S+) don't match with driver version ([\d.]*\d)", log)
    error = re.search(r"cuda runtime error \((\d+)\)", log)
    return FabricManagerSeen(
        host=HostId(host),
        has_nvswitch=has_nvswitch,
        failed=bool(versions) or "FAILURE" in log,
        manager=versions.group(1) if versions else "",
        driver=versions.group(2) if versions else "",
        nothing_to_do="NV_WARN_NOTHING_TO_DO" in log,
        cuda_error=int(error.group(1)) if error else 0,
    )


def test_70_one_failure_counts_and_one_does_not() -> None:
    """1. The NVSwitch host has a fabric manager of the same branch, which is not enough: install the exact version.
    2. The PCIe host has a failed service and is healthy: no fence, disable the service."""
    switches = {row["host"]: row["nvswitch"] == "yes" for row in table(MANAGER / "inventory.csv")}
    first, second = (
        judge_fabric_manager(fabric_manager_seen(host, switches[host], (MANAGER / f"{host}.log").read_text()))
        for host in sorted(switches)
    )
    assert (first.host, first.health, first.action) == ("gpu-001", "unhealthy", "install-matching")
    assert first.sentence == (
        "fabric manager 530.30.02 does not fit driver 530.41.03 (the same branch 530 is not enough): install 530.41.03"
    )
    assert (second.host, second.health, second.action) == ("gpu-002", "healthy", "disable-service")


SEEN = FabricManagerSeen(host=HostId("h"), has_nvswitch=True, failed=False, manager="550.54.14", driver="550.54.14")


@pytest.mark.parametrize(
    ("changes", "health", "action"),
    [
        ({}, "healthy", "none"),
        ({"driver": "550.54.15"}, "unhealthy", "install-matching"),
        ({"driver": "570.1.1", "failed": True}, "unhealthy", "install-matching"),
        ({"has_nvswitch": False, "driver": "570.1.1", "failed": True}, "healthy", "disable-service"),
        ({"has_nvswitch": False}, "healthy", "none"),
        ({"has_nvswitch": False, "cuda_error": 802}, "unhealthy", "find-out"),
        ({"has_nvswitch": None, "failed": True, "nothing_to_do": True}, "unknown", "find-out"),
        ({"nothing_to_do": True, "failed": True}, "unhealthy", "repair"),
        ({"failed": True}, "unhealthy", "find-out"),
        ({"cuda_error": 802}, "unhealthy", "find-out"),
        ({"manager": "", "cuda_error": 802}, "unhealthy", "find-out"),
        ({"manager": ""}, "unknown", "find-out"),
    ],
)
def test_70_others_of_its_kind(changes: dict[str, Any], health: str, action: str) -> None:
    verdict = judge_fabric_manager(SEEN.but(**changes))
    assert (verdict.health, verdict.action) == (health, action)


def test_70_as_a_rule_of_the_catalogue() -> None:
    """1. The rule asks for the same version where there is an NVSwitch. 2. It breaks on the one host only."""

    def component(name: str) -> Component:
        return Component(name=ComponentName(name), duration=SPREAD)

    manager, driver, switch = component("fabric-manager"), component("gpu-driver"), component("nvswitch-firmware")
    pins = [Pin(component=item.name, versions="*") for item in (manager, driver)]
    rule = Rule(when=pins[0], needs=pins[1], same=True, only_with=switch.name)
    catalogue = Catalogue(components=(manager, driver, switch), rules=(rule,))
    versions = {manager.name: "530.30.02", driver.name: "530.41.03"}
    assert len(broken_rules(catalogue, {**versions, switch.name: "96.10"})) == 1
    assert broken_rules(catalogue, versions) == ()


# 72: a driver without some of its modules


def driver_seen(host: str, node: dict[str, Any], gpus_expected: int, pod: str) -> DriverSeen:
    return DriverSeen(
        host=HostId(host),
        gpus=node["gpus"],
        gpus_expected=gpus_expected,
        missing=tuple(re.findall(r"Module (\S+) not found", pod)),
        failing=tuple(re.findall(r"^(\S+): (?!ready=true)", pod, re.MULTILINE)),
        userspace_only="userspace-only install" in pod,
    )


def test_72_a_capability_is_lost_and_no_gpu() -> None:
    """1. All GPUs are there and peer memory is not. 2. The host lacks RDMA to GPUs: modules are built again, or it
    boots; no GPU is swapped. 3. It returns when that works, not when nvidia-smi lists eight GPUs."""
    node = json.loads((MODULES / "node.json").read_text())
    verdict = judge_driver(driver_seen("n1", node, 8, (MODULES / "pod.txt").read_text()))
    assert (verdict.health, verdict.action) == ("degraded", "rebuild-modules")
    assert verdict.lost == verdict.check == ("gpudirect-rdma",)
    assert verdict.sentence == (
        "lost: gpudirect-rdma; 8 of 8 GPUs are there; the driver lacks nvidia-peermem "
        "(it was loaded already, and the installer left out its modules): force their build, or reboot"
    )


@pytest.mark.parametrize(
    ("changes", "health", "action", "lost"),
    [
        ({}, "healthy", "none", ()),
        ({"missing": ("nvidia_peermem",)}, "degraded", "rebuild-modules", ("gpudirect-rdma",)),
        ({"missing": ("nvidia-fs", "gdrdrv")}, "degraded", "rebuild-modules", ("gdrcopy", "gpudirect-storage")),
        ({"missing": ("nvidia-uvm",)}, "unhealthy", "rebuild-modules", ("cuda",)),
        ({"missing": ("nvidia",), "gpus": 0}, "unhealthy", "rebuild-modules", ("gpu",)),
        ({"gpus": 7}, "unhealthy", "repair", ()),
        ({"gpus": 7, "missing": ("nvidia-peermem",)}, "unhealthy", "repair", ("gpudirect-rdma",)),
        ({"failing": ("nvidia-gdrcopy-ctr",)}, "unknown", "find-out", ()),
        ({"missing": ("vendor-extra",)}, "degraded", "rebuild-modules", ("vendor-extra",)),
    ],
)
def test_72_others_of_its_kind(changes: dict[str, Any], health: str, action: str, lost: tuple[str, ...]) -> None:
    """Whatever is lost is to be checked before the host returns."""
    verdict = judge_driver(DriverSeen(host=HostId("h"), gpus=8, gpus_expected=8).but(**changes))
    assert (verdict.health, verdict.action, verdict.lost) == (health, action, lost)
    assert set(lost) <= set(verdict.check)


# 74: a rebuild in batches


def rebuild_plan(plan: dict[str, Any]) -> RebuildPlan:
    return RebuildPlan(
        group=tuple(HostId(host) for host in plan["partition"]),
        batch=plan["batch"],
        drain_first=plan["drain_first"],
        next_state=plan["nextstate"],
    )


def candidates(rows: Iterable[dict[str, str]]) -> list[Candidate]:
    return [Candidate(host=HostId(row["node"]), version=row["image"], free=row["state"] == "idle") for row in rows]


def test_74_the_plan_and_the_job_that_would_be_mixed() -> None:
    """1. The plan has two defects; its group is whole. 2. Job 5 wants four hosts and would get three new and one old:
    it waits. 3. The core's own rule for the hosts of an attempt says the same of them."""
    rows = table(REBUILD / "nodes.csv")
    hosts = [HostId(row["node"]) for row in rows]
    plan = json.loads((REBUILD / "plan.json").read_text())
    defects = check_rebuild(rebuild_plan(plan), hosts)
    assert [(item.key, item.fix) for item in defects] == [
        ("drain_first", "set drain_first to true"),
        ("next_state", "set it to RESUME"),
    ]
    [job] = json.loads((REBUILD / "queue.json").read_text())
    placement = place_on_one_version(candidates(rows), job["nodes"])
    assert placement.hosts == ()
    assert placement.would_mix == {"new": 3, "old": 1}
    assert placement.sentence == "waits for 4 hosts of one version: it would span 3 new and 1 old"
    image = Component(name=ComponentName("image"), duration=SPREAD, job_consistent=True)
    taken = {HostId(row["node"]): {image.name: row["image"]} for row in rows[: job["nodes"]]}
    [mixed] = agree(Catalogue(components=(image,)), taken)
    assert mixed.counts == {"new": 3, "old": 1}


GOOD = RebuildPlan(group=(HostId("n1"), HostId("n2")), batch=1, drain_first=True, next_state="resume")


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"group": ("n2",)}, ["the group lacks n1 of its partition: they keep the old image and take jobs"]),
        ({"group": ("n1", "n2", "n3")}, ["n3 are not in the partition"]),
        ({"group": ("n1", "n2", "n1")}, ["named several times: n1"]),
        ({"batch": 0}, ["a batch of 0 rebuilds nothing"]),
        ({"next_state": ""}, ["nothing leaves a host drained that was drained explicitly"]),
        ({"next_state": "DOWN"}, ["DOWN leaves a host drained that was drained explicitly"]),
    ],
)
def test_74_plans_of_its_kind(changes: dict[str, Any], reasons: list[str]) -> None:
    assert [item.reason for item in check_rebuild(GOOD.but(**changes), (HostId("n1"), HostId("n2")))] == reasons


@pytest.mark.parametrize(
    ("text", "wanted", "hosts", "mix"),
    [
        ("a:2 b:1 c:2", 2, "a c", {}),
        ("a:1 b:2", 1, "b", {}),
        ("a:1 b:2 c:1 d:2", 2, "b d", {}),
        ("a:1 b:1", 3, "", {}),
        ("a:1 b:1 -c:1", 3, "", {}),
        ("a:1 b:1 -c:2 -d:1", 3, "", {"1": 2, "2": 1}),
        ("-c:2 a:1 b:1", 3, "", {"1": 2, "2": 1}),
        ("a:1 b: c:1", 3, "", {"": 1, "1": 2}),
        ("a: b:", 2, "", {}),
    ],
)
def test_74_placements_of_its_kind(text: str, wanted: int, hosts: str, mix: dict[str, int]) -> None:
    """`-c:2` is a host in use. One version or none; what is not known is never placed."""
    order = []
    for word in text.split():
        host, _, version = word.removeprefix("-").partition(":")
        order.append(Candidate(host=HostId(host), version=version, free=not word.startswith("-")))
    placement = place_on_one_version(order, wanted)
    assert (" ".join(placement.hosts), placement.would_mix) == (hosts, mix)
    assert placement.sentence
