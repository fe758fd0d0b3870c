"""The kernel's log of this machine, from a line to a host that was repaired: written to `/dev/kmsg`, told by the agent,
judged, drained, remedied, verified, back.

The machine's kernel belongs to all local hosts, so exactly one of them is told to listen to it, and to lines of
programs as well, since a test is one. The other host has a file for its kernel.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.house import House, running, wait

from trainmaster.core.base.ids import HostId
from trainmaster.live.adapters import local

pytestmark = [pytest.mark.real, pytest.mark.slow]
CATALOGUE = Path(__file__).parents[2] / "scenarios" / "local-catalogue.toml"
KMSG = "/dev/kmsg"
H1, H2 = HostId("h1"), HostId("h2")
ACTS = """
[health]

[[health.pool]]
name = "desk"
mode = "act"
level_hosts = 1

[[health.rung]]
remedy = "reset-gpu"
kind = "gpu-reset"

[[health.rung]]
remedy = "reboot"
kind = "reboot"
"""


def write(text: str) -> None:
    """A line of a program, at the highest level; the limit on such lines is by open file."""
    with open(KMSG, "w") as log:
        log.write(f"<0>{text}\n")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    if not os.access(KMSG, os.W_OK) or Path("/proc/sys/kernel/printk_devkmsg").read_text().strip() == "off":
        pytest.skip(f"{KMSG} takes no lines of programs here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(local.KMSG_HOST, H1)
        with running(hosts=2, prepare=lambda state, hosts: f'catalogue = "{CATALOGUE}"\n{ACTS}') as made:
            yield made


def told(house: House, since: int, words: str) -> list[str]:
    return [sentence for sentence in house.sentences(since) if words in sentence]


def test_a_line_drains_repairs_and_returns_the_host(house: House) -> None:
    """1. A line about a GPU is written to the kernel's log: within a second its verdict is in the server's log. 2. The
    host is drained, the GPU reset, the host verified and back. 3. The other host did nothing. 4. The agent gets SIGKILL
    and starts: nothing is told again, and the next line is."""
    bus = f"{os.getpid() % 200 + 16:02x}"
    since = house.index()
    start = time.monotonic()
    write(f"NVRM: Xid (PCI:0000:{bus}:00): 95, pid=7, name=python, Uncontained: FBHUB. RST: Yes, D-RST: No")
    wait("the verdict is known", lambda: told(house, since, f"gpu 0000:{bus}:00 bad"), every_s=0.005)
    assert time.monotonic() - start < 1.0
    reset = local.host_dir(house.state, H1) / "gpu-reset"
    wait("the GPU was reset", reset.exists)
    view = house.wait_host(H1, "is back", lambda view: view.state == "ready" and not view.holds)
    assert view.connected
    assert not (local.host_dir(house.state, H2) / "gpu-reset").exists()
    assert not told(house, since, "h2: kernel-log says bad")
    local.kill_agent(house.state, H1)
    house.wait_host(H1, "is away", lambda view: not view.connected)
    house.wait_host(H1, "is there again", lambda view: view.connected)
    other = f"{int(bus, 16) ^ 1:02x}"
    write(f"NVRM: Xid (PCI:0000:{other}:00): 13, pid=9, name=python, Graphics Exception")
    wait("the next line is told", lambda: told(house, since, f"gpu 0000:{other}:00") or told(house, since, "job "))
    assert len(told(house, since, f"gpu 0000:{bus}:00 bad")) == 1
    assert house.host(H1).state == "ready"


def test_a_local_host_has_a_kernel_log_of_its_own(house: House) -> None:
    """1. A line is appended to the file of a host: its GPU fell off the bus. 2. The host boots anew and is back; after
    the boot the line is not read again."""
    house.settle()
    since = house.index()
    boot = house.host(H2).boot
    log = local.kernel_log(house.state, H2)
    with log.open("a") as file:
        file.write("NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus.\n")
    house.wait_host(H2, "boots", lambda view: view.boot not in ("", boot))
    house.wait_host(H2, "is back", lambda view: view.state == "ready" and view.connected and not view.holds)
    assert len(told(house, since, "gpu 0000:1b:00 bad, reboot")) == 1
