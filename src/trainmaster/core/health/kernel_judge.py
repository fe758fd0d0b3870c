"""From folds of a log to findings.

First every fold is judged by itself: its row's answer, what its registers say, what comes again. Then they are related
(`relate.py`): causes take their echoes, what ended is over, what others explain stops asking for anything.

The unit of a finding is what has to be acted on: an application's own fault is about the job, and names the GPU it
happened on beside it.
"""

from collections.abc import Sequence

from trainmaster.core.health.draft import Draft, by_unit
from trainmaster.core.health.finding import Finding, explained
from trainmaster.core.health.fold import OTHERS, Bursts, Fold
from trainmaster.core.health.policy import Code, Index, Repeat, Row, Text
from trainmaster.core.health.relate import relate
from trainmaster.core.health.words import APP, REBOOT, WATCH, Remedy, Verdict
from trainmaster.core.health.xid import Decoded, action_answer, decode

_DETAILS = frozenset({"xid-171", "xid-172"})
_JOB_XIDS = frozenset({"xid-43"})
_SEVERITY = {"fatal": "fatal", "non-fatal": "non-fatal"}


def judge(folds: Sequence[Fold], index: Index, file: str = "", section: str = "") -> list[Finding]:
    """The findings of one log, or of several that are judged together; their folds then name their files."""
    drafts = []
    for name in dict.fromkeys(fold.file for fold in folds):
        its = [fold for fold in folds if fold.file == name]
        of_unit = by_unit(its)  # the same line in two files is no second incident
        drafts += [draft for fold in its if (draft := _alone(fold, of_unit[fold.unit, fold.host], index)) is not None]
    for draft in drafts:
        if draft.fold is not None and draft.fold.unit.endswith(OTHERS):
            draft.summary += "; this host shows more faults than are told apart, so units are not named any more"
    drafts = relate(drafts, folds, index)
    return explained([draft.finding(file, section) for draft in drafts])


def _alone(fold: Fold, folds: Sequence[Fold], index: Index) -> Draft | None:
    """What a fold says by itself and with the others of its unit; None: nothing, it only belongs to others."""
    row = index.row(fold.rule)
    if (isinstance(row, Code) and row.role == "clears") or (isinstance(row, Text) and row.role in ("clears", "detail")):
        return None
    if fold.rule == "xid-154":
        return _action(fold, row)
    if fold.rule.startswith("sxid-"):
        return _switch(fold, row)
    if (isinstance(row, Code) and row.role == "decode") or fold.variant:
        return _decoded(fold, folds, index)
    draft = Draft(fold.rule, fold.unit, row.answer, _said(fold, row), fold)
    draft.next = row.next
    _again(draft, fold, folds, row, index)
    if fold.rule == "edac-corrected" and fold.count >= index.limits.dimm_storm:
        draft.summary += f"; {fold.count} in this log"
    if draft.answer == APP or fold.rule in _JOB_XIDS:
        draft.unit = "job"
    if fold.rule in _DETAILS:
        whole = next((each for each in folds if _details(fold, each)), None)
        draft.echo_of = fold.unit if whole else ""
        if whole is None:
            draft.answer, draft.confidence = index.row("xid-48").answer, "medium"
            draft.next = ("Xid 48, which it belongs to: it is missing from this log",)
    if fold.rule not in index.rows:
        draft.confidence = "low"
    return draft


def _said(fold: Fold, row: Row) -> str:
    code = fold.rule.partition("xid-")[2]
    named = fold.rule.startswith("xid-") and any("Xid" in line.text for line in fold.lines)
    what = f"Xid {code}: {row.means}" if named else row.means
    return f"{what} (seen {fold.count} times)" if fold.count > 1 else what


def _again(draft: Draft, fold: Fold, folds: Sequence[Fold], row: Row, index: Index) -> None:
    """What comes again in the same place asks for more."""
    said = draft.summary
    for repeat in row.repeats:
        seen = _seen(fold, folds, repeat, index)
        if seen >= repeat.at_least and repeat.answer.rank > draft.answer.rank:
            draft.answer, draft.next = repeat.answer, repeat.next or draft.next
            draft.summary = f"{said}: {seen} incidents; {repeat.why}"


def _seen(fold: Fold, folds: Sequence[Fold], repeat: Repeat, index: Index) -> int:
    """How many incidents count for a repeat."""
    limits = index.limits
    if repeat.same == "boot":
        return len(
            {each.boot for each in folds if (each.rule, each.unit, each.host) == (fold.rule, fold.unit, fold.host)}
        )
    if repeat.same == "burst":
        return fold.bursts.most_within(repeat.within_us, 0)
    if repeat.same == "job":
        jobs = [part for part in fold.parts if part[0] == "job" and part[1] != "0"]
        return min(len(jobs), fold.bursts.most_within(repeat.within_us, 0))
    if repeat.same:
        details = [fold, *(each for each in folds if _details(each, fold))]
        parts = [its for each in details for part, its in each.parts.items() if part[0] == repeat.same]
        return max((its.most_within(repeat.within_us, 0) for its in parts), default=0)
    boots = [each for each in folds if (each.rule, each.unit, each.host) == (fold.rule, fold.unit, fold.host)]
    if len(boots) == 1 or any(each.variant != fold.variant for each in boots):
        return fold.bursts.most_within(repeat.within_us, limits.incident_us)
    if all(each.first.stamp.clock == "wall" for each in boots):
        return Bursts.of(each.bursts for each in boots).most_within(repeat.within_us, limits.incident_us)
    return len(boots)  # the clock of the boot begins anew: what is seen in each of them is an incident of each


def _details(each: Fold, fold: Fold) -> bool:
    """Whether a fold carries the details of an ECC error (Xid 48)."""
    same = (each.unit, each.host, each.boot) == (fold.unit, fold.host, fold.boot)
    return same and fold.rule == "xid-48" and each.rule in _DETAILS


def _action(fold: Fold, row: Row) -> Draft | None:
    """The driver's own opinion; its newest word counts. None: it asks for nothing any more."""
    newest = fold.newest or "unknown"
    if newest == "none":
        return None
    words = {"drain-p2p": "stop peer traffic, then reset", "drain-and-reset": "drain and reset", "reset": "reset"}
    draft = Draft(fold.rule, fold.unit, action_answer(newest), "", fold)
    draft.summary = f"the driver states the recovery action of this GPU: {words.get(newest, newest)}"
    draft.next = row.next
    draft.offence = False
    return draft


def _switch(fold: Fold, row: Row) -> Draft:
    """An NVSwitch error: the severity that the line states wins over the table."""
    severity = _SEVERITY.get(fold.variant, "")
    answer = {"fatal": REBOOT, "non-fatal": WATCH}.get(severity, row.answer)
    draft = Draft(fold.rule, fold.unit, answer, "", fold)
    code = fold.rule.partition("-")[2]
    draft.summary = f"SXid {code}{f', {severity}' if severity else ''}: {row.means}"
    draft.scope = "fabric"
    draft.next = (*row.next, "all GPUs of the switch share its fate") if answer.verdict is Verdict.BAD else row.next
    return draft


def _decoded(fold: Fold, folds: Sequence[Fold], index: Index) -> Draft:
    """An NVLink error by its registers."""
    code = int(fold.rule.partition("-")[2])
    decoded = decode(code, fold.facts[0] if fold.facts else "", index)
    answer, unit = decoded.answer, fold.unit
    if decoded.now == "XID_154_EVAL":
        asked = [each for each in folds if each.rule == "xid-154" and (each.unit, each.host) == (unit, fold.host)]
        told = [draft for each in asked if (draft := _action(each, index.row("xid-154"))) is not None]
        answer = told[-1].answer if told else APP
    draft = Draft(fold.rule, unit, answer, _nvlink_words(code, decoded, fold), fold)
    draft.links = sorted(part[1] for part in fold.parts if part[0] == "link")
    draft.blames_peer = decoded.blames_peer
    if decoded.row is not None:
        _again_decoded(draft, fold, folds, decoded.row, index)
    else:
        draft.confidence = "low"
        draft.next = ("the raw line; no row of the vendor's sheet fits its registers",)
    if decoded.blames_peer:
        draft.offence = False
        draft.next = ("the other end of the link: switch tray or peer GPU",)
    if draft.answer == APP:
        draft.unit = "job"
        draft.next = ("an Xid 154 on this GPU: it states whether a reset is needed",)
    return draft


def _again_decoded(draft: Draft, fold: Fold, folds: Sequence[Fold], row: Row, index: Index) -> None:
    said = draft.summary
    _again(draft, fold, folds, row, index)
    code_row = index.row(fold.rule)
    if draft.answer.remedy is Remedy.RESET_GPU:
        for repeat in code_row.repeats:
            if _seen(fold, folds, repeat, index) >= repeat.at_least:
                draft.answer, draft.summary = repeat.answer, f"{said}; {repeat.why}"


def _nvlink_words(code: int, decoded: Decoded, fold: Fold) -> str:
    links = sorted(part[1] for part in fold.parts if part[0] == "link")
    where = f" on NVLink {', '.join(links)}" if links and links != ["-1"] else ""
    what = decoded.sub_unit or "registers"
    if decoded.row is None:
        return f"Xid {code}{where}: {what} cannot be decoded"
    means = decoded.row.means or {"IGNORE": "not fatal", "RESET_GPU": "fatal"}.get(decoded.now, "the driver decides")
    return f"Xid {code}{where}: {what}: {means}"
