"""What other commands say of the health of a host."""

from trainmaster.live.server.health_resources import HostVerdict


def host_lines(verdict: HostVerdict) -> list[str]:
    """What `host why` says of the health of a host; nothing if it is ok."""
    if verdict.verdict == "ok" and verdict.case is None:
        return []
    case = f" ({verdict.case})" if verdict.case else ""
    lines = [f"health: {verdict.verdict}, {verdict.remedy}{case}: {verdict.sentence}"]
    if verdict.case_reason and verdict.case_reason != verdict.sentence:
        lines.append(f"{verdict.case}: {verdict.case_reason}")
    return lines
