"""The policy of health, read from the files that ship with the package and from the site's own.

A row of the site takes the place of all rows with one of its codes, or with its id; other rows stay. So a site states
what it wants to be different and nothing else, and new codes of a release reach it. The result is linted as a whole,
since a site's row may name rows that are not its own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from trainmaster.core.base.time import HOUR
from trainmaster.core.health.lint import lint
from trainmaster.core.health.policy import Bits, Code, Counter, Limits, Mask, Policy, Repeat, Text
from trainmaster.core.health.words import UNKNOWN, Answer, parse_answer
from trainmaster.core.maintenance.problem import Problem
from trainmaster.live.tomlfile import Document, Table

SCHEMA: Final = "trainmaster.health-policy/v1"
_SHIPPED: Final = Path(__file__).parent / "policy"
_LARGEST: Final = 2**31
R = TypeVar("R")


def shipped() -> Policy:
    """The policy that comes with the package."""
    policy = Policy(version="", xids=(), sxids=(), texts=(), bits=(), masks=())
    for name in ("xid", "sxid", "nvlink", "text", "host", "counter"):
        policy, _ = _over(policy, _SHIPPED / f"{name}.toml")
    return policy


def load(site: Path | None = None) -> Policy:
    """The shipped policy with the rows of the site's file. Raises `trainmaster.live.tomlfile.FileError`."""
    policy = shipped()
    if site is None:
        return policy
    policy, document = _over(policy, site)
    of_file = {"xid": len(policy.xids), "sxid": len(policy.sxids), "text": len(policy.texts)}
    for table in of_file:
        of_file[table] -= len(document.root.tables(table))  # rows of the site stand behind those that stayed
    for problem in problems(policy):
        if problem.severity == "error":
            document.note(_in_file(problem.path, of_file), f"{problem.place}: {problem.reason}", problem.fix)
    document.finish()
    return policy


def _in_file(path: tuple[str | int, ...], before: dict[str, int]) -> tuple[str | int, ...]:
    """Where a row stands in the site's file; of a shipped row only that the policy is meant."""
    if len(path) < 2 or not isinstance(path[1], int) or path[0] not in before:
        return path
    place = path[1] - before[str(path[0])]
    return (path[0], place, *path[2:]) if place >= 0 else ()


def problems(policy: Policy) -> tuple[Problem, ...]:
    return lint(policy)


def _over(base: Policy, file: Path) -> tuple[Policy, Document]:
    """The policy with the rows of a file in place of its own."""
    document = Document(file, "health policy")
    root = document.root
    document.check_schema(SCHEMA)
    version = root.text("version", "")
    policy = Policy(
        version="+".join(part for part in (base.version, version) if part),
        xids=_replaced(base.xids, _rows(root, "xid", _code), lambda row: frozenset(row.codes)),
        sxids=_replaced(base.sxids, _rows(root, "sxid", _code), lambda row: frozenset(row.codes)),
        texts=_replaced(base.texts, _rows(root, "text", _text), lambda row: frozenset((row.id,))),
        bits=_rows(root, "nvlink_bits", _bits) or base.bits,
        masks=_rows(root, "nvlink_mask", _mask) or base.masks,
        counters=_replaced(base.counters, _rows(root, "counter", _counter), lambda row: frozenset((row.id,))),
        limits=_limits(root, base.limits),
    )
    root.finish()
    document.finish()
    return policy, document


def _rows(root: Table, key: str, read: Callable[[Table], R]) -> tuple[R, ...]:
    rows = []
    for table in root.tables(key):
        rows.append(read(table))
        table.finish()
    return tuple(rows)


def _replaced(
    old: Sequence[R], new: Sequence[R], names: Callable[[R], frozenset[int] | frozenset[str]]
) -> tuple[R, ...]:
    """The old rows without what the new ones name, then the new ones."""
    named = {name for row in new for name in names(row)}
    kept = []
    for row in old:
        left = [name for name in names(row) if name not in named]
        if isinstance(row, Code) and left and len(left) < len(row.codes):
            row = row.but(codes=tuple(code for code in row.codes if code not in named))
        if left:
            kept.append(row)
    return (*kept, *new)


def _limits(root: Table, base: Limits) -> Limits:
    if not root.has("limits"):
        return base
    table = root.table("limits")
    changed: dict[str, int | float] = {}
    for key in Limits.__struct_fields__:
        default = getattr(base, key)
        if key.endswith("_us"):
            changed[key] = round(table.number(f"{key[:-3]}_s", default / 1e6, 0, _LARGEST) * 1_000_000)
        elif isinstance(default, float):
            changed[key] = table.number(key, default, 0, _LARGEST)
        else:
            changed[key] = table.integer(key, default, 1, _LARGEST)
    table.finish()
    return base.but(**changed)


def _answer(table: Table, key: str = "answer") -> Answer:
    text = table.text(key)
    answer = parse_answer(text)
    if answer is None and text:
        table.note(key, f"{text!r} is no answer", 'write a verdict and a remedy: "bad, reset-gpu"')
    return answer or UNKNOWN


def _common(table: Table) -> dict[str, object]:
    repeats = []
    for each in table.tables("repeats"):
        repeats.append(
            Repeat(
                at_least=each.integer("at_least", None, 2, _LARGEST),
                within_us=round(each.number("within_h", None, 0, 24 * 365) * HOUR),
                same=each.choice("same", "", ("", "engine", "link", "region", "boot", "burst", "job")),
                answer=_answer(each),
                why=each.text("why"),
                next=each.texts("next", ()),
            )
        )
        each.finish()
    return {
        "means": table.text("means", ""),
        "answer": _answer(table),
        "repeats": tuple(repeats),
        "next": table.texts("next", ()),
        "sources": table.text("sources", ""),
        "because": table.text("because", ""),
    }


def _code(table: Table) -> Code:
    return Code(
        codes=_integers(table, "codes"),
        role=table.text("role", "cause"),
        clears=_integers(table, "clears"),
        echo_of=_integers(table, "echo_of"),
        **_common(table),  # type: ignore[arg-type]
    )


def _text(table: Table) -> Text:
    return Text(
        id=table.text("id", may_be_empty=False),
        contains=table.text("contains"),
        pattern=table.text("pattern"),
        kind=table.text("kind"),
        kernel=table.flag("kernel"),
        role=table.text("role", "cause"),
        then=table.text("then", ""),
        joins=table.texts("joins", ()),
        counts_as=table.text("counts_as", ""),
        clears=table.texts("clears", ()),
        echo_of=table.texts("echo_of", ()),
        **_common(table),  # type: ignore[arg-type]
    )


def _counter(table: Table) -> Counter:
    return Counter(
        id=table.text("id", may_be_empty=False),
        path=table.text("path"),
        kind=table.text("kind"),
        at_least=table.integer("at_least", None, 1, _LARGEST),
        within_us=round(table.number("within_h", 0.0, 0, 24 * 365) * HOUR),
        bits=table.integer("bits", 0, 0, 64),
        **_common(table),  # type: ignore[arg-type]
    )


def _bits(table: Table) -> Bits:
    return Bits(
        register=table.integer("register", None, 1, 7),
        bits=_integers(table, "bits"),
        blames=table.text("blames", ""),
        **_common(table),  # type: ignore[arg-type]
    )


def _mask(table: Table) -> Mask:
    return Mask(
        xid=table.integer("xid", None, 144, 150),
        sub_unit=table.text("sub_unit"),
        mask_v1=table.text("mask_v1"),
        mask_v2=table.text("mask_v2"),
        status=tuple(int(value, 16) for value in table.texts("status", ())),
        now=table.text("now"),
        later=table.text("later", ""),
        reset_bit_v1=table.integer("reset_bit_v1", -1, -1, 31),
        reset_bit_v2=table.integer("reset_bit_v2", -1, -1, 31),
        **_common(table),  # type: ignore[arg-type]
    )


def _integers(table: Table, key: str) -> tuple[int, ...]:
    return tuple(int(value) for value in table.numbers(key, ()))
