"""The head of a log line: when, on which clock, on which host, and where the message begins.

Kernel messages reach people through many hands (`dmesg` with and without readable times, journal, syslog, `/dev/kmsg`,
a paste without anything), each with a head of its own, sometimes two in a row. One pattern takes all of them off. Times
become microseconds on one of two clocks, since the boot or since 1970, which are never compared with each other. A
syslog line has no year: a month that falls far behind the line before belongs to the next year, so that December and
January stay in order, and no age is ever taken from it.
"""

import re
from typing import Final, NamedTuple

from trainmaster.core.base.time import SECOND

_MONTHS: Final = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10,
    "Nov": 11, "Dec": 12,
}  # fmt: skip
_REMEMBERED: Final = 1000
ALL: Final = -1
_KERNEL: Final = " kernel: "
_UPTIME: Final = re.compile(r"\[ *(\d{1,12})\.(\d{6})\] ", re.ASCII)
_HALF_A_YEAR: Final = 183 * 86_400 * SECOND

_HEAD: Final = re.compile(
    r"(?:<(?P<priority>\d{1,3})>)?"
    r"(?:(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d)\s*:\s*\w+\s*:\s*)?"
    r"(?:\[\s*(?P<boot>\d{1,12}(?:\.\d{1,9})?)\]\s?"
    r"|\[[A-Z][a-z]{2} (?P<cmonth>[A-Z][a-z]{2})\s+(?P<cday>\d{1,2}) (?P<ctime>[\d:]{8}) (?P<cyear>\d{4})\]\s?"
    r"|\[\s*[+<]\s*\d+\.\d+>?\]\s?"
    r"|\[(?P<fmonth>[A-Z][a-z]{2})\s+(?P<fday>\d{1,2}) (?P<fyear>\d{4}) (?P<ftime>[\d:]{8})\]\s?"
    r"|\[?(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?\]?\s"
    r"|[A-Z][a-z]{2} (?P<wdate>\d{4}-\d\d-\d\d) (?P<wtime>[\d:]{8})(?:\.\d+)? (?:[A-Z]{3,5}|[+-]\d{2,4}) "
    r"|1 (?P<rdate>\d{4}-\d\d-\d\d)T(?P<rtime>\d\d:\d\d:\d\d)(?:\.(?P<rpart>\d{1,9}))?(?P<rzone>Z|[+-]\d\d:\d\d)"
    r" (?P<rhost>[\w.:-]{1,255}) (?P<rapp>\S{1,48}) \S{1,128} \S{1,32} (?:-|(?:\[[^\]]{0,400}\])+) "
    r"|(?P<smonth>[A-Z][a-z]{2})\s+(?P<sday>\d{1,2}) (?P<stime>\d\d:\d\d:\d\d)(?:\.\d+)? "
    r"|\s*[0-9a-f]{1,4} \| (?P<emonth>\d\d)/(?P<eday>\d\d)/(?P<eyear>\d{4}) \| (?P<etime>[\d:]{8})"
    r" (?:[A-Z]{3,4} )?(?=\| )"
    r"|(?P<level>\d+),\d+,(?P<kmsg>\d{1,18}),[^;]{0,40};)?"
    r"(?:(?:(?P<host>[A-Za-z0-9][\w.-]{0,252}) )?(?P<tag>[A-Za-z][\w./@-]{0,80})(?P<pid>\[\d+\])?: )?"
    r"(?:\[\s*(?P<inner>\d{1,12}\.\d{1,9})\]\s?)?"
)


class Stamp(NamedTuple):
    """What the head of a line says."""

    at_us: int | None
    clock: str
    """`boot`, `wall`, or nothing where there is no time."""
    host: str
    """Empty: the line names none."""
    length: int
    """Characters of the head; the tag of a daemon is left in the message."""
    program: int = 0
    """Characters up to where the message of a program begins; 0: the kernel wrote it, or nobody is named. `ALL`: it
    is a program's whatever it looks like."""


def days_of(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a day of the Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def written(at_us: int) -> str:
    """A time since 1970 as logs write it, in UTC: `2025-02-23T16:24:18.000000Z`."""
    days, rest = divmod(at_us, 86_400 * SECOND)
    era, of_era = divmod(days + 719_468, 146_097)
    of_year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day = of_era - (365 * of_year + of_year // 4 - of_year // 100)
    month = (5 * day + 2) // 153
    year = of_year + era * 400 + (month >= 10)
    seconds = rest // SECOND
    date = f"{year:04}-{month + (3 if month < 10 else -9):02}-{day - (153 * month + 2) // 5 + 1:02}"
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest % SECOND:06}"
    return f"{date}T{clock}Z"


class Stamps:
    """Reads heads of one capture, in order; remembers what the last line said about the year."""

    def __init__(self) -> None:
        self._days: dict[tuple[str, str, str], int] = {}
        self._heads: dict[str, Stamp] = {}
        self._year = 1972
        """A leap year, for lines without one: 29 February exists in it."""
        self._last_us = 0

    def read(self, line: str) -> Stamp:
        """The head of a line. The two forms that logs have most are read by themselves, the second once for all lines
        of one second and host."""
        if line[:1] == "[":
            found = _UPTIME.match(line)
            if found is None or line.find("kernel: ", found.end(), found.end() + 80) >= 0:
                return self._any(line)
            whole, part = found.groups()
            return Stamp(int(whole) * SECOND + int(part), "boot", "", found.end())
        end = line.find(_KERNEL, 0, 80)
        if end < 0 or line[end + len(_KERNEL) : end + len(_KERNEL) + 1] == "[":
            return self._any(line)
        head = line[:end]
        stamp = self._heads.get(head)
        if stamp is None:
            year, stamp = self._year, self._any(line)
            if self._year != year or len(self._heads) > _REMEMBERED:
                self._heads.clear()
            if stamp.length == end + len(_KERNEL):
                self._heads[head] = stamp
        return stamp

    def _any(self, line: str) -> Stamp:
        found = _HEAD.match(line)
        assert found is not None, line[:80]
        boot, cmonth, date, smonth, kmsg, inner, host, tag = found.group(
            "boot", "cmonth", "date", "smonth", "kmsg", "inner", "host", "tag"
        )
        at, clock = None, ""
        if boot is not None:
            at, clock = _fraction(boot), "boot"
        elif cmonth is not None:
            at, clock = self._wall(found["cyear"], cmonth, found["cday"], found["ctime"]), "wall"
        elif found["fmonth"] is not None:
            at, clock = self._wall(found["fyear"], found["fmonth"], found["fday"], found["ftime"]), "wall"
        elif found["emonth"] is not None:
            at, clock = self._wall(found["eyear"], found["emonth"], found["eday"], found["etime"]), "wall"
        elif date is not None:
            year, month, day = date.split("-")
            at, clock = self._wall(year, month, day, found["time"]), "wall"
            if at is not None:
                at += int((found["part"] or "0").ljust(6, "0")[:6]) - _zone(found["zone"])
        elif found["wdate"] is not None:
            at, clock = self._wall(*_parts(found["wdate"]), found["wtime"]), "wall"
        elif found["rdate"] is not None:
            return self._structured(found)
        elif smonth is not None:
            at, clock = self._yearless(smonth, found["sday"], found["stime"]), "wall"
        elif kmsg is not None:
            at, clock = int(kmsg), "boot"
        elif inner is not None:
            at, clock = _fraction(inner), "boot"
        length = found.end()
        if tag is not None and found.start("tag") == 0 and (inner or line.startswith("NVRM:", length)):
            host = tag if tag != "kernel" else None  # `pdsh` puts the host before each line
        elif tag is not None and tag != "kernel":
            length = found.start("tag")
            by_dmesg = date is not None and line[found.start("part") - 1] == ","  # it writes no host
            if host is not None and (by_dmesg or not (date or smonth or found["wdate"])):
                host, length = None, found.start("host")  # `nvme nvme0: ...` is no host with a tag
        return Stamp(at, clock if at is not None else "", host or "", length, _program(found, host or ""))

    def _structured(self, found: re.Match[str]) -> Stamp:
        """A head of RFC 5424."""
        at = self._wall(*_parts(found["rdate"]), found["rtime"])
        if at is not None:
            at += int((found["rpart"] or "0").ljust(6, "0")[:6]) - _zone(found["rzone"])
        host = found["rhost"] if found["rhost"] != "-" else ""
        length = found.start("host" if found["host"] else "tag") if found["tag"] else found.end()
        return Stamp(at, "wall" if at is not None else "", host, length, _program(found, host))

    def _wall(self, year: str, month: str, day: str, time: str) -> int | None:
        key = (year, month, day)
        days = self._days.get(key)
        if days is None:
            number = _MONTHS.get(month) or (int(month) if month.isdigit() else 0)
            if not 1 <= number <= 12 or not 1 <= int(day) <= 31:
                return None
            days = self._days[key] = days_of(int(year), number, int(day))
        return days * 86_400 * SECOND + _clock(time)

    def _yearless(self, month: str, day: str, time: str) -> int | None:
        at = self._wall(str(self._year), month, day, time)
        if at is not None and at < self._last_us - _HALF_A_YEAR:
            self._year += 1
            at = self._wall(str(self._year), month, day, time)
        if at is not None:
            self._last_us = at
        return at


def _program(found: re.Match[str], host: str) -> int:
    """Where the message begins that a program wrote. Facility 0 is the kernel's, and so is its tag; a word with a colon
    is a tag where syslog has one, behind a host, or with the number of a process."""
    priority = found["priority"] or found["level"]
    if found["facility"] not in (None, "kern") or (priority is not None and int(priority) >> 3):
        return ALL
    if found["rapp"] not in (None, "-", "kernel"):
        return ALL
    if found["tag"] not in (None, "kernel") and (found["pid"] or (host and found["host"] == host)):
        return found.end()
    return 0


def _parts(date: str) -> tuple[str, str, str]:
    year, month, day = date.split("-")
    return year, month, day


def _fraction(text: str) -> int:
    whole, _, part = text.partition(".")
    return int(whole) * SECOND + int(part.ljust(6, "0")[:6])


def _clock(text: str) -> int:
    hours, minutes, seconds = text[:2], text[3:5], text[6:8]
    if not (hours + minutes + seconds).isdigit():
        return 0
    return (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * SECOND


def _zone(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return (minutes if text[0] == "+" else -minutes) * 60 * SECOND
