"""Other inputs of the same kind: ranks permuted, files and lines in another order, a dump left out."""

import random
import re
from collections.abc import Callable

import msgspec

Files = list[tuple[str, str]]
Renamed = Callable[[int], int]


def permutation(world: int, seed: int) -> Renamed:
    """Another number for each rank of a world."""
    numbers = list(range(world))
    random.Random(seed).shuffle(numbers)
    return lambda rank: numbers[rank]


def permuted_log(text: str, new: Renamed) -> str:
    """Ranks in the heads of watchdog lines."""
    return re.sub(r"(?<=\[rank)\d+(?=\])|(?<=Rank )\d+(?=\])", lambda found: str(new(int(found.group()))), text)


def permuted_dump(text: str, new: Renamed) -> str:
    tree = msgspec.json.decode(text)
    tree["rank"] = new(tree["rank"])
    return msgspec.json.encode(tree).decode()


def permuted_table(text: str, new: Renamed) -> str:
    head, *rows = text.strip().split("\n")
    cells = [row.split(",") for row in rows]
    return "\n".join([head, *(",".join([str(new(int(first))), *rest]) for first, *rest in cells)]) + "\n"


def shuffled_lines(text: str, seed: int, header: bool = False) -> str:
    lines = text.rstrip("\n").split("\n")
    first, rest = (lines[:1], lines[1:]) if header else ([], lines)
    random.Random(seed).shuffle(rest)
    return "\n".join([*first, *rest]) + "\n"


def shuffled(files: Files, seed: int) -> Files:
    found = list(files)
    random.Random(seed).shuffle(found)
    return found
