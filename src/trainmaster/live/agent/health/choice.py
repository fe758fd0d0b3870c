"""What people choose: probes by name, how many parts there should be."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, get_args

from trainmaster.core.health.part import PartKind
from trainmaster.live.agent.health.probes import PROBES
from trainmaster.ports.errors import UserError

_KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The probes of these names, in the order of the list; without any, all. Raises `UserError`."""
    for name in names:
        if name not in PROBES:
            near = get_close_matches(name, PROBES, 1)
            fix = f"did you mean {near[0]}?" if near else "trainmaster health run --list"
            raise UserError(f"there is no probe {name!r}", f"there are {', '.join(PROBES)}", fix)
    return tuple(name for name in PROBES if name in names or not names)


def counts(text: str) -> dict[PartKind, int]:
    """Kinds and numbers of `gpu=8,nic=9`. Raises `UserError`."""
    found: dict[PartKind, int] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        kind = next((kind for kind in _KINDS if kind == name.strip()), None)
        if kind is None or not number.strip().isdigit():
            raise UserError(
                f"{part!r} is no count of parts", f"kinds are {', '.join(_KINDS)}", "write KIND=NUMBER, such as gpu=8"
            )
        found[kind] = int(number)
    return found
