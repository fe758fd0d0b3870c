"""Words that the verbs of `maint` share: scopes folded, operations in short, capacity as bars."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from trainmaster.cli.output import duration_text
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text

SENTENCE_MAX: Final = 72
"""Characters of a sentence in a list; `show` has all of it."""
BAR: Final = 32


def operation_path(name: str, verb: str = "") -> str:
    return _path("operations", name, verb)


def train_path(name: str, verb: str = "") -> str:
    return _path("trains", name, verb)


def rollout_path(name: str, verb: str = "") -> str:
    return _path("rollouts", name, verb)


def _path(kind: str, name: str, verb: str) -> str:
    return f"/v1/{kind}/{quote(name, safe='')}" + (f"/{verb}" if verb else "")


def scope_text(scope: Iterable[str]) -> str:
    """Resources folded by their kind: `host/h[1-4], rack/r2`."""
    kinds: dict[str, list[str]] = {}
    for resource in scope:
        kind, _, name = resource.partition("/")
        kinds.setdefault(kind, []).append(name)
    return ", ".join(f"{kind}/{fold(names)}" for kind, names in kinds.items())


def short_reason(reason: Reason | None) -> str:
    """Token and the begin of the sentence."""
    if reason is None:
        return ""
    sentence = reason.sentence
    if len(sentence) > SENTENCE_MAX:
        sentence = sentence[: SENTENCE_MAX - 3].rsplit(" ", 1)[0].rstrip(",;:") + " ..."
    return f"{reason.token}: {sentence}"


def numbers_text(reason: Reason | None) -> str:
    return ", ".join(f"{key} {value}" for key, value in reason.numbers.items()) if reason is not None else ""


def work_text(kind: str, component: str, version: str) -> str:
    """`upgrade gpu-driver 550.90`, `reboot`."""
    return " ".join(word for word in (kind, component, version) if word)


def seconds_words(value: float) -> str:
    """A duration for people; what takes no time is unknown here, not quick."""
    return duration_text(seconds(value)) if value else ""


def units_text(count: int, folded: str, gpus: int = 0) -> str:
    """`4 units h[1-4] (32 GPUs)`."""
    if not count:
        return "nothing leaves production"
    return f"{count_text(count, 'unit')} {folded}" + (f" ({count_text(gpus, 'GPU')})" if gpus else "")


def bar(total: int, parts: Iterable[tuple[str, int]]) -> str:
    """Letters by share, as wide as `BAR`: each part that is there has one at least, and the last part gives way."""
    shares = [(letter, count) for letter, count in parts if count > 0]
    widths = [max(1, count * BAR // total) if total else 0 for _, count in shares]
    if shares:
        widest = max(range(len(shares)), key=lambda place: widths[place])
        widths[widest] += BAR - sum(widths) if total else 0
    return "".join(letter * width for (letter, _), width in zip(shares, widths, strict=True)).ljust(BAR, " ")
