"""What holds for a host, all that stands against it considered.

The worst finding that is no echo decides. Nothing against it is *ok* only if somebody has looked since it booted and
its agent is there to go on looking; else it is *unknown*, which is not healthy.
"""

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health.book import Health, Standing
from trainmaster.core.health.words import OK, UNKNOWN, Answer


class Judgement(Value):
    answer: Answer
    standing: Standing | None
    """What decides; None: nothing stands against it."""
    sentence: str


def ordered(health: Health, name: HostId) -> tuple[Standing, ...]:
    """What stands against a host: causes before echoes, each worst first, then the older."""
    standings = health.standings.get(name, ())
    return tuple(sorted(standings, key=lambda one: (bool(one.finding.echo_of), *_badness(one), one.since)))


def _badness(standing: Standing) -> tuple[int, int]:
    verdict, remedy = standing.finding.answer.rank
    return -verdict, -remedy


def judge(health: Health, host: Host) -> Judgement:
    """The verdict on a host."""
    standings = ordered(health, host.id)
    first = standings[0] if standings else None
    if first is not None and first.finding.answer.rank > UNKNOWN.rank:
        return Judgement(answer=first.finding.answer, standing=first, sentence=first.finding.summary)
    blind = _blind(health, host)
    if blind:
        return Judgement(answer=UNKNOWN, standing=None, sentence=blind)
    if first is not None:
        return Judgement(answer=first.finding.answer, standing=first, sentence=first.finding.summary)
    return Judgement(answer=OK, standing=None, sentence="no probe sees a fault")


def _blind(health: Health, host: Host) -> str:
    """Why nobody can know; empty: somebody looks."""
    if not host.boot:
        return "its agent has never registered"
    if not host.connected:
        return "its agent is away"
    if health.looked.get(host.id) != host.boot:
        return "no probe has reported since it booted"
    return ""
