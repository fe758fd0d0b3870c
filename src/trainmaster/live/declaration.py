"""A fleet file with what it names beside it, and how the server comes to know of it.

At each start the server compares the declaration with its state and notes only what differs, so a restart adds nothing
to the log. All of it is taken, or, if something makes no sense, nothing, and the server does not start.

The file speaks first, not last: a proven version counts only until somebody calls another one proven, and a train keeps
the mode that it was given, since a restart must neither take a fleet back to an old version nor call a train back from
work.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainmaster.core.base.ids import ComponentName, Owner
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AnyEvent,
    CapacityDeclared,
    CatalogueDeclared,
    FleetDeclared,
    HealthConductDeclared,
    TrainDeclared,
    VersionTargeted,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.glance import Glance
from trainmaster.core.health.check import check_conduct
from trainmaster.core.health.conduct import HealthConduct
from trainmaster.core.maintenance.building import build_train
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import Catalogue
from trainmaster.core.maintenance.check import check_capacity, check_catalogue, check_component
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.live import cataloguefile, fleetfile
from trainmaster.live.fleetfile import FleetFile
from trainmaster.ports.decider import Decider
from trainmaster.ports.errors import UserError

BY = Owner("person:operator")
logger = logging.getLogger(__name__)


class Declaration(Value):
    """What should be."""

    hosts: tuple[HostSpec, ...] = ()
    catalogue: Catalogue | None = None
    """None: none is named; what was declared before stays."""
    capacity: CapacityPolicy | None = None
    trains: tuple[TrainWish, ...] = ()
    versions: dict[ComponentName, str] = {}
    health: HealthConduct | None = None
    """None: nothing is said of it; what was declared before stays."""


def load(path: Path) -> tuple[FleetFile, Declaration]:
    """Reads a fleet file and its catalogue, and tries the declaration on an empty server. Raises
    `trainmaster.live.tomlfile.FileError` or `UserError`."""
    file = fleetfile.load(path)
    catalogue = cataloguefile.load(path.parent / file.catalogue) if file.catalogue else None
    declaration = Declaration(
        hosts=file.fleet.hosts,
        catalogue=catalogue,
        capacity=file.capacity,
        trains=file.trains,
        versions=file.versions,
        health=file.health,
    )
    scratch = Engine()
    for event in events(scratch, declaration, Instant(0)):
        scratch.handle(event)
    return file, declaration


def events(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    """What the engine has to be told. Each event must have been applied before the next is asked for. Raises
    `UserError` for what makes no sense."""
    known = engine.state.hosts
    if any(host.id not in known for host in declaration.hosts):
        yield FleetDeclared(at=now, hosts=declaration.hosts, by=BY)
    for part in (_catalogue, _capacity, _versions, _trains, _health):
        yield from part(engine, declaration, now)


def _catalogue(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    catalogue, step = declaration.catalogue, engine.glance(now)
    if catalogue is not None and catalogue != step.state.maintenance.catalogue:
        _refuse(f"the catalogue {catalogue.name} is not declared", check_catalogue(step, catalogue))
        yield CatalogueDeclared(at=now, catalogue=catalogue, by=BY)


def _capacity(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    capacity, step = declaration.capacity, engine.glance(now)
    if capacity is not None and capacity != step.state.maintenance.capacity:
        _refuse("the limits of capacity are not declared", check_capacity(capacity, _units(step)))
        yield CapacityDeclared(at=now, capacity=capacity, by=BY)


def _units(step: Glance) -> Sequence[HostSpec]:
    return [host.spec for host in step.state.hosts.values()]


def _versions(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    for component, version in sorted(declaration.versions.items()):
        step = engine.glance(now)
        _refuse(
            f"{component} {version} is not declared as proven",
            check_component(step, component, version, f"version of {component}"),
        )
        proven = step.state.maintenance.targets.get(component)
        if proven is None:
            yield VersionTargeted(at=now, component=component, version=version, by=BY)
        elif proven != version:
            logger.warning(
                "the fleet file says %s %s, and %s was called proven since; that stays", component, version, proven
            )


def _trains(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    for wish in declaration.trains:
        step = engine.glance(now)
        spec = build_train(step, wish)
        if isinstance(spec, Reason):
            _refuse(f"train {wish.name} is not declared", spec)
            return
        train = step.state.maintenance.trains.get(spec.name)
        if train is None or train.spec != spec:
            yield TrainDeclared(at=now, spec=spec, by=BY)


def _health(engine: Decider, declaration: Declaration, now: Instant) -> Iterator[AnyEvent]:
    conduct, step = declaration.health, engine.glance(now)
    if conduct is not None and conduct != step.state.health.conduct:
        _refuse("how health acts is not declared", check_conduct(step, conduct))
        yield HealthConductDeclared(at=now, conduct=conduct, by=BY)


def _refuse(what: str, reason: Reason | None) -> None:
    if reason is not None:
        raise UserError(what, reason.sentence, reason.token.advice)
