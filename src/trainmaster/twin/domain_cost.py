"""The cost of a domain size, lived through under the very engine: train, planner, ledger, placement and gangs.

A cluster of one pod, all hosts alike. Gangs are placed by the engine, in an order of chance; domains are built by
`domains.build` and begin at a host of chance, so that boundaries fall anywhere in a gang. In each cycle one update is
due on every host. A stop drains its domain, gangs are handed over to free hosts after a save, the hosts are worked on
and verified, and return.

    interruptions   hosts x the time in which a gang stands still for a stop of the train, as it really came about
    held out        size x the time until the cycle was over, since the buffer is kept for so long: the ledger is given
                    a maintenance buffer of just the size. With `rest`: the time in which hosts really were out

Paired seeds: the order of gangs, the first host and the durations of work on a host have streams of their own, so every
size meets the same luck.

Where it differs from the closed form. Hosts of a stop are worked on side by side and return one by one, so a stop lasts
as long as its slowest host. Gangs move to free hosts, the first time to such as the train has yet to visit: one hit
more a cycle, for one gang (a hundredth of the cost for 3,072 hosts, a twentieth for 512). What waits costs more. Left
out: failures (they hit whatever the size is), jobs that come and go. Gangs need as many free hosts as a domain has.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.ids import ComponentName, HostId, KindName, Owner, TrainName
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, SECOND, Duration, Instant, after
from trainmaster.core.base.value import Value
from trainmaster.core.events import TrainDeclared, VersionTargeted
from trainmaster.core.fleet.inventory import ClusterBlock, FleetSpec, HostBlock, lay_out
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, Share
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Kind, Spread, StepSpec
from trainmaster.core.maintenance.domain_size import SizeModel
from trainmaster.core.maintenance.domains import build
from trainmaster.core.maintenance.train import Train, TrainSpec
from trainmaster.twin.releases import BOARDING
from trainmaster.twin.scenario import QUICK, START, Failures, JobClass, Scenario, spread
from trainmaster.twin.world import World

_UPDATE: Final = ComponentName("update")
_MAIN: Final = TrainName("main")
_BY: Final = Owner("person:twin")
_LAUNCH: Final = Duration(5 * SECOND)
_VERIFY: Final = Duration(30 * SECOND)
_SPREAD: Final = 1.5
"""90th percentile of the work on a host, over its median."""
_MEAN: Final = 1.0513
"""Mean of that lognormal law over its median."""


class LivedCost(Value):
    """What a size cost, in host-hours a cycle, on average over the cycles of one seed."""

    size: int
    seed: int
    stops: int
    """Of a cycle."""
    hits: float
    """Interruptions of gangs in a cycle."""
    interruptions_host_h: float
    held_out_host_h: float
    total_host_h: float
    out_host_h: float
    """In which hosts were out, or on their way."""
    most_out: int
    """Hosts at once."""
    missed: int
    """Visits that did not come about."""
    late: Duration
    """By which the worst cycle ended after its time."""


class LivedSize(Value):
    """What a size cost over all seeds, in host-hours a cycle."""

    size: int
    seeds: int
    mean_host_h: float
    low_host_h: float
    """Of the cheapest seed."""
    high_host_h: float
    """Of the dearest seed."""
    interruptions_host_h: float
    held_out_host_h: float
    hits: float
    late: Duration


def free_hosts(model: SizeModel) -> int:
    """Hosts without a gang: the largest size that can be lived through, since gangs move to them."""
    return model.hosts - sum(gang.hosts * gang.count for gang in model.gangs)


def live_through(sizes: Sequence[int], seeds: Sequence[int], model: SizeModel, cycles: int = 1) -> list[LivedSize]:
    """Every size with the same seeds."""
    assert seeds
    found = []
    for size in sizes:
        costs = [cost_by_engine(size, seed, model, cycles) for seed in seeds]
        totals = [each.total_host_h for each in costs]
        found.append(
            LivedSize(
                size=size,
                seeds=len(seeds),
                mean_host_h=sum(totals) / len(seeds),
                low_host_h=min(totals),
                high_host_h=max(totals),
                interruptions_host_h=sum(each.interruptions_host_h for each in costs) / len(seeds),
                held_out_host_h=sum(each.held_out_host_h for each in costs) / len(seeds),
                hits=sum(each.hits for each in costs) / len(seeds),
                late=Duration(max(each.late for each in costs)),
            )
        )
    return found


def cost_by_engine(size: int, seed: int, model: SizeModel, cycles: int = 1) -> LivedCost:
    """Lives through the cycles. The model must have passed `domain_size.check`, and have `size` free hosts."""
    assert 1 <= size <= free_hosts(model), (size, free_hosts(model))
    assert cycles >= 1, cycles
    return _Life(size, seed, model).run(cycles)


class _Life:
    def __init__(self, size: int, seed: int, model: SizeModel) -> None:
        self.size, self.seed, self.model = size, seed, model
        self.chance = Stream.of(seed, "domain-cost")
        self.scenario = _scenario(size, seed, model, self.chance)
        self.world = World(self.scenario)
        self.turn = self.chance.integer(model.hosts)
        self.out_us = self.most_out = 0
        self._out, self._since = 0, START

    def run(self, cycles: int) -> LivedCost:
        world = self.world
        world.watch = lambda event, effects: self._count()
        world.start()
        world.kernel.run(after(START, BOARDING + self.model.lost))
        trained = sum(len(gang.hosts) for gang in world.gangs.by_job.values() if gang.trains)
        assert trained == self.model.hosts - free_hosts(self.model), trained
        train = self._depart()
        for number in range(1, cycles + 1):
            self._target(str(number + 1))
            while len(train.proofs) < number:
                world.kernel.run(after(world.kernel.now, self.model.cycle // 16))
            if train.cycle_began > world.kernel.now:
                world.kernel.run(Instant(train.cycle_began - 1))
        return self._told(train, cycles)

    def _depart(self) -> Train:
        hosts = self.scenario.fleet.hosts
        units = (*hosts[self.turn :], *hosts[: self.turn])
        domains = tuple(domain.units for domain in build(units, self.size))
        spec = TrainSpec(name=_MAIN, domains=domains, cycle=self.model.cycle, stop_limit=self.model.cycle)
        self._target("1")
        self.world.submit(TrainDeclared(at=self.world.kernel.now, spec=spec, by=_BY))
        return self.world.engine.state.maintenance.trains[_MAIN]

    def _target(self, version: str) -> None:
        self.world.submit(VersionTargeted(at=self.world.kernel.now, component=_UPDATE, version=version, by=_BY))

    def _count(self) -> None:
        """Adds up how long hosts were out, by the ledger."""
        now = self.world.kernel.now
        self.out_us += self._out * (now - self._since)
        self._since = now
        books = self.world.engine._derived.planner.ledger.account().books
        self._out = books[0].out_planned + books[0].promised if books else 0
        self.most_out = max(self.most_out, self._out)

    def _told(self, train: Train, cycles: int) -> LivedCost:
        gangs = self.world.gangs
        lost_us = gangs.lost_gpu_us.get("train", 0) // gangs.gpus
        interruptions = lost_us / cycles / HOUR
        late = [max(0, proof.ended_at - proof.began_at - self.model.cycle) for proof in train.proofs[:cycles]]
        held = self.size * (self.model.cycle + sum(late) / cycles) / HOUR
        out = self.out_us / cycles / HOUR
        held_out = out if self.model.rest else held
        return LivedCost(
            size=self.size,
            seed=self.seed,
            stops=len(train.spec.domains),
            hits=sum(row.get("train", 0) for row in gangs.interruptions.values()) / cycles,
            interruptions_host_h=interruptions,
            held_out_host_h=held_out,
            total_host_h=interruptions + held_out,
            out_host_h=out,
            most_out=self.most_out,
            missed=sum(len(proof.missed) for proof in train.proofs[:cycles]),
            late=Duration(max(late)),
        )


def _scenario(size: int, seed: int, model: SizeModel, chance: Stream) -> Scenario:
    buffers = Buffers(maintenance=Share(hosts=size), failure=Share(hosts=1))
    return Scenario(
        name="domain-cost",
        fleet=_fleet(model.hosts),
        catalogue=_catalogue(model),
        capacity=CapacityPolicy(books=(Book(name="c", cluster="c", buffers=buffers),)),
        seed=seed,
        jobs=tuple(_job(model, number, hosts) for number, hosts in enumerate(chance.shuffled(_sizes(model)))),
        failures=Failures(per_thousand_host_days=0.0, verify=Spread(median=_VERIFY, p90=_VERIFY, limit=_VERIFY)),
    )


def _sizes(model: SizeModel) -> list[int]:
    return [gang.hosts for gang in model.gangs for _ in range(gang.count)]


def _fleet(hosts: int) -> FleetSpec:
    names = tuple(HostId(f"h{number:06}") for number in range(hosts))
    block = HostBlock(hosts=names, platform="grand-teton", hosts_per_rack=1, racks_per_pod=hosts)
    return lay_out("domain-cost", (ClusterBlock(name="c", fabric="roce", blocks=(block,)),))


def _catalogue(model: SizeModel) -> Catalogue:
    median = Duration(max(round((model.stop - _VERIFY) / _MEAN), SECOND))
    work = Spread(median=median, p90=Duration(round(median * _SPREAD)), limit=Duration(20 * median))
    step = StepSpec(name="install", command=("install", "{version}"), deadline=Duration(20 * median))
    return Catalogue(
        name="domain-cost",
        components=(
            Component(name=_UPDATE, disturbs="drain", duration=work, steps=(step,), observe=("show", "{component}")),
        ),
        kinds=(Kind(name=KindName("repair"), repairs=True, duration=spread(60, 60, 60)),),
    )


def _job(model: SizeModel, number: int, hosts: int) -> JobClass:
    """It stands still for `lost` at each hit: to meet, to launch, to read its checkpoint."""
    life = Duration(1000 * model.cycle)
    return JobClass(
        name=f"gang-{number}",
        count=1,
        hosts=hosts,
        work=Spread(median=life, p90=life, limit=life),
        save=Duration(0),
        launch=_LAUNCH,
        restore=Duration(max(model.lost - _LAUNCH - QUICK, SECOND)),
    )
