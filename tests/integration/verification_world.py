"""Eight hosts in one process tree: a bridge, and for each rank a network namespace with a cable to it.

The process runs in a namespace of its own (the test starts it so), imports PyTorch once and forks the ranks; each gives
itself a namespace. None of them has a name, so nothing is left when the processes have ended, however they ended, and
two of these worlds never meet. All cables are shaped to one rate (token bucket, at both ends), so that a clean run
depends on the network and not on who has the processor.

It reads a line of JSON for each check, {"slow": [RANK, ...], "kind": "bandwidth" | "late" | "corrupt" | "silent"}, and
prints the report of rank 0 as a line.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from trainmaster.live.verification.group import Settings, check
from trainmaster.live.verification.wire import Wire

RANKS = 8
MESSAGE_BYTES = 32 << 10
USUAL_MBIT, SLOW_MBIT = 40, 10
LATE_S = 0.008
PATIENCE_S = 1.0
"""Where a rank hangs."""
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def inside(pid: int, *words: str) -> None:
    run("nsenter", "-t", str(pid), "-n", *words)


def shape(rank: int, pid: int, mbit: int) -> None:
    """Both directions of a rank's cable."""
    bucket = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "8kb", "latency", "400ms")
    inside(pid, "tc", "qdisc", "replace", "dev", "cable", *bucket)
    run("tc", "qdisc", "replace", "dev", f"port{rank}", *bucket)


def connect(rank: int, pid: int) -> None:
    run("ip", "link", "add", f"port{rank}", "type", "veth", "peer", "name", "cable", "netns", str(pid))
    run("ip", "link", "set", f"port{rank}", "master", "switch", "up")
    inside(pid, "ip", "address", "add", f"10.77.0.{10 + rank}/24", "dev", "cable")
    for name in ("lo", "cable"):
        inside(pid, "ip", "link", "set", name, "up")
    shape(rank, pid, USUAL_MBIT)


class Late(Wire):
    """Its rank thinks before it sends."""

    def send(self, tensor: Any) -> None:
        time.sleep(LATE_S)
        super().send(tensor)


class Corrupt(Wire):
    """One bit of what its rank sends is another."""

    def send(self, tensor: Any) -> None:
        if tensor.numel() > 1000:
            tensor = tensor.clone()
            tensor[1000] ^= 1 << 17
        super().send(tensor)


class Silent(Wire):
    """Its rank hangs."""

    def send(self, tensor: Any) -> None:
        time.sleep(PATIENCE_S + 0.5)
        raise RuntimeError("woken")

    receive = send


WIRES = {"late": Late, "corrupt": Corrupt, "silent": Silent}


def rank_main(rank: int, orders: int, reports: int) -> None:
    """A rank: gives itself a network, says so, and takes part in checks until its orders end."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if _LIBC.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    os.environ["GLOO_SOCKET_IFNAME"] = "cable"
    torch.set_num_threads(1)
    os.write(reports, b"here\n")
    store: Any = None
    with os.fdopen(orders) as lines:
        for number, text in enumerate(lines):
            if store is None:
                limit = timedelta(seconds=30)
                store = dist.TCPStore("10.77.0.10", 29500, RANKS, rank == 0, limit, wait_for_workers=False)
            order = json.loads(text)
            wire = WIRES.get(order["kind"], Wire) if rank in order["slow"] else Wire
            patience_s = PATIENCE_S if order["kind"] == "silent" else 30.0
            settings = Settings(message_bytes=MESSAGE_BYTES, join_s=30.0, pair_s=patience_s)
            own = dist.PrefixStore(f"check{number}", store)
            found = check(torch, own, rank, RANKS, f"h{rank}", settings, wire=wire)
            if rank == 0:
                assert found is not None
                os.write(reports, msgspec.json.encode(found) + b"\n")
    os._exit(0)


def main() -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    pids, orders = [], []
    read_end, reports = os.pipe()
    for rank in range(RANKS):
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in (*orders, ours, read_end):
                os.close(other)
            rank_main(rank, theirs, reports)
        os.close(theirs)
        pids.append(pid)
        orders.append(ours)
    os.close(reports)
    with os.fdopen(read_end) as told:
        for _ in range(RANKS):
            assert told.readline() == "here\n", "a rank ended"
        for rank, pid in enumerate(pids):
            connect(rank, pid)
        print("ready", flush=True)
        for text in sys.stdin:
            order = json.loads(text)
            narrow = order["slow"] if order["kind"] == "bandwidth" else []
            for rank in narrow:
                shape(rank, pids[rank], SLOW_MBIT)
            for end in orders:
                os.write(end, text.encode())
            print(told.readline(), end="", flush=True)
            for rank in narrow:
                shape(rank, pids[rank], USUAL_MBIT)
    for end in orders:
        os.close(end)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
