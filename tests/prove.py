"""`make prove [NAME=x]`: the same tests with their full counts; each proof writes build/prove/NAME.json.

A proof is a set of tests and the counts that they read from the environment. `make test` runs a few of each; this runs
all: hours of simulated faults, a crash at every single write, dozens of real kills.
"""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "prove"

PROOFS: dict[str, tuple[dict[str, str], list[str]]] = {
    "seeds": ({"TRAINMASTER_SEEDS": "1000"}, ["tests/sim/test_seeds.py", "tests/sim/test_broken_policies.py"]),
    "maintenance_seeds": (
        {"TRAINMASTER_MAINTENANCE_SEEDS": "1000"},
        ["tests/sim/test_maintenance_seeds.py", "tests/sim/test_broken_planner.py"],
    ),
    "health_seeds": (
        {"TRAINMASTER_HEALTH_SEEDS": "200"},
        ["tests/sim/test_health_seeds.py", "tests/sim/test_broken_health.py"],
    ),
    "every_step": ({"TRAINMASTER_STEP_STRIDE": "1"}, ["tests/faults/test_every_step.py"]),
    "random_kills": ({"TRAINMASTER_RANDOM_KILLS": "50"}, ["tests/faults/test_random_kills.py"]),
    "server_kills": ({"TRAINMASTER_SERVER_KILLS": "20"}, ["tests/integration/test_server_kills.py"]),
    "rollout_evidence": ({"TRAINMASTER_ROLLOUTS": "200"}, ["tests/unit/core/maintenance/test_rollout_evidence.py"]),
    "twin_rollouts": ({"TRAINMASTER_TWIN_ROLLOUTS": "200"}, ["tests/twin/test_rollouts.py"]),
    "interval": (
        {"TRAINMASTER_INTERVAL_SEEDS": "200"},
        [
            "tests/twin/test_saving.py",
            "tests/unit/core/checkpoint/test_choice.py",
            "tests/unit/core/checkpoint/test_interval.py",
            "tests/unit/core/checkpoint/test_rate.py",
            "tests/unit/core/recovery/test_pacing.py",
        ],
    ),
    "domain_cost": ({"TRAINMASTER_DOMAIN_SEEDS": "5"}, ["tests/twin/test_domain_cost.py"]),
    "group_check": ({"TRAINMASTER_GROUP_CHECKS": "20"}, ["tests/integration/test_verification_group.py"]),
    "deep_check": ({"TRAINMASTER_DEEP_CHECKS": "20"}, ["tests/integration/test_verification_deep.py", "-m", "not gpu"]),
    "lemons": (
        {"TRAINMASTER_LEMON_SEEDS": "200", "TRAINMASTER_SICK_SEEDS": "40"},
        ["tests/twin/test_lemons.py", "tests/twin/test_sick.py"],
    ),
    "numerics": ({"TRAINMASTER_NUMERICS_STEPS": "150"}, ["tests/unit/training/test_numerics_loss.py"]),
    "vault_kills": ({"TRAINMASTER_VAULT_KILLS": "48"}, ["tests/integration/test_vault_stores.py"]),
    "hangs": (
        {"TRAINMASTER_HANGS": "8"},
        ["tests/integration/test_house_diagnosis.py", "tests/integration/test_house_hangs.py"],
    ),
    "data": (
        {"TRAINMASTER_LOADER_JOBS": "2000", "TRAINMASTER_DATA_LIVES": "20"},
        ["tests/unit/training/test_loader.py", "tests/integration/test_training_data.py"],
    ),
    "training": (
        {"TRAINMASTER_SAVE_KILLS": "20"},
        ["tests/integration/test_training_resume.py", "tests/integration/test_training_faults.py"],
    ),
}

ALONE = frozenset(
    {"data", "hangs", "server_kills", "random_kills", "training", "vault_kills", "group_check", "deep_check"}
)
"""Proofs with real processes, which have the machine for themselves."""


def prove(name: str) -> bool:
    """Runs one proof; True if all its tests passed and none was skipped."""
    counts, arguments = PROOFS[name]
    OUT.mkdir(parents=True, exist_ok=True)
    report = OUT / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", *arguments, f"--junit-xml={report}", "-o", "timeout=3600"]
    command += [] if name in ALONE else ["-n", "2"]
    start = time.monotonic()
    sys.stdout.write(f"{name}: {' '.join(f'{k}={v}' for k, v in counts.items())} pytest {' '.join(arguments)}\n")
    sys.stdout.flush()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **counts}, check=False)
    suite = next(iter(ET.parse(report).getroot().iter("testsuite")))
    numbers = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    proved = done.returncode == 0 and numbers["tests"] > 0 and numbers["skipped"] == 0
    result = {
        "name": name,
        "proved": proved,
        "counts": counts,
        **numbers,
        "seconds": round(time.monotonic() - start, 1),
    }
    (OUT / f"{name}.json").write_text(json.dumps(result) + "\n")
    sys.stdout.write(json.dumps(result) + "\n")
    return proved


def main() -> int:
    names = sys.argv[1:] or list(PROOFS)
    unknown = [name for name in names if name not in PROOFS]
    if unknown:
        sys.stderr.write(f"no proof is named {unknown[0]!r}; there are {', '.join(PROOFS)}\n")
        return 2
    results = [prove(name) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
