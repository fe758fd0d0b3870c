"""The policy of health as data: what each code, text and limit means here.

Catalogues of vendors and tools disagree (Xid 63 is "ignore", "reboot", "warn" or "fail", depending on whom one asks),
they age, and sites want their own lines. So every answer is a row of a file (`live/health/policy.toml`), a site may
replace rows by a file of its own, and a row on which sources disagree states them and why it was settled so. Code only
knows how to read signals and how they relate; which signal means what stands in the rows.

Rows of the kernel log:

    [[xid]]  [[sxid]]   numbered codes of GPUs and NVSwitches
    [[nvlink]]          bits of Xid 74, and the masks of Xid 144 to 150
    [[text]]            everything else: a regular expression, the kind of its unit, an answer

A row may have *repeats*: so many incidents within a time, on the same part, change the answer. `counts_as` folds the
spellings of one event into one incident.
"""

import re
from collections.abc import Mapping
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.health.finder import Finder
from trainmaster.core.health.words import WATCH, Answer

Role = str
ROLES: Final = ("cause", "follow", "decode", "detail", "clears")
"""cause: speaks for itself. follow: another record decides. decode: its registers do. detail: belongs to another
record. clears: ends another one."""

UNIT_KINDS: Final = ("gpu", "nic", "pcie", "nvswitch", "disk", "fs", "dimm", "cpu", "link", "port", "host", "job",
                     "driver")  # fmt: skip


class Repeat(Value):
    """A different answer for what comes again."""

    at_least: int
    within_us: int
    answer: Answer
    why: str
    next: tuple[str, ...] = ()
    """What to look at then, instead of what the row says."""
    same: str = ""
    """What must be the same besides the unit: `engine`, `link`, `region`, `boot`; empty: nothing more."""


class Row(Value):
    """What all rows have."""

    means: str
    answer: Answer
    repeats: tuple[Repeat, ...] = ()
    next: tuple[str, ...] = ()
    """What evidence would tell more."""
    sources: str = ""
    """What others say, where they disagree."""
    because: str = ""
    """Why it was settled so."""


class Code(Row):
    """Codes of one answer: Xids or SXids."""

    codes: tuple[int, ...]
    role: Role = "cause"
    clears: tuple[int, ...] = ()
    """Codes that this one ends, on the same unit."""
    echo_of: tuple[int, ...] = ()
    """Xids of the same host that explain this one if they came shortly before."""


class Text(Row):
    """A line of the kernel or of a daemon. The pattern may name the groups `unit`, `host`, `count`, `driver`."""

    id: str
    contains: str
    """A literal that every such line has; found first, because a pattern costs fifty times as much."""
    pattern: str
    kind: str
    """Of the unit; `driver` takes it from the group of this name."""
    kernel: bool = False
    """Only the kernel says so: what a program writes, or a sentence that quotes it, does not count."""
    role: Role = "cause"
    then: str = ""
    """A pattern that one of the next lines must have, by order and not by time: a frame of the stack that follows."""
    joins: tuple[str, ...] = ()
    """Rows of the same host that make this one's answer theirs, and become its echoes."""
    counts_as: str = ""
    """The row whose incident this is another spelling of: `xid-79`."""
    clears: tuple[str, ...] = ()
    echo_of: tuple[str, ...] = ()
    """Rows of the same host that explain this one if they came shortly before."""


class Bits(Row):
    """Bits of one register of Xid 74."""

    register: int
    bits: tuple[int, ...]
    blames: str = ""


class Mask(Row):
    """A row of the decoding of Xid 144 to 150. The answer is that of the vendor's present column."""

    xid: int
    sub_unit: str
    mask_v1: str
    mask_v2: str
    status: tuple[int, ...]
    """Values of the second register; empty: any."""
    now: str
    later: str
    reset_bit_v1: int = -1
    reset_bit_v2: int = -1


class Counter(Row):
    """A counter of sysfs that tells by how much it grew. The pattern names the group `unit`, and `number` for ports."""

    id: str
    path: str
    """Of the whole path, below /sys."""
    kind: str
    at_least: int
    within_us: int
    """It has to grow so much within this time; 0: since the counter began, at each boot."""
    bits: int = 0
    """It stays at its maximum of so many bits; 0: it never does."""


class Limits(Value):
    """Numbers that rules of code need."""

    burst_us: int = 60_000_000
    """Lines of one code that are closer than this are one burst."""
    incident_us: int = 3_600_000_000
    """Bursts that are closer than this are one incident."""
    echo_us: int = 60_000_000
    """How long after its cause an echo comes."""
    early_us: int = 10_000_000
    """How long before it: a switch may miss a GPU before the driver does."""
    stuck_us: int = 600_000_000
    """How long after a GPU error a hung task is taken for its consequence."""
    near_lines: int = 60
    """The same in lines, where lines have no stamps or belong together by order."""
    soft_lockup_s: float = 120.0
    """A processor that is stuck longer does not come back."""
    corrected_storm: int = 20_000_000
    """Corrected memory errors since the driver was loaded."""
    corrected_storm_per_s: float = 100.0
    dimm_storm: int = 10
    """Corrected errors of one DIMM in one log."""
    crc_errors: int = 100
    """CRC errors of one NVLink since they were last cleared."""
    retired_pages: int = 60
    """Pages of one GPU, of those generations that retire pages."""
    evidence_lines: int = 12
    folds_per_host: int = 512
    """Different faults of one host that are told apart."""


class Policy(Value):
    version: str
    xids: tuple[Code, ...]
    sxids: tuple[Code, ...]
    texts: tuple[Text, ...]
    bits: tuple[Bits, ...]
    masks: tuple[Mask, ...]
    counters: tuple[Counter, ...] = ()
    limits: Limits = Limits()


_GPUS: Final = "gpu"
_OF_GPUS: Final = ("xid-", "sxid-", "aer-", "hung-task")
"""Rules that code relates to each other, besides what rows say."""
OWN: Final = ("NVRM: Xid (", "SXid (", "NVRM: The NVIDIA GPU ", "Linux version ", "-- Boot ", "-- Reboot --")
"""Literals of lines that code reads, not rows."""

UNLISTED: Final = Code(
    codes=(),
    means="a code that no row of the policy names",
    answer=WATCH,
    next=("look the code up in the vendor's catalogue, and add a row",),
)


class Index:
    """A policy made ready for looking things up. Costs a few milliseconds, so it is made once."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.limits = policy, policy.limits
        self.rows: dict[str, Row] = {}
        self.xids = {code: row for row in policy.xids for code in row.codes}
        self.sxids = {code: row for row in policy.sxids for code in row.codes}
        self.rows.update({f"xid-{code}": row for code, row in self.xids.items()})
        self.rows.update({f"sxid-{code}": row for code, row in self.sxids.items()})
        self.rows.update({row.id: row for row in policy.texts})
        self.rows.update({row.id: row for row in policy.counters})
        self.counters = [(re.compile(row.path), row) for row in policy.counters]
        self.literals: dict[str, list[tuple[Text, re.Pattern[str], re.Pattern[str] | None]]] = {}
        """By literal, in the order of the file: the first row that fits a line has it."""
        for row in policy.texts:
            then = re.compile(row.then) if row.then else None
            self.literals.setdefault(row.contains, []).append((row, re.compile(row.pattern), then))

        self.finder = Finder((*OWN, *self.literals))
        self.enders = frozenset({"xid-154", *(name for name, row in self.rows.items() if _ends_others(row))})
        self._families = _families(self.rows)

        self.masks: dict[int, list[tuple[Mask, str, int, int]]] = {}
        """By Xid: the row, the layout of the register, which of its bits count, and what they must be."""
        for mask in policy.masks:
            for layout, text in (("V1", mask.mask_v1), ("V2", mask.mask_v2)):
                care = int(re.sub("[01]", "1", text).replace("-", "0"), 2)
                bit = mask.reset_bit_v1 if layout == "V1" else mask.reset_bit_v2
                care &= ~(1 << bit) if bit >= 0 else -1  # it changes the answer, not the row
                self.masks.setdefault(mask.xid, []).append((mask, layout, care, int(text.replace("-", "0"), 2) & care))

    def family(self, rule: str) -> str:
        """Rules that may be related to each other have the same family."""
        return self._families.get(rule, self._families[_GPUS])

    def row(self, rule: str) -> Row:
        """The row of a rule; of a code that nobody listed, the one that says so. Raises `KeyError` for other rules."""
        if rule not in self.rows and rule.startswith(("xid-", "sxid-")):
            return UNLISTED
        return self.rows[rule]


def _ends_others(row: Row) -> bool:
    return isinstance(row, Code | Text) and (row.role == "clears" or bool(row.clears))


def _families(rows: Mapping[str, Row]) -> dict[str, str]:
    """Rules by family: what a row names is of its family, and all that comes from GPUs and their links is one."""
    above = {rule: rule for rule in (*rows, _GPUS)}

    def top(rule: str) -> str:
        while above[rule] != rule:
            rule = above[rule]
        return rule

    for rule, row in rows.items():
        named = [_GPUS] if rule.startswith(_OF_GPUS) else []
        if isinstance(row, Text):
            named += [*row.echo_of, *row.joins, *row.clears, *([row.counts_as] if row.counts_as else [])]
        for other in named:
            if other in above:
                above[top(rule)] = top(other)
    return {rule: top(rule) for rule in above}
