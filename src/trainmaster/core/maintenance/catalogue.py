"""What can be done to a fleet: components, kinds of operation, and which versions go together.

A *component* has a version on units; a *kind* is a kind of operation. The kind `upgrade` takes its work from the
component it is asked for; all others (reboot, deep check, reseat) bring their own. *Work* says where it is done, what
it disturbs, how long it takes, which commands it is and how its success is seen: by the version that is observed, not
by an exit code, since installers lie.

What is disturbed decides how an operation is planned:

    nothing   runs beside the jobs
    restart   processes of jobs on the unit do not survive: the unit is drained
    drain     the unit must be idle
    reboot    idle, and booted once when all that is pending was applied
    power     idle, and without power meanwhile; its steps run at the controller

Rules say which versions go together (`when` a unit has this, it `needs` that); a unit does not return to production
while a rule is broken on it. `job_consistent` components must agree over all hosts of an attempt; all others slide.
"""

from enum import Enum
from typing import Final, Literal

from trainmaster.core.base.ids import ComponentName, KindName
from trainmaster.core.base.time import MINUTE, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import UnitKind

ScopeKind = Literal["host", "rack", "row", "pod", "plane", "cluster", "selection"]
"""What an operation takes exclusively. A switch, storage server or controller is a unit like a host: "host"."""

Disturbs = Literal["nothing", "restart", "drain", "reboot", "power"]

UPGRADE: Final = KindName("upgrade")


class Priority(Enum):
    """Class of an operation. The penalty is added to the time of its request and gives its place in every queue: it
    ages, so nothing starves; a repair overtakes planned work of the last hours, an emergency overtakes all."""

    EMERGENCY = "emergency"
    REPAIR = "repair"
    PLANNED = "planned"
    BACKGROUND = "background"

    __hash__ = object.__hash__  # looked up for every operation; see `core.base.machine.State`


class Spread(Value):
    """A duration as a distribution: lognormal by its median and 90th percentile, cut at the limit. Past the limit the
    operation has failed."""

    median: Duration
    p90: Duration
    limit: Duration


class StepSpec(Value):
    """One command. The words `{unit}`, `{component}`, `{version}` and `{previous}` are replaced in each argument, and
    `{python}` by the interpreter that the unit's agent runs in. It must be idempotent: a step that was interrupted by a
    crash of the agent or of the unit is run again, unless the wanted version is seen."""

    name: str
    command: tuple[str, ...]
    deadline: Duration


class Work(Value):
    """What is done, wherever it comes from."""

    scope: ScopeKind = "host"
    units: tuple[UnitKind, ...] = ("compute",)
    """Kinds of unit that it is for."""
    disturbs: Disturbs = "nothing"
    duration: Spread
    steps: tuple[StepSpec, ...] = ()
    after_reboot: tuple[StepSpec, ...] = ()
    undo: tuple[StepSpec, ...] = ()
    observe: tuple[str, ...] = ()
    """Command that prints the version; empty: success is that the steps ended well."""
    observe_deadline: Duration = MINUTE
    verify: tuple[str, ...] = ()
    """Verification tasks that the unit must pass before it returns, beside the usual ones."""


class Component(Work):
    name: ComponentName
    layer: str = ""
    """For people: firmware, kernel, fabric, container."""
    after: tuple[ComponentName, ...] = ()
    """Where both are pending on a unit, those come first; if one of them fails there, this one is not tried."""
    job_consistent: bool = False
    """All hosts of one attempt must agree on its version."""


class Kind(Work):
    name: KindName
    repairs: bool = False
    """It is for units that have failed, and brings capacity back."""
    changes: tuple[ComponentName, ...] = ()
    """Components whose version it may change (a reimage changes many)."""


class Pin(Value):
    """Versions of a component: a pattern such as `550.*`, `>=12.4`, `530.41.03`, `*`, or several with commas: any of
    them."""

    component: ComponentName
    versions: str


class Rule(Value):
    """`when` a unit has this, it `needs` that. With `same` the two components must have the same version."""

    when: Pin
    needs: Pin
    same: bool = False
    only_with: ComponentName = ComponentName("")
    """The rule is for units that have this component (a fabric manager matters where there is an NVSwitch); empty: for
    all."""
    why: str = ""


class Catalogue(Value):
    name: str = ""
    components: tuple[Component, ...] = ()
    kinds: tuple[Kind, ...] = ()
    rules: tuple[Rule, ...] = ()

    def component(self, name: ComponentName) -> Component | None:
        return next((component for component in self.components if component.name == name), None)

    def kind(self, name: KindName) -> Kind | None:
        return next((kind for kind in self.kinds if kind.name == name), None)

    def sequence(self) -> tuple[ComponentName, ...]:
        """The order in which pending updates of a unit are applied: what comes `after` others behind them, else as
        declared. Components of a cycle (which no checked catalogue has) come last."""
        names = {component.name for component in self.components}
        placed: dict[ComponentName, None] = {}
        rest = list(self.components)
        while ready := [one for one in rest if all(name in placed or name not in names for name in one.after)]:
            placed[ready[0].name] = None
            rest.remove(ready[0])
        return (*placed, *(component.name for component in rest))

    def job_consistent(self) -> tuple[ComponentName, ...]:
        return tuple(sorted(component.name for component in self.components if component.job_consistent))


def takes_capacity(work: Work) -> bool:
    """The units must leave production for it."""
    return work.disturbs != "nothing"
