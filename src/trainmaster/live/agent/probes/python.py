"""A fresh interpreter starts and computes."""

import subprocess
import sys

from trainmaster.live.agent.paths import HostPaths


def probe(paths: HostPaths) -> str:
    command = [sys.executable, "-I", "-c", "print(6 * 7)"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=15, check=False)
    if ended.returncode == 0 and ended.stdout.strip() == b"42":
        return ""
    words = ended.stderr.decode(errors="replace").strip().splitlines()
    return f"{sys.executable} ended with {ended.returncode}: {words[-1] if words else 'it said nothing'}"
