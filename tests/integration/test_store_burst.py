"""Processes that save in step, beside one that reads, through a real broker. The figures are `bench/burst.py`'s."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.burst import burst, places

from trainmaster.core.storage.classes import Policy
from trainmaster.storage.admission.client import Asking
from trainmaster.storage.admission.talk import Open

pytestmark = pytest.mark.real

POLICY = Policy(checkpoint_percent=70, data_percent=25, code_percent=5, window_bytes=16 << 20, quantum_bytes=8 << 20)
BROKER = """
import sys, threading
from pathlib import Path
from trainmaster.core.storage.classes import Policy
from trainmaster.storage.admission.broker import Broker

broker = Broker.first(Path(sys.argv[1]), Policy(window_bytes=16 << 20))
print("serves", flush=True)
threading.Event().wait()
"""


def test_sixty_four_writers_and_a_reader(tmp_path: Path) -> None:
    """1. 64 processes write 4 MiB each in step while another one reads. 2. All is written as it should be, through the
    broker. 3. The report counts all, and the reader was not starved."""
    with places(str(tmp_path), 4 << 20, 32 << 20) as (root, memory):
        found = burst(root, memory, "step-1", 64, POLICY)
    assert found.free == ()
    assert found.report is not None
    assert (found.report.writers, found.report.moved_bytes, found.report.unfinished) == (64, 256 << 20, ())
    assert found.report.makespan <= found.makespan_s * 1e6
    assert found.data_share > 0.1


def test_the_broker_is_killed_in_the_middle(tmp_path: Path) -> None:
    """1. The broker is a process of its own, and has admitted a part of a save. 2. It is killed. 3. All writers save
    nevertheless, whole, and those who were not done say that they went on without it."""
    with places(str(tmp_path), 4 << 20, 32 << 20) as (root, memory):
        command = [sys.executable, "-c", BROKER, str(root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline() == "serves\n"
            with ThreadPoolExecutor(1) as aside:
                saving = aside.submit(burst, root, memory, "step-1", 64, None, ask=True)
                while not saving.done() and not list(root.glob("step-1/*")):
                    time.sleep(0.001)
                broker.kill()
                found = saving.result(timeout=120)
    assert found.free
    assert all(why.startswith(("the broker answers no more", "no broker answers")) for why in found.free)
    with Asking.of(root, Open(writer="later", kind="data")) as asking:
        assert asking.free
