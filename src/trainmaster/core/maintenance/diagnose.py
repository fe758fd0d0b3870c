"""What half done upgrades look like on a host, and what to do: a fabric manager that does not fit its driver, a driver
without some of its modules, a reboot that never happened.

In each of them something looks healthy (nvidia-smi lists all GPUs, the host is up) and something looks broken that is
not (the fabric manager of a host without NVSwitch fails, the GPUs of a host without peer memory are fine). So a verdict
is drawn from what was asked of a host beside what it shows, and says three things apart: may jobs use it, what it
lacks, what brings that back. None of them is mended by another try on the same host, and none is a reason to swap a
GPU. What was not observed makes a verdict `unknown`, which keeps a host out as `unhealthy` does.

The lines of logs and tables are read at the edge; here are their facts.
"""

from collections.abc import Mapping
from typing import Final, Literal

from trainmaster.core.base.hostlist import natural_key
from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.version import same_version

NOT_INITIALIZED: Final = 802
"""CUDA: system not yet initialized. On a host with NVSwitch: the fabric manager does not run."""

MODULES: Final = {
    "nvidia": "gpu",
    "nvidia-uvm": "cuda",
    "nvidia-peermem": "gpudirect-rdma",
    "nvidia-fs": "gpudirect-storage",
    "gdrdrv": "gdrcopy",
}
"""What a host loses with a kernel module of its driver."""
_ESSENTIAL: Final = frozenset({"gpu", "cuda"})

Health = Literal["healthy", "degraded", "unhealthy", "unknown"]
"""Degraded: jobs that do without what is lost may use it, once it was let back."""

Action = Literal["none", "disable-service", "install-matching", "rebuild-modules", "reboot", "repair", "find-out"]


class Verdict(Value):
    host: HostId
    health: Health
    action: Action
    sentence: str
    lost: tuple[str, ...] = ()
    """Capabilities that it lacks."""
    check: tuple[str, ...] = ()
    """What must be seen to work before it returns."""


class FabricManagerSeen(Value):
    """What a host shows of its fabric manager."""

    host: HostId
    has_nvswitch: bool | None
    """From the inventory; None: not known."""
    failed: bool
    """The service does not run."""
    manager: str = ""
    driver: str = ""
    """Versions; empty: not known."""
    nothing_to_do: bool = False
    """It ended with NV_WARN_NOTHING_TO_DO: the driver showed it no NVSwitch."""
    cuda_error: int = 0


def judge_fabric_manager(seen: FabricManagerSeen) -> Verdict:
    """On an NVSwitch host it must run in exactly the version of the driver; elsewhere there is nothing for it to do."""
    if seen.has_nvswitch is None:
        sentence = "whether it has NVSwitch is not known, so what its fabric manager shows says nothing"
        return Verdict(host=seen.host, health="unknown", action="find-out", sentence=sentence)
    if not seen.has_nvswitch:
        return _without_nvswitch(seen)
    both = bool(seen.manager and seen.driver)
    if both and not same_version(seen.manager, seen.driver):
        branch, other = seen.manager.partition(".")[0], seen.driver.partition(".")[0]
        same_branch = f" (the same branch {branch} is not enough)" if branch == other else ""
        sentence = (
            f"fabric manager {seen.manager} does not fit driver {seen.driver}{same_branch}: install {seen.driver}"
        )
        return _out(seen.host, "install-matching", sentence)
    if seen.nothing_to_do:
        return _out(seen.host, "repair", "it has NVSwitch, and its driver shows none to the fabric manager")
    if seen.failed or seen.cuda_error:
        shown = f"CUDA fails with {seen.cuda_error}" if seen.cuda_error else "its fabric manager does not run"
        sentence = f"{shown}, and not for its version: look into the log of the fabric manager"
        if not both:
            sentence = f"{shown}; compare the versions of fabric manager and driver, of which one is not known"
        return _out(seen.host, "find-out", sentence)
    if not both:
        sentence = "the versions of fabric manager and driver are not both known"
        return Verdict(host=seen.host, health="unknown", action="find-out", sentence=sentence)
    sentence = f"fabric manager and driver are both {seen.driver}"
    return Verdict(host=seen.host, health="healthy", action="none", sentence=sentence)


def _without_nvswitch(seen: FabricManagerSeen) -> Verdict:
    if seen.cuda_error:
        sentence = f"CUDA fails with {seen.cuda_error}; it has no NVSwitch, so the fabric manager is not the cause"
        return _out(seen.host, "find-out", sentence)
    sentence = "it has no NVSwitch and needs no fabric manager"
    if seen.failed or seen.nothing_to_do:
        sentence = f"{sentence}: that the service fails is harmless; disable it"
        return Verdict(host=seen.host, health="healthy", action="disable-service", sentence=sentence)
    return Verdict(host=seen.host, health="healthy", action="none", sentence=sentence)


def _out(host: HostId, action: Action, sentence: str) -> Verdict:
    return Verdict(host=host, health="unhealthy", action=action, sentence=sentence, check=("fabric",))


class DriverSeen(Value):
    """What a host shows of the modules of its GPU driver."""

    host: HostId
    gpus: int
    gpus_expected: int
    missing: tuple[str, ...] = ()
    """Modules that could not be loaded."""
    failing: tuple[str, ...] = ()
    """Parts of the driver that do not become ready, whatever the reason."""
    userspace_only: bool = False
    """The installer found the driver loaded and left the kernel modules out."""


def judge_driver(seen: DriverSeen) -> Verdict:
    """A missing module costs a capability, never a GPU; all GPUs in nvidia-smi do not show that nothing is missing."""
    lost = tuple(sorted({MODULES.get(_module(name), _module(name)) for name in seen.missing}))
    if seen.gpus < seen.gpus_expected and "gpu" not in lost:
        also = f"; also lost: {', '.join(lost)}" if lost else ""
        sentence = f"{seen.gpus} of {seen.gpus_expected} GPUs are there{also}"
        check = ("gpu", *lost)
        return Verdict(host=seen.host, health="unhealthy", action="repair", sentence=sentence, lost=lost, check=check)
    gpus = f"{seen.gpus} of {seen.gpus_expected} GPUs are there"
    if lost:
        modules = ", ".join(sorted(_module(name) for name in seen.missing))
        cause = " (it was loaded already, and the installer left out its modules)" if seen.userspace_only else ""
        sentence = f"lost: {', '.join(lost)}; {gpus}; the driver lacks {modules}{cause}: force their build, or reboot"
        health: Health = "unhealthy" if _ESSENTIAL.intersection(lost) else "degraded"
        action: Action = "rebuild-modules"
        return Verdict(host=seen.host, health=health, action=action, sentence=sentence, lost=lost, check=lost)
    if seen.failing:
        sentence = f"{gpus}; not ready, and why is not known: {', '.join(sorted(seen.failing))}"
        return Verdict(host=seen.host, health="unknown", action="find-out", sentence=sentence)
    return Verdict(host=seen.host, health="healthy", action="none", sentence=f"{gpus}, no module is missing")


def _module(name: str) -> str:
    """The kernel takes `nvidia_peermem` and `nvidia-peermem` for one."""
    return name.replace("_", "-")


def missed_reboots(boots: Mapping[HostId, Instant | None], ordered: Instant, why: str = "") -> tuple[Verdict, ...]:
    """The hosts that a reboot was ordered for and that have not booted since, or do not tell. Being up proves nothing.

    `boots` has all hosts of the order with the instant of their last boot; None: not known.
    """
    verdicts = []
    for host in sorted(boots, key=natural_key):
        booted = boots[host]
        if booted is None:
            sentence = "when it booted is not known, so it may run what was to be replaced"
            verdicts.append(Verdict(host=host, health="unknown", action="find-out", sentence=sentence, check=("boot",)))
        elif booted < ordered:
            hours = in_seconds(ordered - booted) / 3600
            reason = f" ({why})" if why else ""
            sentence = f"it booted {hours:,.1f} h before the reboot was ordered{reason} and runs the old state: reboot"
            verdicts.append(Verdict(host=host, health="unhealthy", action="reboot", sentence=sentence, check=("boot",)))
    return tuple(verdicts)


class HeldJobs(Value):
    """Jobs that are held after failures; none restarts by itself."""

    release: tuple[JobId, ...]
    """Once the hosts that missed their reboot have booted: all of their failures were there."""
    look: tuple[JobId, ...]
    """They failed elsewhere too, or it is not known where."""


def held_jobs(held: Mapping[JobId, tuple[HostId, ...]], missed: tuple[Verdict, ...]) -> HeldJobs:
    """What becomes of held jobs, by the hosts that they failed on."""
    bad = {verdict.host for verdict in missed if verdict.action == "reboot"}
    release = [job for job, hosts in held.items() if hosts and bad.issuperset(hosts)]
    look = [job for job in held if job not in release]
    return HeldJobs(release=tuple(sorted(release, key=natural_key)), look=tuple(sorted(look, key=natural_key)))
