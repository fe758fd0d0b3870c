"""Who says it: whether words of the kernel in a line are the kernel's.

Everybody repeats what the kernel says: exporters print it, `sudo` logs the command that looked for it, a runbook quotes
it. None of that is a fault of the host it is read on. Two things are asked of a line with such words. Where it names
its source (`stamp`), the source is the kernel. And they begin the message: before them stand heads, which are words
with a colon, in brackets, or with digits, and no sentence and no quotation mark. A line that names no source counts,
since most pastes name none; a head that nobody knows, or half of one, is no sentence.

Messages of drivers often begin with words that a rule does not ask for (`NMI watchdog: Watchdog detected`). So two are
let pass, other than before a line of the driver of NVIDIA, which always begins with its own name.

Limits: who pastes a line of the kernel alone into a text has not quoted it, as far as anybody can tell.
"""

import re
from typing import Final

from trainmaster.core.health.stamp import ALL, Stamp

_LONGEST: Final = 300
"""No head is longer; the sentence of a tool may be."""
_HEADS: Final = re.compile(
    r"(?:\S+ )?kernel: "
    r"|\[[^\]]{0,60}\]:?"  # [ 12.345678] [T1234] [Hardware Error]:
    r"|\([^)]{0,60}\):?"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)? (?:[\w.-]+ (?=[\w.-]+(?:\[\d+\])?:))?"  # the time of day, and a host
    r"|NMI watchdog:"
    r"|[^\s:]+:"  # mce: node-01: messages:12:
)
_WORD: Final = re.compile(r"(?<!\S)[A-Za-z']{2,}[,.;]?(?!\S)")
_QUOTES: Final = "'\"`\u2018\u201c\u00ab"
_OF_A_POD: Final = re.compile(r"[DIWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] ")
"""The head that programs of Kubernetes write."""
_WORDS_OF_DRIVERS: Final = 2


def by_kernel(body: str, start: int, stamp: Stamp, strict: bool = False) -> bool:
    """Whether the words of a rule, which begin here in a message, are the kernel's. `strict`: no word may stand before
    them."""
    if stamp.program == ALL or 0 < stamp.program <= stamp.length + start:
        return False
    if body[start] in _QUOTES or start > _LONGEST or body[max(0, start - 1)] in _QUOTES:
        return False
    if start == 0:
        return True
    before = body[:start]
    if _OF_A_POD.search(before):
        return False
    return len(_WORD.findall(_HEADS.sub(" ", before))) <= (0 if strict else _WORDS_OF_DRIVERS)
