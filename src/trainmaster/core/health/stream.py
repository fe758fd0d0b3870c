"""A log as it comes: lines go in, and what they change of the verdicts comes out.

The agent reads the kernel's log for months. It hands over what came, a record or a thousand, and gets the findings that
are new or say something else than before; a copy of what is known only counts, and nothing is judged again for it. So a
storm of 800,000 lines is one incident that is reported once, at the price of folding them. What a line can change is
bounded too: only folds of its *family* are judged again, which are the ones that it may be related to (a disk says
nothing about an NVLink), and a host has a limited number of folds.

At any time `findings` are those of `read` on all that was fed, wherever the log was cut. Between, `feed` reports by the
same rules; a relation that shifts while nothing else happens is seen with the next thing that does.

Memory: per fold a dozen lines, 256 bursts, 64 sub-parts; of a host `Limits.folds_per_host` folds.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.core.health.finder import LONGEST
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.fold import Fold
from trainmaster.core.health.kernel_judge import judge
from trainmaster.core.health.kernel_log import Reader
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK

_Claims = dict[tuple[str, str, str], list[Finding]]
"""Findings by rule, place where it was seen, and host."""
_Family = tuple[str, str]
_ENOUGH: Final = 2 * LONGEST
"""So much of an unfinished line is kept."""


class LogStream:
    """One log of one host. `host` and `boot` are said by whoever knows them, such as the agent; lines then cannot
    claim another host, and belong to this boot. Without them, lines speak for themselves, as in a file."""

    def __init__(self, index: Index, host: str = "", boot: str = "", file: str = "") -> None:
        self._index, self._file = index, file
        self._reader = Reader(index, host=host, boot=boot)
        self._rest = ""
        self._claims: dict[_Family, _Claims] = {}
        self._boots = 0

    @property
    def lines(self) -> int:
        """How many whole lines were read."""
        return self._reader.number - 1

    def feed(self, log: str | Iterable[str]) -> list[Finding]:
        """Reads some more of the log, and gives the findings that are new or have changed in what they ask for.

        A text may end in the middle of a line, which then waits for its rest; of an iterable, each item is a whole line
        (a record of `/dev/kmsg` as it is read, for instance). A finding that holds no more comes once again with the
        answer `ok, none`. Counts of what is known already grow without a word; `findings` has them.
        """
        if not isinstance(log, str):
            log = "".join(f"{line.rstrip(_BREAK)}{_BREAK}" for line in log)
        whole, cut, rest = log.rpartition(_BREAK)
        if not cut:
            self._rest = (self._rest + rest)[:_ENOUGH]
            return []
        text, self._rest = self._rest + whole + cut, rest[:_ENOUGH]
        return self._read(text)

    def end(self) -> list[Finding]:
        """Reads a last line that has no end, as `feed` does: nothing more will come of it."""
        rest, self._rest = self._rest, ""
        return self._read(rest + _BREAK) if rest else []

    def findings(self) -> list[Finding]:
        """All that holds now, as `read` would find it in the whole log. An unfinished line has not been read yet."""
        return judge(self._reader.folds(), self._index, self._file)

    def _read(self, text: str) -> list[Finding]:
        assert text.endswith(_BREAK)
        reader = self._reader
        before = [(each, each.signal) for each in reader.waiting]
        reader.read(text)
        after = [(each, each.signal) for each in reader.waiting]
        touched = {self._family(fold) for fold in reader.folder.news}
        reader.folder.news.clear()
        for _, signal in {*before, *after} if before or after else ():
            if signal is not None:
                touched.add((signal.host, self._index.family(signal.rule)))
        boots = sum(boot.order for boot in reader.boots.values())
        if not touched and boots == self._boots:
            return []
        folds: dict[_Family, list[Fold]] = {}
        for fold in reader.folds():
            folds.setdefault(self._family(fold), []).append(fold)
        if boots != self._boots:
            self._boots = boots
            touched = set(folds)
        return [finding for family in sorted(touched) for finding in self._judged(family, folds.get(family, ()))]

    def _family(self, fold: Fold) -> _Family:
        return fold.host, self._index.family(fold.rule)

    def _judged(self, family: _Family, folds: Sequence[Fold]) -> list[Finding]:
        """What of a family is not as it was."""
        old, new = self._claims.get(family, {}), _Claims()
        for finding in judge(folds, self._index, self._file):
            new.setdefault((finding.rule, finding.at or finding.unit, finding.host), []).append(finding)
        self._claims[family] = new
        changed = [
            finding for key, its in new.items() for finding in its if _asks(finding) not in map(_asks, old.get(key, ()))
        ]
        changed += [_over(finding) for key, its in old.items() if key not in new for finding in its]
        return changed


_BREAK: Final = "\n"


def _asks(finding: Finding) -> tuple[object, ...]:
    """What makes it another message, if it changes."""
    return finding.unit, finding.answer, finding.echo_of, finding.cause_of, finding.scope, finding.offence


def _over(finding: Finding) -> Finding:
    return finding.but(
        verdict=OK.verdict, remedy=OK.remedy, summary=f"{finding.summary}; this holds no more", offence=False, scope=""
    )
