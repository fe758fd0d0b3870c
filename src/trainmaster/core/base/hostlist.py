"""Host lists: the one parser and the one folder of the product.

A host list is a set of names written short: `node[001-128]`, `a[0-2]b[3-5].example.com`, `n[1-4,10]`, `@rack:r12`.
`parse` turns the text into names in natural order, `fold` turns names into the shortest text that gives exactly those
names back. Padding is part of a name: 7, 07 and 007 are three hosts, so a range keeps the width of its first number and
both ends must agree on it. Case is part of a name too, as in Slurm.

Operators are those of ClusterShell, all of one rank, applied from left to right: `,` (or white space, or a new line)
union, `!` difference, `&` intersection, `^` symmetric difference. Brackets hold numbers, ranges and ranges with a step
(`0-10/2` as in ClusterShell, `0-10:2` as in Slurm). `#` starts a comment, so host files can be read as they are.

Rejected: reading `[5-1]` backwards, `[8-012]` with a guessed width, an empty element between two commas (an unset
shell variable looks like this), letters in brackets. Each is an error that names position, reason and fix, because a
host list that means something else than its author thought drains the wrong hosts.

Limits: a list of more than `HOST_LIMIT` names is refused before it is built. Folding merges hosts along the last number
first, then the one before it: linear in the number of hosts and the same for every order of input, though an odd-shaped
set may have a shorter writing.
"""

import re
from collections.abc import Callable, Iterable
from itertools import chain, product
from typing import Any, Final, NamedTuple

from trainmaster.core.base.ids import HostId

HOST_LIMIT: Final = 1_000_000
"""Names in one list. Sixteen times the largest fleet that we plan for; a list beyond it is a typing mistake."""
NAME_LIMIT: Final = 253
"""Characters of a host name (RFC 1035)."""
_DIGIT_LIMIT: Final = 18

GroupResolver = Callable[[str], Iterable[HostId] | None]
"""From the text behind `@` (`gpu`, `rack:r12`) to the hosts of the group; None if there is no such group."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_NAMES = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}(?:\n|\Z))*")
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|\#[^\n]*)|(?P<operator>[,!&^])|(?P<term>@?(?:[A-Za-z0-9_.:-]|\[[^\[\]\r\n]*\])+)"
)
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_ITEM = re.compile(r"([0-9]+)(?:-([0-9]+)(?:[/:]([0-9]+))?)?")
_NUMBER = re.compile(r"([0-9]+)")


class _Range(NamedTuple):
    """Numbers of one item between brackets, spelled with at least `width` digits."""

    numbers: range
    width: int

    def spell(self) -> list[str]:
        return [f"{number:0{self.width}d}" for number in self.numbers]


class HostListError(ValueError):
    """A host list that cannot be read. For the person who wrote it: where, why, and what to write instead."""

    def __init__(self, text: str, position: int, reason: str, fix: str) -> None:
        assert 0 <= position <= len(text), (position, len(text))
        self.text, self.position, self.reason, self.fix = text, position, reason, fix
        self.line_number = text.count("\n", 0, position) + 1
        start = text.rfind("\n", 0, position) + 1
        self.line = text[start:].partition("\n")[0]
        self.column = position - start + 1
        where = f"character {self.column}" + (f" of line {self.line_number}" if "\n" in text else "")
        super().__init__(f"{where}: {reason}; {fix}")

    def excerpt(self) -> str:
        """The line with a caret under the position: two lines, cut to 72 characters around the caret."""
        start = max(0, self.column - 40)
        return f"{self.line[start : start + 72]}\n{' ' * (self.column - 1 - start)}^"


def parse(text: str, groups: GroupResolver | None = None, limit: int = HOST_LIMIT) -> tuple[HostId, ...]:
    """The hosts that `text` names, each once, in natural order; empty text names none.

    Raises `HostListError`.
    """
    assert limit > 0
    return sort(_evaluate(text, groups, limit))


def fold(hosts: Iterable[str]) -> str:
    """The canonical short text of a set of hosts: `parse(fold(hosts))` is exactly the set, in natural order.

    Raises `HostListError` for a name that no host list can hold.
    """
    names = set(hosts)
    _check_names(names)
    shapes: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in names:
        pieces = _NUMBER.split(name)
        shapes.setdefault(tuple(pieces[::2]), []).append(tuple(pieces[1::2]))
    terms: list[tuple[list[Any], str]] = []
    for texts, vectors in shapes.items():
        terms += _fold_shape(texts, vectors)
    return ",".join(term for _, term in sorted(terms))


def sort(hosts: Iterable[str]) -> tuple[HostId, ...]:
    """Hosts in natural order: numbers by value, then by width (h1, h01, h2, h10)."""
    return tuple(HostId(name) for name in sorted(hosts, key=natural_key))


def natural_key(name: str) -> list[Any]:
    """A sort key; text and numbers alternate in it, so that keys of any two names compare."""
    key: list[Any] = _NUMBER.split(name)
    for index in range(1, len(key), 2):
        key[index] = (int(key[index]), len(key[index]))
    return key


# Reading


def _evaluate(text: str, groups: GroupResolver | None, limit: int) -> set[str]:
    """Applies the operators from left to right."""
    result: set[str] = set()
    operator, operator_at, position, seen, adjoins = "", 0, 0, False, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        token = match.group()
        if match.lastgroup == "operator":
            if operator or not seen:
                raise HostListError(text, position, f"no host before '{token}'", f"remove the '{token}' or name a host")
            operator, operator_at = token, position
        elif match.lastgroup == "term":
            if adjoins:
                raise HostListError(text, position, "'@' inside a name", "leave out the user; a group begins with '@'")
            _apply(result, operator or ",", _expand_term(text, position, token, groups, limit))
            operator, seen = "", True
            if len(result) > limit:
                raise _too_many(text, position, len(result), limit)
        adjoins = match.lastgroup == "term"
        position = match.end()
    if operator:
        raise HostListError(
            text, operator_at, f"no host behind '{operator}'", f"remove the '{operator}' or name a host"
        )
    return result


def _apply(result: set[str], operator: str, names: Iterable[str]) -> None:
    match operator:
        case ",":
            result.update(names)
        case "!":
            result.difference_update(names)
        case "&":
            result.intersection_update(names)
        case _:
            assert operator == "^", operator
            result.symmetric_difference_update(names)


def _expand_term(text: str, start: int, term: str, groups: GroupResolver | None, limit: int) -> Iterable[str]:
    """The names of one term, which begins at `start` in `text`."""
    if term.startswith("@"):
        return _expand_group(text, start, term, groups, limit)
    colon = _outside_brackets(term, ":")
    if colon >= 0:
        raise HostListError(text, start + colon, "':' in a host name", "leave out the port; a group is @kind:name")
    if term[0] in "-.":
        fix = "begin the name with a letter or a digit"
        raise HostListError(text, start, f"a host name cannot begin with '{term[0]}'", fix)
    names = _expand_pattern(text, start, term, limit)
    if len(names[0]) > NAME_LIMIT or len(names[-1]) > NAME_LIMIT:
        raise HostListError(text, start, f"a name of more than {NAME_LIMIT} characters", "separate the hosts by commas")
    return names


def _expand_group(text: str, start: int, term: str, groups: GroupResolver | None, limit: int) -> set[str]:
    if groups is None:
        raise HostListError(text, start, f"groups like {term} are not known here", "name the hosts themselves")
    names: set[str] = set()
    for group in _expand_pattern(text, start + 1, term[1:], limit):
        members = groups(group)
        if members is None:
            raise HostListError(text, start, f"no group @{group}", "check the spelling, or name the hosts themselves")
        names.update(members)
    return names


def _expand_pattern(text: str, start: int, pattern: str, limit: int) -> list[str]:
    """All names of a pattern: the product of its pieces."""
    assert pattern
    if "[" not in pattern:
        return [pattern]
    pieces: list[str | list[_Range]] = []
    count = 1
    for piece in _PIECE.finditer(pattern):
        if piece.group(2) is not None:
            pieces.append(piece.group(2))
            continue
        ranges = _read_brackets(text, start + piece.start() + 1, piece.group(1))
        count *= sum(len(item.numbers) for item in ranges)
        if count > limit:
            raise _too_many(text, start + piece.start(), count, limit)
        pieces.append(ranges)
    spelled = [[piece] if isinstance(piece, str) else [d for item in piece for d in item.spell()] for piece in pieces]
    return ["".join(parts) for parts in product(*spelled)]


def _read_brackets(text: str, start: int, content: str) -> list[_Range]:
    """The ranges between two brackets; `start` is the position behind the opening one."""
    if not content.strip():
        raise HostListError(text, start - 1, "empty brackets", "write numbers in them, for example [1-4,10]")
    ranges, position = [], start
    for item in content.split(","):
        at = position + len(item) - len(item.lstrip())
        ranges.append(_read_item(text, at, item.strip()))
        position += len(item) + 1
    return ranges


def _read_item(text: str, at: int, item: str) -> _Range:
    match = _ITEM.fullmatch(item)
    if match is None:
        if not item:
            raise HostListError(text, at, "a number is missing between brackets", "remove the extra comma")
        fix = "brackets hold numbers only, for example [1-4,10]; separate names by commas outside of them"
        raise HostListError(text, at, f"'{item}' is not a number or a range", fix)
    low, high, step = match.group(1), match.group(2) or match.group(1), match.group(3) or "1"
    if max(len(low), len(high), len(step)) > _DIGIT_LIMIT:
        raise HostListError(text, at, f"a number of more than {_DIGIT_LIMIT} digits", "write a smaller number")
    if int(step) == 0:
        raise HostListError(text, at, f"the step of {item} is 0", "write a step of 1 or more")
    if int(high) < int(low):
        raise HostListError(text, at, f"the range {low}-{high} runs backwards", f"write {high}-{low}")
    if not _same_padding(low, high):
        width = max(len(low), len(high))
        fix = f"write {low.zfill(width)}-{high.zfill(width)}, or {int(low)}-{int(high)} if the names have no zeros"
        raise HostListError(text, at, f"the ends of {low}-{high} are padded differently", fix)
    width = len(low) if low[0] == "0" else 1
    return _Range(range(int(low), int(high) + 1, int(step)), width)


def _same_padding(low: str, high: str) -> bool:
    """08-12 and 08-112 are fine (what follows 99 is 100); 8-012 and 08-9 are not."""
    if len(high) == len(low):
        return True
    return len(high) > len(low) and high[0] != "0"


def _outside_brackets(term: str, character: str) -> int:
    """Position of a character that stands outside of brackets, or -1."""
    position = term.find(character)
    while position >= 0 and term.count("[", 0, position) > term.count("]", 0, position):
        position = term.find(character, position + 1)
    return position


def _too_many(text: str, at: int, count: int, limit: int) -> HostListError:
    return HostListError(
        text, at, f"{count:,} hosts, more than the limit of {limit:,}", "check the range for a typing mistake"
    )


def _unreadable(text: str, position: int) -> HostListError:
    """Why no token begins at `position`."""
    character = text[position]
    if character == "[":
        inner = text[position + 1 :].partition("\n")[0]
        if "[" in inner.partition("]")[0]:
            return HostListError(text, position, "brackets inside brackets", "write one pair, for example [1-4,10-12]")
        return HostListError(text, position, "a bracket is not closed", "add the ']'")
    if character == "@":
        fix = "write @name or @kind:name, for example @rack:r12"
        return HostListError(text, position, "'@' without a group", fix)
    if character == "]":
        return HostListError(text, position, "a ']' without a '['", "add the '[' before the numbers or remove the ']'")
    if character in "‐‑‒–—−":
        return HostListError(text, position, "a dash that is not a hyphen", "write '-'")
    if character in "*?":
        fix = "name the hosts, or a range such as node[1-4]; patterns are not expanded"
        return HostListError(text, position, f"'{character}' in a host name", fix)
    fix = "host names hold letters, digits, '.', '-' and '_'"
    return HostListError(text, position, f"unexpected {character!r}", fix)


# Folding


def _check_names(names: set[str]) -> None:
    """All names at once: one pass of the pattern over thousands of names is several times faster than one pass each."""
    joined = "\n".join(names)
    if "" not in names and _NAMES.fullmatch(joined) and joined.count("\n") == max(len(names) - 1, 0):
        return
    for name in names:
        if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            raise HostListError(name, 0, f"{name!r} is not a host name", "use letters, digits, '.', '-' and '_'")


def _fold_shape(texts: tuple[str, ...], vectors: list[tuple[str, ...]]) -> list[tuple[list[Any], str]]:
    """Terms for hosts that differ in their numbers only, each with the natural key of its first host.

    From the last number to the first: hosts with equal numbers before it and an equal tail become one range. A tail's
    text decides its set of hosts, so `first` can hold the first of them by text.
    """
    assert vectors
    value = {digits: (int(digits), len(digits)) for digits in set(chain.from_iterable(vectors))}
    rank = {digits: index for index, digits in enumerate(sorted(value, key=value.__getitem__))}
    vectors.sort(key=lambda vector: [rank[digits] for digits in vector])
    parts = [(vector, texts[-1]) for vector in vectors]
    first: dict[str, tuple[str, ...]] = {texts[-1]: ()}
    brackets: dict[tuple[str, ...], str] = {}  # racks are alike: most rows are seen before
    for text in reversed(texts[:-1]):
        rows: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for vector, tail in parts:
            rows.setdefault((vector[:-1], tail), []).append(vector[-1])
        parts = []
        for (head, tail), numbers in rows.items():
            row = tuple(numbers)
            if row not in brackets:
                brackets[row] = _fold_numbers(numbers, value)
            longer = text + brackets[row] + tail
            first[longer] = (numbers[0], *first[tail])
            parts.append((head, longer))
    return [(natural_key(_name(texts, first[term])), term) for _, term in parts]


def _name(texts: tuple[str, ...], vector: tuple[str, ...]) -> str:
    return texts[0] + "".join(digits + text for digits, text in zip(vector, texts[1:], strict=True))


def _fold_numbers(numbers: list[str], value: dict[str, tuple[int, int]]) -> str:
    """Numbers (sorted by value, then width) as brackets with ranges, or as they are if there is only one.

    A run goes on with the number that follows its last one in the padding of its first: 09 by 10, 099 by 100.
    """
    assert numbers
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    waiting: dict[tuple[int, int], int] = {}
    for digits in numbers:
        number, length = value[digits]
        index = waiting.pop((number, length), -1)
        if index < 0:
            index = len(runs)
            runs.append([digits, digits])
        else:
            runs[index][1] = digits
        low = runs[index][0]
        width = len(low) if low[0] == "0" else 1
        waiting[number + 1, max(width, len(str(number + 1)))] = index
    return "[" + ",".join(low if low == high else f"{low}-{high}" for low, high in runs) + "]"
