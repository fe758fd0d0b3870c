"""Runs the benches whose name, or one of whose figures' names, begins with the argument."""

import importlib
import json
import sys

import msgspec

BENCHES = (
    "agent",
    "agreement",
    "burst",
    "checkpoint",
    "cli",
    "engine",
    "health",
    "interval",
    "log",
    "mount",
    "planner",
    "recorder",
    "recovery",
    "snapshot",
    "training",
    "twin",
)


ALSO = {"agent": ("health",)}
"""Benches that have figures of another name as well."""


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    names = [name for name in BENCHES if not wanted or wanted.split(".")[0] in (name, *ALSO.get(name, ()))]
    if not names:
        sys.stderr.write(f"no bench is named {wanted!r}; there are {', '.join(BENCHES)}\n")
        return 2
    for name in names:
        for figure in importlib.import_module(f"bench.{name}").figures():
            if "." not in wanted or figure.figure == wanted:
                sys.stdout.write(json.dumps(msgspec.to_builtins(figure)) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
