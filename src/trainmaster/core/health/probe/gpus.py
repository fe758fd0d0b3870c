"""What GPUs say of themselves, in the form of `nvidia-smi -q`: fields for their identity, and their NVLinks.

Everything else of it is judged by the reader of that form. A link that is off while others of its GPU run is a suspect
and no more: bridges and some boards leave links unused by design.
"""

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.probe.leaves import claim
from trainmaster.core.health.words import SUSPECT

HEAD: Final = "==============NVSMI LOG=============="
_FIELD: Final = re.compile(r"\s*([A-Z][\w -]*?) : (.*)")


def fields(text: str) -> dict[str, str]:
    """Names and values, whatever section they stand in; of one name the first."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if named := _FIELD.fullmatch(line):
            found.setdefault(named.group(1), named.group(2).strip())
    return found


def links(unit: str, text: str) -> Iterator[Finding]:
    states = {name: value for name, value in fields(text).items() if re.fullmatch(r"Link \d+ State", name)}
    off = [name for name, value in states.items() if value == "Inactive"]
    if off and len(off) < len(states):
        numbers = ", ".join(name.split()[1] for name in off)
        summary = f"NVLink {numbers} is inactive while others of this GPU run"
        yield claim(unit, SUSPECT, "nvlink-state", summary, [f"{name} : {states[name]}" for name in off],
                    ["the same links of its peers"])  # fmt: skip
