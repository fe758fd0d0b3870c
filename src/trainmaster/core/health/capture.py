"""Captures: a file is one or several outputs of tools, one after the other; each is read by whoever knows its form.

What people attach to a ticket is a session: `$ nvidia-smi ...`, its output, `$ dcgmi ...`, its output; or cases under
comments. A line that begins with `$ ` starts another output of the same host; one that begins with `# ` a section,
which may be of another host, so that units of one name in two sections are not the same unit. Files with a form of
their own (XML, JSON, tables with a header) are never cut.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from trainmaster.core.health.finding import Confidence, Finding
from trainmaster.core.health.words import Answer, Remedy, Verdict

_CUT: Final = re.compile(r"^(?:\$ |# )\S.*$", re.MULTILINE)
_TOOLS: Final = re.compile(
    r"(?:sudo )?(?:nvidia-smi|dcgmi|dmesg|journalctl|ibstat|ibdev2netdev|lspci|sinfo|scontrol|show_gids|smartctl"
    r"|nvme|ethtool|iblinkinfo|ibqueryerrors|ibdiagnet|ipmitool|ras-mc-ctl|squeue|kubectl)\b"
)
_LONGEST: Final = 4000
_SCOPE: Final = {
    Remedy.RESET_GPU: "gpu", Remedy.REBOOT: "host", Remedy.TRIAGE: "host", Remedy.RMA: "host", Remedy.CONFIG: "host"
}  # fmt: skip


class Row(NamedTuple):
    """A line and its number in the file."""

    number: int
    text: str


class Block(NamedTuple):
    """One output."""

    file: str
    section: str
    command: str
    """What made it, if the capture says so."""
    first: int
    """Number of its first line in the file."""
    text: str

    def rows(self, longest: int = _LONGEST) -> list[Row]:
        """Its lines. What is longer than the lines of any tool is cut, so that no pattern runs for ever on it."""
        lines = enumerate(self.text.split("\n"))
        return [Row(self.first + offset, line[:longest].rstrip("\r")) for offset, line in lines]

    def found(
        self,
        unit: str,
        answer: Answer,
        rule: str,
        summary: str,
        rows: Sequence[Row] = (),
        next: Sequence[str] = (),
        confidence: Confidence = "high",
        offence: bool = True,
        scope: str = "",
        host: str = "",
        section: str = "",
    ) -> Finding:
        """A finding of this block."""
        needs = answer.verdict is Verdict.BAD
        return Finding(
            unit=unit,
            verdict=answer.verdict,
            remedy=answer.remedy,
            rule=rule,
            summary=summary,
            evidence=tuple(row.text for row in rows),
            lines=tuple(row.number for row in rows),
            count=max(1, len(rows)),
            confidence=confidence,
            next_evidence=tuple(next),
            offence=offence and needs,
            scope=(scope or _SCOPE.get(answer.remedy, "")) if needs else "",
            host=host,
            section=section or self.section,
            file=self.file,
        )


def blocks(file: str, text: str) -> Iterator[Block]:
    """The outputs that a text consists of."""
    head = text.lstrip()[:200]
    if head.startswith(("<", "{", "[{")) or is_table(head) or not _CUT.search(text):
        yield Block(file, "", "", 1, text)
        return
    section = command = ""
    first, start = 1, 0
    for cut in _CUT.finditer(text):
        if text[start : cut.start()].strip():
            yield Block(file, section, command, first, text[start : cut.start()])
        first += text.count("\n", start, cut.end()) + 1
        start = min(cut.end() + 1, len(text))
        line = cut.group()[2:].strip()
        if cut.group()[0] == "$" or _TOOLS.match(line):
            command = line
        else:
            section, command = line, ""
    if text[start:].strip() or not _CUT.sub("", text).strip():  # what has nothing but comments is one output
        yield Block(file, section, command, first, text[start:])


def is_table(head: str) -> bool:
    """Whether a text begins with the header of a table: words between tabs or commas."""
    line = head.split("\n", 1)[0].strip("\r")
    if "\t" not in line and "," not in line:
        return False
    words = re.split(r"[\t,]", line)
    return all(re.fullmatch(r"[A-Za-z][\w .-]{0,40}", word) for word in words) and len(line) < 200


def columns(block: Block) -> tuple[list[str], str]:
    """The names of the columns of a block that is a table, and what stands between them; nothing: it is none."""
    if not is_table(block.text):
        return [], ""
    first = block.text.split("\n", 1)[0].rstrip("\r")
    mark = "\t" if "\t" in first else ","
    return [name.strip() for name in first.split(mark)], mark


def table(block: Block) -> tuple[list[str], list[tuple[Row, dict[str, str]]]] | None:
    """Header and rows of a block that is a table; rows of another width are left out. None: it is none."""
    names, mark = columns(block)
    if not names:
        return None
    rows = []
    for row in block.rows()[1:]:
        cells = [cell.strip().strip('"') for cell in row.text.split(mark)]
        if len(cells) < len(names) and mark == "\t" and len(cells) >= 2:
            cells += [""] * (len(names) - len(cells))
        if len(cells) > len(names):
            cells = [*cells[: len(names) - 1], mark.join(cells[len(names) - 1 :]).strip('"')]
        if len(cells) == len(names):
            rows.append((row, dict(zip(names, cells, strict=True))))
    return names, rows
