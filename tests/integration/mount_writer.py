"""A program that uses a mount without pause, and tells outside what it was told: `mount_writer.py DIR REPORT COUNT`.

Each round makes a file, writes it in blocks, syncs it, gives it its name by a rename, links it, and removes an older
one. A line `+NUMBER` says that all of that was answered; `!WHAT` that something was not as it should be.
"""

import os
import sys
from pathlib import Path

BLOCK = 64 << 10
KEPT = 40


def content(number: int) -> bytes:
    return b"%08d" % number * (BLOCK // 8) * (1 + number % 4)


def one(here: Path, number: int) -> None:
    data = content(number)
    with (here / f"new-{number}").open("xb") as stream:
        for at in range(0, len(data), BLOCK):
            stream.write(data[at : at + BLOCK])
        stream.flush()
        os.fsync(stream.fileno())
    os.mkdir(here / f"d-{number}")
    os.rename(here / f"new-{number}", here / f"d-{number}" / "data")
    os.link(here / f"d-{number}" / "data", here / f"link-{number}")
    os.setxattr(here / f"link-{number}", "user.number", b"%d" % number)
    old = number - KEPT
    if old >= 0:
        with (here / f"link-{old}").open("rb") as stream:
            os.unlink(here / f"link-{old}")
            os.unlink(here / f"d-{old}" / "data")
            os.rmdir(here / f"d-{old}")
            if stream.read() != content(old):
                raise ValueError(f"{old} has other bytes")


def main() -> None:
    here, report, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    with report.open("a", buffering=1) as out:
        for number in range(count):
            try:
                one(here, number)
            except (OSError, ValueError) as error:
                out.write(f"!{number}: {error}\n")
                raise
            out.write(f"+{number}\n")


if __name__ == "__main__":
    main()
