"""Relations between drafts of one log: cause and echo, before and after, what is over.

In this order, since each step sees what the ones before it left:

1. what a line only implies (an Xid 45 that names another one) becomes a draft of its own, where that one is missing
2. a row that joins others takes their answer
3. GPU errors that a lost GPU explains, switches that lost a link to it, ports above it
4. rows that name the rows which explain them
5. clean-up records (45) and their causes; hung tasks behind GPU errors; ends of links that blame the other end
6. what was cleared, and what a boot has ended

A cause must come first, within a time, on the same host; where lines have no times, within so many lines. Only links to
a lost GPU may be missed a few seconds before the GPU is.
"""

import re
from collections.abc import Sequence

from trainmaster.core.health.draft import Draft, before, by_unit, comparable, ends
from trainmaster.core.health.fold import Fold
from trainmaster.core.health.policy import Code, Index, Text
from trainmaster.core.health.words import APP, OK, REBOOT, RESET, SUSPECT, WATCH, Remedy, Verdict

LOST = "xid-79"
NVLINK = frozenset({"xid-74", "xid-108", "xid-136", "xid-137", *(f"xid-{code}" for code in range(144, 151)), "xid-155"})
_ROOTS = ("xid-149", "xid-150", "xid-148", "xid-144", "xid-74", "xid-147", "xid-146", "xid-145")
"""NVLink errors by how near they are to the cause: a link that goes down makes the units above it complain."""
_OF_THE_BOOT = frozenset({Remedy.RESET_GPU, Remedy.RESET_GPU_LATER, Remedy.REBOOT})


def relate(drafts: list[Draft], folds: Sequence[Fold], index: Index) -> list[Draft]:
    """The drafts, related; implied ones added."""
    drafts = [*drafts, *_implied(drafts, folds, index)]
    _join(drafts, index)
    _behind_a_lost_gpu(drafts, folds, index)
    _explained_by_rows(drafts, index)
    _clean_up(drafts, index)
    _stuck(drafts, index)
    _together(drafts)
    drafts = [*drafts, *_far_ends(drafts)]
    _app_caused(drafts, index)
    _cleared(drafts, folds, index)
    return drafts


def _implied(drafts: Sequence[Draft], folds: Sequence[Fold], index: Index) -> list[Draft]:
    """What Xid 45 names as its cause and the log does not hold. Several GPUs of one fabric: one of them is blamed."""
    present = {(draft.rule, draft.part, draft.host) for draft in drafts}
    found: list[Draft] = []
    for fold in folds:
        for code in dict.fromkeys(fold.facts if fold.rule == "xid-45" else ()):
            rule = f"xid-{code}"
            if (rule, fold.unit, fold.host) in present:
                continue
            row = index.row(rule)
            answer = RESET if rule in ("xid-149", "xid-150") else row.answer
            draft = Draft(rule, fold.unit, answer, f"Xid {code} named by Xid 45 as its cause: {row.means}", fold)
            draft.confidence = "medium"
            draft.next = (f"the record of Xid {code} itself: it is missing from this log",)
            if answer == APP:
                draft.unit = "job"
            found.append(draft)
    fabric = [draft for draft in found if draft.rule in NVLINK]
    if len({draft.part for draft in fabric}) > 1 and not any(draft.rule in NVLINK for draft in drafts):
        root = min(fabric, key=lambda draft: _ROOTS.index(draft.rule) if draft.rule in _ROOTS else len(_ROOTS))
        root.answer, root.scope = REBOOT, "fabric"
        root.summary += f"; first suspect of {len({draft.part for draft in fabric})} GPUs of one fabric"
        for draft in fabric:
            draft.echoes(root)
    return found


def _join(drafts: Sequence[Draft], index: Index) -> None:
    for draft in drafts:
        row = index.row(draft.rule)
        if not isinstance(row, Text) or not row.joins:
            continue
        for other in drafts:
            if other.rule not in row.joins or other.host != draft.host:
                continue
            if draft.fold and other.fold and _beside(draft.fold, other.fold, index, index.limits.stuck_us):
                draft.answer = max(draft.answer, other.answer, key=lambda answer: answer.rank)
                draft.summary += f"; {other.summary}"
                draft.more += other.proof()
                other.echoes(draft)


def _behind_a_lost_gpu(drafts: Sequence[Draft], folds: Sequence[Fold], index: Index) -> None:
    limits = index.limits
    lost = [draft for draft in drafts if draft.rule == LOST and draft.fold]
    below = [fold for fold in folds if fold.rule == "aer-no-handler" and fold.unit.startswith("gpu ")]
    for cause in lost:
        assert cause.fold is not None
        for draft in _others(drafts, cause):
            assert draft.fold is not None
            soon = _around(cause.fold, draft.fold, index, limits.echo_us)
            later = before(cause.fold, draft.fold, limits, limits.stuck_us)
            same = draft.part == cause.part and draft.answer.verdict is Verdict.BAD
            if (same and later) or (draft.rule in NVLINK and soon):
                draft.echoes(cause)
    for draft in sorted(drafts, key=lambda each: each.rule != "aer-fatal"):
        if draft.rule.startswith("aer-") and draft.unit.startswith("pcie ") and draft.fold and not draft.echo_of:
            _port(draft, drafts, lost, below, index)


def _port(port: Draft, drafts: Sequence[Draft], lost: Sequence[Draft], below: Sequence[Fold], index: Index) -> None:
    """A port whose link failed is an echo of the GPU below it, if the log tells which one that is."""
    assert port.fold is not None
    limits = index.limits
    if port.rule != "aer-fatal":
        fatal = [
            draft
            for draft in drafts
            if draft.rule == "aer-fatal" and (draft.unit, draft.host) == (port.unit, port.host)
        ]
        if fatal:
            port.echoes(next((draft for draft in lost if fatal[0].echo_of == draft.unit), fatal[0]))
        return
    near = [fold for fold in below if fold.host == port.host and _beside(port.fold, fold, index, limits.echo_us)]
    gone = [each for each in lost if each.host == port.host and each.fold is not None]
    gone = [each for each in gone if each.fold and _beside(port.fold, each.fold, index, limits.echo_us)]
    named = [each for each in gone if each.part in {fold.unit for fold in near}]
    if named or (gone and not near):
        port.echoes((named or gone)[0])
    elif near:
        port.more += near[0].proof()
        port.part = port.unit = near[0].unit
        port.summary += "; it is the link of this GPU"


def _beside(one: Fold, other: Fold, index: Index, within_us: int) -> bool:
    return before(one, other, index.limits, within_us) or before(other, one, index.limits, within_us)


def _others(drafts: Sequence[Draft], cause: Draft) -> list[Draft]:
    """Drafts of the same host that are not the cause and no echoes yet."""
    return [each for each in drafts if each is not cause and each.host == cause.host and each.fold and not each.echo_of]


def _explained_by_rows(drafts: Sequence[Draft], index: Index) -> None:
    of_rule: dict[str, list[Draft]] = {}
    for each in drafts:
        of_rule.setdefault(each.rule, []).append(each)
    for draft in drafts:
        row = index.row(draft.rule)
        if draft.echo_of or not isinstance(row, Text | Code) or draft.fold is None or not row.echo_of:
            continue
        names = {f"xid-{name}" if isinstance(name, int) else name for name in row.echo_of}
        causes = [cause for name in names for cause in of_rule.get(name, ()) if cause.fold]
        for cause in sorted(causes, key=lambda each: _nearness(each, draft), reverse=True):
            fits = cause.fold and not (draft.rule.startswith("aer-") and cause.rule == LOST)
            here = cause.host == draft.host or "host" in draft.rule or cause.rule == "ib-port-error"
            if fits and cause.fold and here and _explains(cause, draft, index) and _same_card(draft, cause):
                draft.echoes(cause)


def _nearness(cause: Draft, echo: Draft) -> tuple[bool, int, int]:
    """Which of several causes is the likeliest: the host whose number a peer's address ends with, the one that says it
    most often if hosts complain about each other, and the one that began last."""
    assert cause.fold is not None
    assert echo.fold is not None
    peers = {fact.rpartition(".")[2] for fact in echo.fold.facts}
    number = re.search(r"0*(\d+)$", cause.host)
    across = cause.host != echo.host
    return bool(across and number and number[1] in peers), cause.fold.count * across, cause.fold.first.number


def _explains(cause: Draft, draft: Draft, index: Index) -> bool:
    """Whether the times fit."""
    assert cause.fold is not None
    assert draft.fold is not None
    if draft.rule.startswith("sxid-"):
        return _around(cause.fold, draft.fold, index, index.limits.echo_us)
    return before(cause.fold, draft.fold, index.limits, _patience(draft, index))


def _around(cause: Fold, echo: Fold, index: Index, within_us: int) -> bool:
    """As `before`, for what may be told a few seconds before its cause is."""
    limits = index.limits
    return before(cause, echo, limits, within_us) or before(echo, cause, limits, limits.early_us)


def _patience(draft: Draft, index: Index) -> int:
    """How long after its cause an echo may come: as long as the cause lasts, if the echo is about the whole host."""
    return index.limits.stuck_us if draft.rule.startswith(("hung-", "soft-")) else 24 * index.limits.incident_us


def _same_card(draft: Draft, cause: Draft) -> bool:
    """Functions of a card belong to its GPU, name spaces to their controller, and to no other."""
    if draft.unit.startswith("disk ") and cause.unit.startswith("disk "):
        return draft.unit.startswith(cause.unit)
    if not draft.unit.startswith("pcie "):
        return True
    return draft.unit.removeprefix("pcie ").startswith(cause.part.removeprefix("gpu ") + ".")


def _clean_up(drafts: Sequence[Draft], index: Index) -> None:
    """Xid 45 follows its cause: the one it names, an earlier one on its GPU, or the end of a job."""
    for draft in drafts:
        if draft.rule != "xid-45" or draft.fold is None:
            continue
        named = {f"xid-{code}" for code in draft.fold.facts}
        causes = [
            other
            for other in _gpu_errors(drafts, draft)
            if other.rule in named
            or (other.fold and before(other.fold, draft.fold, index.limits, index.limits.echo_us))
        ]
        causes.sort(key=lambda other: (other.rule in named, other.part == draft.part, other.answer.rank), reverse=True)
        draft.unit = "job"
        if causes:
            draft.answer, draft.summary = OK, f"channels removed as clean-up after {causes[0].rule.replace('-', ' ')}"
            draft.echo_of = causes[0].part
        elif draft.fold.count > 1:
            draft.answer, draft.summary = APP, f"channels of an ended job were removed ({draft.fold.count} lines)"
        else:
            draft.unit, draft.answer, draft.summary = draft.part, WATCH, "one clean-up of channels without a cause"
            draft.confidence = "low"
            draft.next = ("who ended the job; on NVSwitch hosts restart the fabric manager if nobody did",)


def _gpu_errors(drafts: Sequence[Draft], draft: Draft) -> list[Draft]:
    return [
        other
        for other in drafts
        if other.rule.startswith("xid-") and other.rule != "xid-45" and other.host == draft.host
    ]


def _stuck(drafts: Sequence[Draft], index: Index) -> None:
    """A task that hangs soon after a GPU error hangs in the driver."""
    for draft in drafts:
        if not draft.rule.startswith("hung-task") or draft.fold is None:
            continue
        behind = [
            other
            for other in drafts
            if other.rule.startswith("xid-") and other.fold and other.host == draft.host
            and before(other.fold, draft.fold, index.limits, index.limits.stuck_us)
        ]  # fmt: skip
        lost = [other for other in behind if other.rule == LOST]
        if lost:
            draft.echoes(lost[0])
        elif behind and draft.answer.verdict is not Verdict.BAD:
            draft.answer = REBOOT
            draft.summary = "a task is stuck since a GPU error: the driver does not answer"
            draft.confidence = "medium"
            draft.next = ("the stack of the task for frames of [nvidia]; give every probe of the GPU a deadline",)
            draft.more += behind[-1].proof()
            for other in behind:
                if other.rule == "xid-45":
                    other.echoes(draft)


def _far_ends(drafts: Sequence[Draft]) -> list[Draft]:
    """One suspect for all GPUs whose registers blame the other end of the link."""
    hosts = dict.fromkeys(draft.host for draft in drafts if draft.blames_peer and not draft.echo_of)
    return [_far_end([draft for draft in drafts if draft.blames_peer and draft.host == host]) for host in hosts]


def _far_end(drafts: Sequence[Draft]) -> Draft:
    blaming = [draft for draft in drafts if not draft.echo_of]
    links = sorted({f"{draft.part} NVLink {link}" for draft in blaming for link in draft.links})
    suspect = Draft("nvlink-far-end", "fabric", SUSPECT, "registers blame the other end of these links")
    suspect.host = blaming[0].host
    suspect.more = [line for draft in blaming for line in draft.proof()]
    suspect.summary += f": {', '.join(links)}"
    suspect.next = ("switch tray and peers at the other end of these links",)
    suspect.confidence = "medium"
    return suspect


def _together(drafts: Sequence[Draft]) -> None:
    """Links that went down in one second have one cause: a cable, a switch, the host."""
    down = [draft for draft in drafts if draft.rule == "link-down" and draft.fold]
    for draft in down:
        assert draft.fold is not None
        at = draft.fold.first.stamp.at_us
        others = [
            each.unit
            for each in down
            if each is not draft and each.host == draft.host and each.fold and at is not None
            and comparable(each.fold, draft.fold) and abs((each.fold.first.stamp.at_us or 0) - at) <= 1_000_000
        ]  # fmt: skip
        if others:
            draft.summary += f"; in the same second as {', '.join(others)}: one cause"


def _app_caused(drafts: Sequence[Draft], index: Index) -> None:
    """A fault that follows a job's own fault on the same GPU was caused by the job; the GPU needs its remedy anyway."""
    for draft in drafts:
        if draft.rule not in ("xid-109", "xid-43") or draft.fold is None:
            continue
        for other in drafts:
            first = other.rule in ("xid-13", "xid-31") and other.part == draft.part and other.host == draft.host
            if first and other.fold and before(other.fold, draft.fold, index.limits, index.limits.echo_us):
                draft.offence = False
                draft.summary += (
                    f"; {other.rule.replace('x', 'X', 1).replace('-', ' ')} just before it: the job caused it"
                )


def _cleared(drafts: Sequence[Draft], folds: Sequence[Fold], index: Index) -> None:
    enders = by_unit(fold for fold in folds if fold.rule in index.enders)
    for draft in drafts:
        if draft.fold is None or (
            draft.answer.verdict is not Verdict.BAD and draft.answer.verdict is not Verdict.WATCH
        ):
            continue
        if draft.answer.rank > index.row(draft.rule).answer.rank and draft.answer.remedy not in _OF_THE_BOOT:
            continue  # what comes again and again is not over when it is over once more
        its = enders.get((draft.fold.unit, draft.host), ())
        by = next((fold for fold in its if _ends(fold, draft, index)), None)
        if by is not None:
            draft.answer = WATCH if by.rule == "xid-154" else index.row(by.rule).answer
            draft.summary += "; it is over"
            draft.more += by.proof()
        elif draft.answer.remedy in _OF_THE_BOOT and draft.fold.past:
            draft.answer, draft.summary = WATCH, f"{draft.summary}; the host was booted since"
            draft.next = ("whether the unit is there and works after the boot",)


def _ends(fold: Fold, draft: Draft, index: Index) -> bool:
    """Whether a fold says that what a draft reports is over, for the same unit."""
    assert draft.fold is not None
    if (fold.unit, fold.host) != (draft.fold.unit, draft.host) or fold is draft.fold or not ends(fold, draft.fold):
        return False
    if fold.rule == "xid-154":
        return fold.newest == "none" and draft.answer.remedy in (Remedy.RESET_GPU,)
    row = index.row(fold.rule)
    names: set[str] = set()
    if isinstance(row, Code):
        names = {f"xid-{code}" for code in row.clears}
    elif isinstance(row, Text):
        names = set(row.clears)
    return draft.rule in names
