"""Xid and SXid lines of the NVIDIA driver: what they name, and how registers decode.

The number alone does not decide. Xid 74 carries seven registers whose bits say what happened and at which end of the
link; 144 to 150 carry a sub-unit, a severity and registers that match one row of the vendor's sheet in one of two
layouts; 154 is the driver's own opinion about what to do, and its newest word per GPU counts; 45 may name the Xid that
it cleans up after. What decodes to no row stays undecoded: watch, keep the raw line.
"""

import re
from typing import Final, NamedTuple

from trainmaster.core.health.fold import Signal
from trainmaster.core.health.policy import Bits, Index, Mask, Row
from trainmaster.core.health.unit import function, gpu
from trainmaster.core.health.words import REBOOT, RESET, WATCH, Answer

_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-[^)]{1,40})?\): (\d{1,5})\b,?")
_SXID: Final = re.compile(
    r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,6}), ?(Non-fatal|Fatal|Data \{|Severity \d)?", re.IGNORECASE
)
_ENGINE: Final = re.compile(r"GPC (\d+), TPC (\d+)")
_PID: Final = re.compile(r"pid='?(\d+)")
_CAUSE: Final = re.compile(r"caused by previous Xid (\d+)")
_REGION: Final = re.compile(
    r"\b(?:FBPA|partition)[ :]*(\d+).{0,20}?sub-?partition[ :]*(\d+)|bank[ :]*(0x[0-9a-f]+|\d+)", re.IGNORECASE
)
_ACTION: Final = re.compile(r"changed from .*? to 0x[0-9a-fA-F]+ \(([^)]*)\)")
_LINK_REGISTERS: Final = re.compile(r"link (\d+)\s*\(((?:0x[0-9a-fA-F]+(?:, ?)?)+)\)")
_NVLINK5: Final = re.compile(
    r"([A-Z][A-Z0-9_]+(?: Degraded)?)\s+(Fatal|Nonfatal|Non-fatal)\s.{0,20}?Link (-?\d+) \(((?:0x[0-9a-fA-F]+ ?)+)\)"
)
_DETAILS: Final = {13: _ENGINE, 45: _CAUSE, 154: _ACTION, 74: _LINK_REGISTERS}
_REMEMBERED: Final = 4096

ACTIONS: Final[dict[str, str]] = {
    "none": "none", "gpu reset required": "reset", "reset": "reset", "gpu reset": "reset", "reset required": "reset",
    "node reboot required": "reboot", "reboot": "reboot", "drain p2p": "drain-p2p",
    "drain and reset": "drain-and-reset",
}  # fmt: skip
"""What drivers and tools call the recovery action of a GPU."""


def action_of(text: str) -> str:
    """`none`, `reset`, `reboot`, `drain-p2p`, `drain-and-reset`; `unknown` for words nobody knows."""
    return ACTIONS.get(" ".join(text.lower().replace("_", " ").split()), "unknown")


def action_answer(action: str) -> Answer:
    """The answer to an action that is not none."""
    return REBOOT if action == "reboot" else WATCH if action == "unknown" else RESET


class Decoded(NamedTuple):
    """What registers mean."""

    row: Row | None
    """None: no row matches."""
    sub_unit: str
    layout: str
    link: str
    now: str
    blames_peer: bool
    answer: Answer


class Xids:
    """Reads messages with an Xid. What one means is remembered by what its patterns found, so that a copy of it from
    another process is the same signal."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._known: dict[tuple[str, str, str | None], tuple[Signal, ...]] = {}
        """By address, code and detail; None: the code has none."""

    def signals(self, body: str) -> tuple[Signal, ...]:
        """The signals of a message; none if it is none of an Xid."""
        found = _XID.search(body)
        if found is None:
            return ()
        address, code = found.groups()
        plain = self._known.get((address, code, None))
        if plain is not None:
            return plain
        detail = self._detail(int(code), body[found.end() : found.end() + 600])
        key = (address, code, detail)
        signals = self._known.get(key)
        if signals is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            signals = self._known[key] = (self._signal(int(code), gpu(address), detail or ""),)
        return signals

    def _detail(self, code: int, rest: str) -> str | None:
        """What of a message decides besides its code; None: nothing does."""
        pattern = _DETAILS.get(code)
        if pattern is None and 144 <= code <= 150:
            pattern = _NVLINK5
        if pattern is None:
            kinds = self._kinds(code)
            if not kinds & {"region", "job"}:
                return None
            pattern = _REGION if "region" in kinds else _PID
        found = pattern.search(rest)
        return found.group() if found else ""

    def _kinds(self, code: int) -> set[str]:
        """Sub-parts that a repeat of this code asks for."""
        rules = [f"xid-{code}", *(["xid-48"] if code in (171, 172) else [])]
        return {repeat.same for rule in rules for repeat in self._index.row(rule).repeats}

    def _signal(self, code: int, unit: str, detail: str) -> Signal:
        rule = f"xid-{code}"
        if code == 13:
            engine = _ENGINE.search(detail)
            return Signal(rule, unit, part=("engine", f"GPC {engine[1]} TPC {engine[2]}") if engine else None)
        if code == 45:
            return Signal(rule, unit, fact=detail.rpartition(" ")[2])
        if code == 154:
            action = _ACTION.search(detail)
            return Signal(rule, unit, fact=action_of(action.group(1)) if action else "unknown")
        if code == 74 or 144 <= code <= 150:
            decoded = decode(code, detail, self._index)
            part = ("link", decoded.link) if decoded.link else None
            return Signal(rule, unit, f"{decoded.sub_unit}|{decoded.now}|{decoded.layout}", part, fact=detail)
        if "region" in self._kinds(code):
            return Signal(rule, unit, part=("region", detail.lower()) if detail else None)
        pid = _PID.search(detail)
        return Signal(rule, unit, part=("job", pid.group(1)) if pid else None)


def sxid_signal(body: str) -> Signal | None:
    """The signal of an NVSwitch message. Lines with data or severity of another line add nothing."""
    found = _SXID.search(body)
    if found is None:
        return None
    word = (found.group(3) or "").lower()
    if word.startswith(("data", "severity")):
        return None
    return Signal(f"sxid-{found.group(2)}", f"nvswitch {function(found.group(1))}", variant=word)


def decode(code: int, rest: str, index: Index) -> Decoded:
    """What the registers of an NVLink Xid say."""
    return _decode_74(rest, index) if code == 74 else _decode_nvlink5(code, rest, index)


def _decode_74(rest: str, index: Index) -> Decoded:
    found = _LINK_REGISTERS.search(rest)
    if found is None:
        return Decoded(None, "", "", "", "UNDECODABLE", False, WATCH)
    registers = [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", found.group(2))]
    rows: list[Bits] = [
        row
        for row in index.policy.bits
        if row.register <= len(registers) and any(registers[row.register - 1] >> bit & 1 for bit in row.bits)
    ]
    if not rows:
        return Decoded(None, "", "", found.group(1), "UNDECODABLE", False, WATCH)
    row = max(rows, key=lambda each: each.answer.rank)
    return Decoded(row, f"register {row.register}", "", found.group(1), row.means, row.blames == "peer", row.answer)


def _decode_nvlink5(code: int, rest: str, index: Index) -> Decoded:
    found = _NVLINK5.search(rest)
    if found is None:
        return Decoded(None, "", "", "", "UNDECODABLE", False, index.row(f"xid-{code}").answer)
    sub_unit, severity, link, words = found.groups()
    registers = [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", words)]
    first, status = registers[0] & 0xFFFFFFFF, registers[1] if len(registers) > 1 else 0
    fits: list[tuple[Mask, str]] = []
    for mask, layout, care, want in index.masks.get(code, ()):
        known = sub_unit in mask.sub_unit.split("/") or mask.sub_unit.split("/")[0].startswith(sub_unit)
        if known and first & care == want and (not mask.status or status in mask.status):
            fits.append((mask, layout))
    if not fits:
        answer = index.row(f"xid-{code}").answer if severity == "Fatal" else WATCH
        return Decoded(None, sub_unit, "", link, "UNDECODABLE", False, answer)
    mask, layout = fits[0]
    answer, now = mask.answer, mask.now
    bit = mask.reset_bit_v1 if layout == "V1" else mask.reset_bit_v2
    if bit >= 0 and first >> bit & 1:
        answer, now = RESET, "RESET_GPU"
    return Decoded(mask, mask.sub_unit, layout, link, now, mask.later == "INVESTIGATE_PEER_DEVICE", answer)
