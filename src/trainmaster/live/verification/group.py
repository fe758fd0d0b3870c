"""The group task: pairs of ranks in rounds, then all together; rank 0 judges and prints a report in JSON.

    torchrun --nnodes 8 ... -m trainmaster.live.verification.group
    srun python -m trainmaster.live.verification.group          (with torchrun's variables set)
    trainmaster job submit examples/group-check.toml

It runs under whatever sets torchrun's variables. All ranks end with the code of the verdict (0, 2, 3), so a launcher
sees it, and none of them looks like the culprit by ending alone.

Rank 0 leads through the rendezvous store: it waits until all are there or their time is over, says who takes part in
the round, and gathers what they saw. Who falls silent is named; nobody waits for him twice. After the rounds of the
ring those who look slow are measured again, twice, with other partners that are known to be fast: disturbance passes, a
defect stays. If the peers differ too much for anybody to stand out, the ring is run again instead.
"""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, Final, NoReturn

import msgspec

from trainmaster.core.agent import environment
from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.value import Value, encode
from trainmaster.core.health.verification.conclude import TASK, GroupReport, conclude
from trainmaster.core.health.verification.level import Limits
from trainmaster.core.health.verification.outcome import Outcome, Result, answer_of
from trainmaster.core.health.verification.pairing import Round, follow_up, ring
from trainmaster.core.health.verification.pairwise import Judgement, Measured, judge
from trainmaster.core.health.words import EXIT_CODES
from trainmaster.live.verification.wire import Exchanged, Wire, exchange

_AGAIN: Final = 2
_LATE_EFFECT: Final = 2.0
_LATE_S: Final = {"cpu": 500e-6, "cuda": 20e-6}
"""Messages of a word are at the mercy of the scheduler of the kernel, on TCP for tens of microseconds; a host that is
late by less is not what holds a step up."""
Tell = Callable[[float, str], None]


class Settings(Value):
    message_bytes: int = 4 << 20
    join_s: float = 120.0
    """How long ranks are waited for at the start."""
    pair_s: float = 60.0
    """How long a pair may be silent."""
    together: tuple[tuple[str, ...], ...] = ()
    """Hosts that hang on one switch."""
    expected_gbits: float | None = None
    """Both ways together, as a pair should reach them."""
    leave_s: float = 10.0
    """How long rank 0 stays for others to read what came out."""
    effect: float = Limits().effect
    """How many times as slow as usual is slow."""


class Member(Value):
    """A rank that takes part."""

    rank: int
    local_rank: int
    host: str
    unit: str


def check(
    torch: Any, store: Any, rank: int, world: int, host: str, settings: Settings,
    *, local_rank: int = 0, wire: type[Wire] = Wire, tell: Tell = lambda share, words: None,
) -> GroupReport | None:  # fmt: skip
    """One check by all ranks of a store. Returns the report at every rank; None if rank 0 fell silent."""
    own = _Rank(torch, store, rank, host, local_rank, settings, wire)
    if rank == 0:
        return _Leader(own, world, tell).lead()
    return own.follow()


class _Rank:
    """What every rank does."""

    def __init__(
        self, torch: Any, store: Any, rank: int, host: str, local_rank: int, settings: Settings, wire: type[Wire]
    ) -> None:
        self.torch, self.store, self.rank, self.settings, self.wire = torch, store, rank, settings, wire
        self.device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
        if self.device != "cpu":
            torch.cuda.set_device(local_rank)
        store.set(f"member/{rank}", encode([host, local_rank]))

    def follow(self) -> GroupReport | None:
        """Does what rank 0 says until it says what came out."""
        number = 0
        while True:
            raw = self.get(f"round/{number}", self.settings.join_s + 2 * self.settings.pair_s)
            if raw is None:
                return None
            order = msgspec.json.decode(raw, type=_Order)
            if order.report is not None:
                self.store.add("read", 1)
                return order.report
            self.take_part(number, order)
            number += 1

    def take_part(self, number: int, order: "_Order") -> None:
        """A round, if this rank has a partner in it, or the collective."""
        if order.collective:
            self.store.set(f"sum/{self.rank}", encode(self.collective(number, order.ranks)))
            return
        for first, second in order.pairs:
            if self.rank in (first, second):
                seen = self.meet(number, first, second)
                self.store.set(f"seen/{number}/{self.rank}", encode(seen))

    def meet(self, number: int, first: int, second: int) -> Exchanged:
        import torch.distributed as dist

        try:
            store = dist.PrefixStore(f"pair/{number}/{first}/{second}", self.store)
            wire = self.wire(self.torch, store, self.device, self.rank == first, self.settings.pair_s)
            return exchange(wire, self.settings.message_bytes)
        except (RuntimeError, dist.DistError):
            return Exchanged(dead="silent")  # the words of the transport name addresses and not ranks

    def collective(self, number: int, ranks: Sequence[int]) -> tuple[float, str]:
        """Seconds of an all-reduce over all, and what is wrong with its sum. Whole numbers: the sum is exact."""
        import torch.distributed as dist

        place, torch = list(ranks).index(self.rank), self.torch
        try:
            store = dist.PrefixStore(f"all/{number}", self.store)
            timeout = timedelta(seconds=self.settings.pair_s)
            make = dist.ProcessGroupGloo if self.device == "cpu" else dist.ProcessGroupNCCL
            group = make(store, place, len(ranks), timeout)
            at = torch.arange(self.settings.message_bytes // 4, device=self.device) % 1024
            best = float("inf")
            for _ in range(2):
                tensor = (at + place).to(torch.float32)
                begun = monotonic()
                group.allreduce([tensor]).wait()
                if self.device != "cpu":
                    torch.cuda.synchronize()
                best = min(best, monotonic() - begun)
            right = (at * len(ranks) + len(ranks) * (len(ranks) - 1) // 2).to(torch.float32)
            wrong = int((tensor != right).sum())
            return best, f"{wrong} elements of the sum are wrong" if wrong else ""
        except (RuntimeError, dist.DistError) as error:
            return 0.0, f"it did not end: {str(error).splitlines()[0]}"

    def get(self, key: str, timeout_s: float) -> bytes | None:
        """What stands under a key; None if it does not come in time."""
        import torch.distributed as dist

        try:
            self.store.wait([key], timedelta(seconds=max(timeout_s, 0.01)))
            found: bytes = self.store.get(key)
        except (RuntimeError, dist.DistError):
            return None
        return found


class _Order(Value):
    """What rank 0 says: a round of pairs, the collective, or what came out."""

    pairs: tuple[tuple[int, int], ...] = ()
    ranks: tuple[int, ...] = ()
    collective: bool = False
    report: GroupReport | None = None


class _Leader:
    """What rank 0 does besides."""

    def __init__(self, own: _Rank, world: int, tell: Tell) -> None:
        self.own, self.world, self.tell, self.settings = own, world, tell, own.settings
        self.number = 0
        self.gone: set[int] = set()
        """Ranks that said nothing after a round; nobody waits for them again."""
        self.start = monotonic()
        self.measured: dict[str, list[Measured]] = {"bandwidth": [], "latency": []}

    def lead(self) -> GroupReport:
        members, missing = self.gather()
        if missing:
            return self.end(_incomplete(members, missing, monotonic() - self.start))
        rounds = ring(len(members))
        for place, pairs in enumerate(rounds):
            self.tell(
                0.1 + 0.6 * place / max(1, len(rounds)), f"round {place + 1} of {len(rounds)}, {len(pairs)} pairs"
            )
            self.round(members, pairs)
        bandwidth, latency = self.judge(members)
        for again in range(_AGAIN):
            more = self.more(members, (bandwidth, latency), rounds)
            if not more:
                break
            self.tell(0.6 + 0.1 * again, f"what is in doubt again, {again + 1} of up to {_AGAIN}")
            for pairs in more:
                self.round(members, pairs)
            bandwidth, latency = self.judge(members)
        hosts = {member.unit: member.host for member in members}
        return self.end(conclude(hosts, bandwidth, latency, self.all_together(members), monotonic() - self.start))

    def gather(self) -> tuple[list[Member], list[int]]:
        """Who came, in the order of the ring, and the ranks that did not."""
        found: dict[int, tuple[str, int]] = {}
        until = monotonic() + self.settings.join_s
        for rank in range(self.world):
            raw = self.own.get(f"member/{rank}", until - monotonic())
            if raw is not None:
                found[rank] = msgspec.json.decode(raw, type=tuple[str, int])
            self.tell(0.1 * (rank + 1) / self.world, f"{len(found)} of {self.world} ranks are here")
        several = len({host for host, _ in found.values()}) < len(found)
        members = [
            Member(rank=rank, local_rank=local, host=host, unit=f"{host} rank {rank}" if several else host)
            for rank, (host, local) in found.items()
        ]
        members.sort(key=lambda member: (member.local_rank, member.rank))  # neighbours are on different hosts
        return members, [rank for rank in range(self.world) if rank not in found]

    def round(self, members: Sequence[Member], places: Round) -> None:
        pairs = tuple((members[one].rank, members[other].rank) for one, other in places)
        number, order = self.number, _Order(pairs=pairs)
        self.give(order)
        self.own.take_part(number, order)
        units = {member.rank: member.unit for member in members}
        until = monotonic() + 2 * self.settings.pair_s
        for first, second in pairs:
            ends = []
            for rank in (first, second):
                raw = self.own.get(f"seen/{number}/{rank}", 0.0 if rank in self.gone else until - monotonic())
                if raw is None:
                    self.gone.add(rank)
                ends.append(msgspec.json.decode(raw, type=Exchanged) if raw else Exchanged(dead="silent"))
            for kind, measured in self.measured.items():
                measured.append(_measured(kind, number, (units[first], units[second]), ends[0], ends[1]))

    def judge(self, members: Sequence[Member]) -> tuple[Judgement, Judgement]:
        units = [member.unit for member in members]
        switches = _switches(members, self.settings)
        expected = None
        if self.settings.expected_gbits is not None:
            expected = 2 * self.settings.message_bytes * 8 / (self.settings.expected_gbits * 1e9)
        wide, least_s = Limits(effect=self.settings.effect), _LATE_S[self.own.device.partition(":")[0]]
        late = Limits(effect=max(_LATE_EFFECT, self.settings.effect), least_difference=least_s)
        return (
            judge("bandwidth", units, self.measured["bandwidth"], wide, switches=switches, expected_cost=expected),
            judge("latency", units, self.measured["latency"], late, switches=switches),
        )

    def more(
        self, members: Sequence[Member], judged: Sequence[Judgement], rounds: Sequence[Round]
    ) -> tuple[Round, ...]:
        """What settles what was found so far; nothing, if nothing was."""
        places = {member.unit: place for place, member in enumerate(members)}
        if any(each.cause == "unknown" and not each.doubtful for each in judged):
            return tuple(rounds)
        heard = {unit for each in self.measured["bandwidth"] if not each.problem for unit in each.hosts}
        slow = [unit for each in judged for unit in (*each.named, *each.shared_by) if unit in heard]
        doubtful = list(dict.fromkeys([*slow, *(unit for each in judged for unit in (*each.doubtful, *each.unseen))]))
        cleared = [unit for unit in judged[0].cleared if unit in judged[1].cleared and unit not in doubtful]
        paths = dict.fromkeys((places[one], places[other]) for each in judged for one, other in each.paths)
        return follow_up(
            [places[unit] for unit in doubtful],
            [places[unit] for unit in cleared],
            list(paths),
            [(places[one], places[other]) for one, other in {each.hosts for each in self.measured["latency"]}],
        )

    def all_together(self, members: Sequence[Member]) -> Result:
        """The collective over all ranks, unless some were silent before."""
        part = Result(task=TASK, part="collective", unit="group", outcome=Outcome.PASS, sentence="")
        if any(each.problem == "dead" for each in self.measured["bandwidth"]) or len(members) < 2:
            return part.but(outcome=Outcome.NOT_RUN, sentence="not all ranks answered before")
        ranks = tuple(member.rank for member in members)
        self.tell(0.9, f"all {len(ranks)} together")
        order = _Order(ranks=ranks, collective=True)
        self.give(order)
        self.own.take_part(self.number - 1, order)
        until, costs, wrong = monotonic() + 2 * self.settings.pair_s, [], []
        for member in members:
            raw = self.own.get(f"sum/{member.rank}", until - monotonic())
            cost, words = msgspec.json.decode(raw, type=tuple[float, str]) if raw else (0.0, "it said nothing")
            costs.append(cost)
            wrong += [f"{member.unit}: {words}"] if words else []
        if wrong:
            return part.but(outcome=Outcome.FAIL, sentence=wrong[0], evidence=tuple(wrong[:8]))
        numbers: dict[str, int | float] = {"all_reduce_us": round(1e6 * max(costs), 1)}
        return part.but(sentence=f"the sum of {len(ranks)} ranks is right to the bit", numbers=numbers)

    def give(self, order: _Order) -> None:
        self.own.store.set(f"round/{self.number}", encode(order))
        self.number += 1

    def end(self, found: GroupReport) -> GroupReport:
        """Tells the others, and stays until they have read it: the store may be in this process."""
        self.give(_Order(report=found))
        until = monotonic() + self.settings.leave_s
        while self.own.store.add("read", 0) < self.world - 1 and monotonic() < until:
            sleep(0.01)
        return found


def _measured(kind: str, number: int, units: tuple[str, str], one: Exchanged, other: Exchanged) -> Measured:
    if one.dead or other.dead:
        return Measured(round=number, hosts=units, problem="dead", detail=one.dead or other.dead)
    if kind == "bandwidth" and (one.corrupt or other.corrupt):
        return Measured(round=number, hosts=units, problem="corrupt", detail=one.corrupt or other.corrupt)
    if kind == "latency":
        costs, ends_s = one.latency_costs, (one.latency_s, other.latency_s)
        waited = zip(one.latency_waited, other.latency_waited, strict=True)
    else:
        costs, ends_s = one.bandwidth_costs, (one.bandwidth_s, other.bandwidth_s)
        waited = zip(one.bandwidth_waited, other.bandwidth_waited, strict=True)
    shares = tuple(here + there for here, there in waited)
    return Measured(round=number, hosts=units, costs=costs, ends_s=ends_s, waited_shares=shares)


def _switches(members: Sequence[Member], settings: Settings) -> dict[str, str]:
    """What the units share, as told; else their hosts, where these have several."""
    told = {host: f"the switch of {hosts[0]}" for hosts in settings.together for host in hosts}
    if told:
        return {member.unit: told[member.host] for member in members if member.host in told}
    return {member.unit: member.host for member in members if member.unit != member.host}


def _incomplete(members: Sequence[Member], missing: Sequence[int], duration_s: float) -> GroupReport:
    hosts = {member.unit: member.host for member in members}
    ranks = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    sentence = f"{len(missing)} of {len(missing) + len(members)} ranks did not come: {ranks}"
    part = Result(task=TASK, part="collective", unit="group", outcome=Outcome.NOT_RUN, sentence=sentence)
    nothing = Judgement(
        kind="bandwidth", cause="unknown", outcome=Outcome.NOT_RUN, sentence=sentence, unseen=tuple(hosts)
    )
    return conclude(hosts, nothing, nothing.but(kind="latency"), part, duration_s)


def surroundings(environ: Mapping[str, str]) -> tuple[int, int, int, str]:
    """Rank, world, local rank and host. Raises `KeyError` or `ValueError` where there is no launcher."""
    host = environ.get(environment.HOST) or socket.gethostname()
    return int(environ["RANK"]), int(environ["WORLD_SIZE"]), int(environ.get("LOCAL_RANK", "0")), host


def rendezvous(dist: Any, environ: Mapping[str, str], rank: int, world: int, join_s: float) -> Any:
    """The store that torchrun's variables name; rank 0 has it, unless the launcher does."""
    agents = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    inherited = environ.get(environment.STORE_FD)
    listener = None
    if rank == 0 and inherited:
        bound = socket.socket(fileno=int(inherited))
        bound.listen(4096)
        listener = bound.detach()
    store = dist.TCPStore(
        environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), world, is_master=rank == 0 and not agents,
        timeout=timedelta(seconds=join_s), wait_for_workers=False, master_listen_fd=listener,
    )  # fmt: skip
    return dist.PrefixStore(f"group-check/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return _stop("PyTorch is not installed here; pip install 'trainmaster[train]'")
    try:
        rank, world, local_rank, host = surroundings(os.environ)
        settings = Settings(
            message_bytes=int(options.message_mib * (1 << 20)) // 8 * 8,
            join_s=options.join_s,
            pair_s=options.pair_s,
            together=tuple(tuple(parse(text)) for text in options.together),
            expected_gbits=options.expected_gbits,
            effect=options.effect,
        )
        torch.set_num_threads(1)
        store = rendezvous(dist, os.environ, rank, world, settings.join_s)
    except (KeyError, ValueError) as error:
        return _stop(f"no launcher is here ({error}); run it under torchrun, or as a job")
    except (RuntimeError, dist.DistError) as error:
        return _stop(f"the other ranks can't be reached: {str(error).splitlines()[0]}")

    def tell(share: float, words: str) -> None:
        sys.stderr.write(f"{100.0 * share:3.0f} % {words}\n")
        sys.stderr.flush()

    found = check(torch, store, rank, world, host, settings, local_rank=local_rank, tell=tell)
    if found is None:
        return _stop("rank 0 does not answer")
    if rank == 0:
        print(encode(found).decode(), flush=True)
        sys.stderr.write(f"group: {found.outcome}: {found.sentence}\n")
    return EXIT_CODES[answer_of(found.outcome).verdict]


def _stop(words: str) -> int:
    sys.stderr.write(f"group: {Outcome.NOT_RUN}: {words}\n")
    return EXIT_CODES[answer_of(Outcome.NOT_RUN).verdict]


def _options(arguments: Sequence[str]) -> Any:
    parser = argparse.ArgumentParser(prog="python -m trainmaster.live.verification.group", description="Group check.")
    parser.add_argument("--message-mib", type=float, default=4.0, help="size of a block (default 4)")
    parser.add_argument("--join-s", type=float, default=120.0, help="how long ranks are waited for (default 120)")
    parser.add_argument("--pair-s", type=float, default=60.0, help="how long a pair may be silent (default 60)")
    parser.add_argument("--effect", type=float, default=Limits().effect, help="ratio to the usual time that is slow")
    parser.add_argument("--together", action="append", default=[], metavar="HOSTS", help="hosts that share a switch")
    parser.add_argument("--expected-gbits", type=float, help="what a pair should reach, both ways together")
    return parser.parse_args(arguments)


def leave(code: int) -> NoReturn:
    """Ends at once: threads of a transport that waits for a dead partner would keep the process."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
