"""One round of probes: ROOT PLAN, and a line of JSON for each thing that begins and ends.

Not for people: `live/agent/health/round.py` starts it, reads it and ends it. PLAN is a list of names with the items
that are left to look at (null: all) and those that are left out. `begin` is written before anything is touched, so that
whoever reads knows what hangs.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from trainmaster.live.agent.health.probes import PROBES
from trainmaster.live.agent.health.probes.declare import Skipped

_MOST_BYTES = 8 * 1024 * 1024


def _say(**words: Any) -> None:
    data = (json.dumps(words) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def _guarded(name: str, item: str, act: Any) -> Any:
    """What `act` gives; None once it was said why there is nothing."""
    _say(begin=name, item=item)
    try:
        return act()
    except Skipped as error:
        _say(end=name, item=item, skipped=str(error))
    except Exception as error:  # noqa: BLE001  whatever a probe raises says that its subject can't be read
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        _say(end=name, item=item, unreadable=why)
    return None


def _probe(root: Path, name: str, items: list[str] | None, left_out: list[str]) -> None:
    module = importlib.import_module(PROBES[name].module)
    if items is None and PROBES[name].kind != "host":
        items = _guarded(name, "", lambda: module.items(root))
        if items is None:
            return
        items = [item for item in items if item not in left_out]
        _say(items=items, of=name)
    for item in items if items is not None else [""]:
        text = _guarded(name, item, lambda item=item: module.look(root, item))
        if text is not None:
            _say(end=name, item=item, text=text[:_MOST_BYTES])
    if hasattr(module, "close"):
        module.close()


def main(arguments: list[str]) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
    root, plan = Path(arguments[0]), json.loads(arguments[1])
    for name, items, left_out in plan:
        _probe(root, name, items, left_out)
    _say(done=True)


if __name__ == "__main__":
    main(sys.argv[1:])
