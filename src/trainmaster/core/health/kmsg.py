r"""Records of `/dev/kmsg` as lines of a log.

A record is `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,MORE];TEXT`, then lines that begin with a space and hold properties
(`SUBSYSTEM=pci`), which say nothing that the text does not. The priority holds the facility: what user space wrote has
another than 0, and a program that writes "GPU has fallen off the bus" must not drain its host. Bytes that are not
printable stand as `\x0a`; a text with line ends in it is a message of several lines, and each becomes a line with the
stamp of the record, so that readers see what `dmesg` shows.
"""

import re
from typing import Final, NamedTuple

KERNEL: Final = 0
USER: Final = 1
_ESCAPE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Record(NamedTuple):
    """One record of the kernel's log."""

    facility: int
    sequence: int
    at_us: int
    """Since the boot, on the monotonic clock."""
    text: str

    def lines(self) -> list[str]:
        """As `dmesg` prints them."""
        stamp = f"[{self.at_us // 1_000_000:>5}.{self.at_us % 1_000_000:06}] "
        return [stamp + line for line in self.text.split("\n") if line.strip()]


def parse(data: bytes) -> Record | None:
    """A record as it was read; None if it has another form, which no kernel writes."""
    head, semicolon, body = data.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3 or not all(field.isdigit() and len(field) < 20 for field in fields[:3]):
        return None
    priority, sequence, at_us = (int(field) for field in fields[:3])
    text = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), body.split(b"\n", 1)[0])
    return Record(priority >> 3, sequence, at_us, text.replace(b"\0", b"").decode("utf-8", "replace"))
