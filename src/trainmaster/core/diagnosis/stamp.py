"""The time, the rank and the host at the head of a line of a training log.

    [rank3]:[E626 05:14:30.393067540 ProcessGroupNCCL.cpp:632] ...      glog of PyTorch: no year
    2026-06-26 05:14:30,393 ...   [2026-06-26T05:14:30.393Z] ...        logging, and most others
    Jun 26 05:14:30 gpu-003 ...                                         syslog
    [1,5]<stderr>: ...   5: ...   [default5]: ...                       mpirun, srun --label, torchrun

Times are microseconds from the start of the year (see `evidence.py`). Heads are taken off one after the other, since
launchers put theirs before those of the program.
"""

import re
from typing import Final, NamedTuple

_DAYS: Final = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_GLOG: Final = re.compile(r"\[?[IWEFC](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?[ \]]")
_ISO: Final = re.compile(r"\b\d{4}[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_SYSLOG: Final = re.compile(r"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_CLOCK: Final = re.compile(r"(?:^|[\[ ])(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?=[\] ,]|$)")
_BRACED_RANK: Final = re.compile(r"\[rank\s?(\d{1,7})\]", re.IGNORECASE)
_GROUP_RANK: Final = re.compile(r"\[(?:PG [^\]]{0,80}?)?Rank (\d{1,7})\]")
_MPI: Final = re.compile(r"^\[\d+,(\d{1,7})\]<std(?:err|out)>:?")
_LABEL: Final = re.compile(r"^(\d{1,7}): ")
_PLAIN: Final = re.compile(r"\brank[ =:]{1,2}(\d{1,7})\b", re.IGNORECASE)
_HOST: Final = re.compile(
    r"^(?:\[?[\d\-T:., Z+]{8,35}\]? ?|[A-Z][a-z]{2} +\d+ [\d:.]+ )?\[?([a-z][a-z0-9-]*\d[a-z0-9.-]*)\]?[: ]"
)
_NAMED: Final = re.compile(
    r"\b(?:host|node|hostname)[ =:]{1,2}'?([A-Za-z][A-Za-z0-9-]*\d[A-Za-z0-9.-]*)", re.IGNORECASE
)


_NO_HOST: Final = re.compile(r"(?:rank|default|local_rank|worker|step|epoch)-?\d+$", re.IGNORECASE)


class Head(NamedTuple):
    at_us: int | None
    rank: int | None
    host: str


def head(line: str) -> Head:
    """What the head of a line says; the first few hundred characters are looked at."""
    start = line[:400]
    named = _NAMED.search(start) or _HOST.match(start)
    host = named.group(1).rstrip(".") if named else ""
    return Head(time_of(start), rank_of(start), "" if _NO_HOST.match(host) else host)


def rank_of(line: str) -> int | None:
    """The rank that speaks. A prefix that the launcher or PyTorch put before the line goes before the rank within a
    group, which is another number in subgroups."""
    for pattern in (_BRACED_RANK, _MPI, _GROUP_RANK, _LABEL, _PLAIN):
        found = pattern.search(line)
        if found:
            return int(found.group(1))
    return None


def time_of(line: str) -> int | None:
    """Microseconds from the start of the year, or of the day where a line has no date."""
    found = _GLOG.search(line) or _ISO.search(line)
    if found:
        month, day, hour, minute, second, part = found.groups()
        return _us(int(month), int(day), hour, minute, second, part)
    syslog = _SYSLOG.search(line)
    if syslog and syslog.group(1) in _MONTHS:
        name, day, hour, minute, second, part = syslog.groups()
        return _us(_MONTHS.index(name) + 1, int(day), hour, minute, second, part)
    clock = _CLOCK.search(line[:80])
    return _us(1, 1, *clock.groups()) if clock else None


def _us(month: int, day: int, hour: str, minute: str, second: str, part: str | None) -> int | None:
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    days = _DAYS[month - 1] + day - 1
    whole = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    return whole * 1_000_000 + int((part or "0").ljust(6, "0")[:6])


def of_epoch(at_us: int) -> int:
    """Microseconds from the start of its year, from microseconds since 1970."""
    days, rest = divmod(at_us, 86_400_000_000)
    year = 1970
    while days >= (length := 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365):
        days, year = days - length, year + 1
    day_of_leap_year = days if length == 366 or days < 59 else days + 1
    return day_of_leap_year * 86_400_000_000 + rest


def clock_text(at_us: int) -> str:
    """`06-26 05:14:30.393`; without the date where there was none."""
    whole, part = divmod(at_us, 1_000_000)
    days, rest = divmod(whole, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{part // 1000:03}"
    if days == 0:
        return text
    month = max(index for index, start in enumerate(_DAYS) if start <= days)
    return f"{month + 1:02}-{days - _DAYS[month] + 1:02} {text}"
