"""One look at this host, for callers without a server: the probes, and the last hour of the kernel's log.

It all ends within the time that the caller gives: Slurm kills a health check after a minute and takes that for success.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Final

from trainmaster.core.agent.health_news import age
from trainmaster.core.base.ids import BootId
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.health import kmsg
from trainmaster.core.health.finding import Finding, worst
from trainmaster.core.health.part import PartKind
from trainmaster.core.health.policy import Index
from trainmaster.core.health.probe.leaves import claim
from trainmaster.core.health.stream import LogStream
from trainmaster.core.health.verification.deadline import deadline_s
from trainmaster.core.health.verification.outcome import answer_of
from trainmaster.core.health.words import OK, SKIPPED, UNKNOWN, Answer, Remedy, Verdict
from trainmaster.live.agent.files import now
from trainmaster.live.agent.health.judge import Judge
from trainmaster.live.agent.health.log_source import KmsgSource, up_us
from trainmaster.live.agent.health.probes import PROBES
from trainmaster.live.agent.health.round import Rounds, Seen, Unread
from trainmaster.live.verification import child
from trainmaster.ports.errors import UserError

KERNEL_LOG: Final = "kernel-log"
QUICK: Final = "quick"
CHECKS: Final[dict[str, str]] = {
    KERNEL_LOG: "the kernel's log: the last hour of this boot",
    **{name: probe.what for name, probe in PROBES.items()},
    QUICK: "the quick task of verification; only if it is named",
}
WINDOW: Final = HOUR
_RESERVE_S: Final = 1.5
"""For ending what hangs, and for printing."""


class Checked(Value):
    """What one look found."""

    findings: tuple[tuple[str, Finding], ...]
    """With the check that found it; well ones are left out."""
    skipped: dict[str, str]
    """Why there was nothing to look at."""
    checks: tuple[str, ...]
    unread: frozenset[str]
    """Checks of which something could not be read."""
    asked: bool = False
    """Whether somebody named the checks: then it is no surprise that there is nothing to look at."""

    @property
    def there(self) -> int:
        return len(self.checks) - len(self.skipped)

    @property
    def read(self) -> int:
        return self.there - len(self.unread)

    @property
    def answer(self) -> Answer:
        """A look that had nothing to look at knows nothing, unless it was asked for just that."""
        if not self.there:
            return SKIPPED if self.asked else UNKNOWN
        return worst(finding.answer for _, finding in self.findings if not finding.echo_of)

    @property
    def verdict(self) -> Verdict:
        return self.answer.verdict

    @property
    def remedy(self) -> Remedy:
        return self.answer.remedy

    def worst(self) -> list[Finding]:
        """The worst first, without echoes."""
        own = [finding for _, finding in self.findings if not finding.echo_of]
        return sorted(own, key=lambda finding: finding.answer.rank, reverse=True)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(check, verdict, remedy, what was found, what it looks at)."""
        rows = []
        for name in self.checks:
            its = [finding for of, finding in self.findings if of == name]
            top = max(its, key=lambda finding: finding.answer.rank, default=None)
            answer = top.answer if top else OK
            verdict = Verdict.SKIPPED if name in self.skipped else answer.verdict
            found = self.skipped.get(name) or (f"{top.unit}: {top.summary}" if top else "")
            more = f" (and {len(its) - 1} more)" if len(its) > 1 else ""
            rows.append((name, str(verdict), str(answer.remedy), found + more, CHECKS[name]))
        return rows


def chosen_checks(names: Sequence[str]) -> tuple[str, ...]:
    """Raises `UserError`."""
    for name in names:
        if name not in CHECKS:
            near = get_close_matches(name, CHECKS, 1)
            fix = f"did you mean {near[0]}?" if near else "trainmaster health run --list"
            raise UserError(f"there is no check {name!r}", f"there are {', '.join(CHECKS)}", fix)
    return tuple(name for name in CHECKS if name in names or (not names and name != QUICK))


def check(
    checks: Sequence[str],
    index: Index,
    root: Path,
    kernel_log: str,
    expected: Mapping[PartKind, int],
    timeout_s: float,
    memory: Path | None = None,
) -> Checked:
    """Looks once. `memory`: the file of what was seen on this host before."""
    end_s = monotonic() + timeout_s
    judge = Judge(index, memory, expected)
    probes = [name for name in checks if name in PROBES]
    seen = asyncio.run(_looked(Rounds(root, deadline_s=max(1.0, timeout_s / 2)), probes, timeout_s - _RESERVE_S))
    findings: list[tuple[str, Finding]] = []
    skipped: dict[str, str] = {}
    unread = set()
    if KERNEL_LOG in checks:
        logged, why = _log(kernel_log, index)
        findings += [(KERNEL_LOG, finding) for finding in logged]
        skipped |= {KERNEL_LOG: why} if why else {}
        unread |= {KERNEL_LOG for finding in logged if finding.rule == "kernel-log-unreadable"}
    if QUICK in checks:
        verified = _verified(max(1.0, end_s - monotonic() - _RESERVE_S))
        findings.append((QUICK, verified))
        unread |= {QUICK} if verified.verdict is Verdict.UNKNOWN else set()
    for name, its in seen.items():
        if its.skipped and not its.texts and not its.unread:
            skipped[name] = its.skipped
        unread |= {name} if its.unread else set()
        findings += [(name, finding) for finding in judge.judge(name, its, up_us()).findings]
    kept = [
        (name, finding) for name, finding in findings if finding.answer != OK and finding.verdict is not Verdict.SKIPPED
    ]
    return Checked(findings=tuple(kept), skipped=skipped, checks=tuple(checks), unread=frozenset(unread))


async def _looked(rounds: Rounds, probes: Sequence[str], timeout_s: float) -> dict[str, Seen]:
    """What was seen within the time; what was not is unread."""
    seen: dict[str, Seen] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await rounds.run(probes, seen.__setitem__)
    for name in probes:
        if name not in seen:
            seen[name] = rounds.seen(name)
            seen[name].unread.setdefault("", Unread("deadline", f"not within {timeout_s:g} s for the whole run", None))
    return {name: seen[name] for name in probes}


def _verified(timeout_s: float) -> Finding:
    """The quick task, as a finding."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-verify-") as scratch:
        ask = child.Ask(host_dir=scratch, memory_dir="/dev/shm", jobs_dir=scratch)
        report = child.run(QUICK, ask, min(timeout_s, deadline_s(QUICK, 0, 0.0)))
    evidence = [f"{each.part} {each.unit}: {each.outcome}: {each.sentence}" for each in report.results]
    return claim("host", answer_of(report.outcome), "verification-quick", report.sentence, evidence)


def _log(path: str, index: Index) -> tuple[list[Finding], str]:
    """(findings of the last hour, why it was skipped)."""
    stream = LogStream(index, host="host", boot="this")
    try:
        if path == "/dev/kmsg":
            source = KmsgSource(path, BootId(""), frozenset({kmsg.KERNEL}))
            source.open_from_start()
            try:
                while lines := source.take().lines:
                    stream.feed(lines)
            finally:
                source.close()
        else:
            stream.feed(Path(path).read_text("utf-8", "replace").splitlines())
    except FileNotFoundError:
        return [], f"there is no {path} here"
    except OSError as error:
        why = f"the kernel's log is there and can't be read: {error.strerror or error}"
        return [claim("host", UNKNOWN, "kernel-log-unreadable", why, next=["run it as root"], offence=False)], ""
    found = [each.but(unit="host" if each.unit == "host host" else each.unit, host="") for each in stream.findings()]
    ages = [(each, age(each, Duration(up_us()), now())) for each in found]
    return [each for each, since in ages if since is None or since <= WINDOW], ""
