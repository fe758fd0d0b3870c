"""Scenario files: a fleet file whose table `[twin]` says what a simulated fleet lives through.

catalogue = "catalogue.toml"   # required here: what operations are drawn from; beside this file

[twin]
seed = 1
duration_h = 24.0

[twin.operations]
per_day = 1_000_000            # requested in all, one by one
disruptive_per_day = 6000      # of them, those for which units leave production
wide_share = 0.11              # of the others, those wider than a unit
disruptive_wide_share = 0.02   # of the disruptive ones
stop_hosts = 64                # disruptive ones come in stops of so many neighbouring hosts,
bundle = 4                     # so many different updates for each,
singles = 4                    # and so many other operations anywhere
fails = 0.002                  # chance that the steps of one fail
boot_fails = 0.0005            # chance that a host does not come back from a boot
release_days = 30              # a component has a new version so often
weights = { burn-in = 1 }      # how often a kind or component is drawn; default: 1000, 0: never

[twin.failures]
per_thousand_host_days = 6.5
reboot_share = 0.5             # of them, those that a reboot mends; the others take the law of repairs
boot_s = 480.0                 # median; the 90th percentile is twice that
verify_s = 45.0

[[twin.job]]                   # a class of jobs; when one ends, the next is submitted
name = "huge"
count = 2                      # run or wait at any time
hosts = 2048
spares = 8
priority = 10
work_h = 480.0                 # median of the training that one needs
checkpoint_every_s = 1800.0    # or: checkpoint_every = "auto", chosen while it runs
save_s = 10.0
prepare_s = 30.0               # until the warm process of a host has imported everything
launch_s = 5.0
restore_s = 120.0              # from the launch to the first step
step_s = 5.0
notice_s = 600.0               # what it asks of planned work: see the contract of job files
checkpoint_wait_s = 2400.0
wait_for_end_s = 0.0

[[twin.release]]               # a version that comes out while the fleet runs; units begin with "1"
component = "gpu-driver"
version = "2"
after_days = 3.0
via = "rollout"                # by stages; or "target": proven for all
canary_hosts = 0               # these five as in a rollout
soak_h = 12.0
unproven_percent = 10.0
on_failure = "roll-back"
fails_return = 0.2             # the truth, hidden from policies: share of units that do not come back from it,
failure_factor = 3.0           # and how many times as often loaded units fail that carry it

Trains are the `[[train]]` tables of a fleet file (`live/trainfile.py`), except that one without a mode acts.
"""

from collections.abc import Sequence
from pathlib import Path

from trainmaster.core.base.ids import ComponentName
from trainmaster.core.base.time import HOUR, Duration, seconds
from trainmaster.core.maintenance.catalogue import Catalogue, Spread
from trainmaster.live import cataloguefile, fleetfile
from trainmaster.live.tomlfile import Document, Table
from trainmaster.twin.releases import train_problems
from trainmaster.twin.scenario import DAY, USUAL_WEIGHT, Failures, JobClass, Operations, Release, Scenario

_FAR_S = 30 * 86_400.0


def load(file: Path, changes: Sequence[str] = ()) -> Scenario:
    """Reads a scenario; `changes` (KEY=VALUE) stand in place of what the file says. Raises
    `trainmaster.live.tomlfile.FileError` with all problems."""
    document = Document(file, "scenario")
    document.change(changes)
    root = document.root
    found = fleetfile.read(document)
    if not root.has("twin"):
        document.note(("twin",), "this table is missing", "add [twin]; without it the file declares a fleet only")
    if not root.has("catalogue"):
        document.note(("catalogue",), "this key is missing", 'add catalogue = "catalogue.toml" at the top')
    root.text("catalogue", "")
    twin = root.table("twin")
    seed = twin.integer("seed", 1, 0, 2**63)
    duration_h = twin.number("duration_h", 24.0, 0.001, 24.0 * 3660)
    jobs = tuple(_job(table) for table in twin.tables("job"))
    failures = _failures(twin.table("failures"))
    catalogue = Catalogue()
    if root.has("catalogue") and not document.problems:
        catalogue = cataloguefile.load(file.parent / root.text("catalogue"))
    operations = _operations(twin.table("operations"), catalogue)
    releases = tuple(_release(table, catalogue) for table in twin.tables("release"))
    for table in (twin, root):
        table.finish()
    if found is not None:
        _check_jobs(twin, jobs, found)
    document.finish()
    assert found is not None, "a noted problem ends in FileError"
    scenario = Scenario(
        name=found.fleet.name,
        fleet=found.fleet,
        catalogue=catalogue,
        capacity=found.capacity,
        seed=seed,
        duration=Duration(round(duration_h * HOUR)),
        jobs=jobs,
        failures=failures,
        operations=operations,
        trains=found.trains,
        releases=releases,
    )
    for place, reason in train_problems(scenario):
        document.note(("train", place), reason.sentence, "change the train, or the fleet")
    document.finish()
    return scenario


def _operations(table: Table, catalogue: Catalogue) -> Operations:
    weights = table.table("weights")
    works = [str(each.name) for each in catalogue.components] + [str(each.name) for each in catalogue.kinds]
    usual = Operations()
    mix = Operations(
        per_day=table.integer("per_day", 0, 0, 1_000_000_000),
        disruptive_per_day=table.integer("disruptive_per_day", 0, 0, 10_000_000),
        wide_share=table.number("wide_share", usual.wide_share, 0.0, 1.0),
        disruptive_wide_share=table.number("disruptive_wide_share", usual.disruptive_wide_share, 0.0, 1.0),
        stop_hosts=table.integer("stop_hosts", usual.stop_hosts, 1, 100_000),
        bundle=table.integer("bundle", usual.bundle, 1, 1_000),
        singles=table.integer("singles", usual.singles, 0, 10_000),
        fails=table.number("fails", usual.fails, 0.0, 1.0),
        boot_fails=table.number("boot_fails", usual.boot_fails, 0.0, 1.0),
        release_days=table.integer("release_days", usual.release_days, 1, 10_000),
        weights={name: weights.integer(name, USUAL_WEIGHT, 0, 1_000_000) for name in works},
    )
    for each in (weights, table):
        if works or each is table:
            each.finish()
    if mix.disruptive_per_day > mix.per_day:
        table.note("disruptive_per_day", "more than are requested in all", "lower it, or raise per_day")
    return mix


def _failures(table: Table) -> Failures:
    usual = Failures()
    found = Failures(
        per_thousand_host_days=table.number("per_thousand_host_days", usual.per_thousand_host_days, 0.0, 10_000.0),
        reboot_share=table.number("reboot_share", usual.reboot_share, 0.0, 1.0),
        boot=_spread(table.number("boot_s", 480.0, 1.0, 1500.0), 2.0, 3000.0),
        verify=_spread(table.number("verify_s", 45.0, 0.1, 100.0), 1.5, 110.0),
    )
    table.finish()
    return found


def _release(table: Table, catalogue: Catalogue) -> Release:
    usual = Release(component=ComponentName(""), version="", after=Duration(0))
    component = table.text("component", may_be_empty=False)
    known = [str(each.name) for each in catalogue.components]
    if component and known and component not in known:
        table.note("component", f"the catalogue has no component {component!r}", "use one of its components")
    found = Release(
        component=ComponentName(component),
        version=table.text("version", may_be_empty=False),
        after=Duration(round(table.number("after_days", 0.0, 0.0, 3660.0) * DAY)),
        via="target" if table.choice("via", "rollout", ("target", "rollout")) == "target" else "rollout",
        canary=table.integer("canary_hosts", 0, 0, 1_000_000),
        soak=Duration(round(table.number("soak_h", usual.soak / HOUR, 0.0, 24.0 * 365) * HOUR)),
        unproven_percent=table.number("unproven_percent", usual.unproven_percent, 0.001, 100.0),
        on_failure="hold" if table.choice("on_failure", "roll-back", ("roll-back", "hold")) == "hold" else "roll-back",
        fails_return=table.number("fails_return", 0.0, 0.0, 1.0),
        failure_factor=table.number("failure_factor", 1.0, 1.0, 1000.0),
    )
    table.finish()
    return found


def _spread(median_s: float, ratio: float, limit_s: float) -> Spread:
    """Median, a 90th percentile of `ratio` times that, and a limit."""
    p90_s = min(median_s * ratio, limit_s)
    return Spread(median=seconds(median_s), p90=seconds(p90_s), limit=seconds(limit_s))


def _job(table: Table) -> JobClass:
    work_s = table.number("work_h", 12.0, 0.01, 24.0 * 365) * 3600
    found = JobClass(
        name=table.text("name", may_be_empty=False),
        count=table.integer("count", 1, 1, 100_000),
        hosts=table.integer("hosts", None, 1, 1_000_000),
        spares=table.integer("spares", 0, 0, 1_000),
        priority=table.integer("priority", 0, -1000, 1000),
        work=_spread(work_s, 2.0, 5 * work_s),
        checkpoint_every=seconds(table.number("checkpoint_every_s", 1800.0, 1.0, _FAR_S)),
        save=seconds(table.number("save_s", 10.0, 0.0, 3600.0)),
        prepare=seconds(table.number("prepare_s", 30.0, 0.001, 150.0)),
        launch=seconds(table.number("launch_s", 5.0, 0.001, 60.0)),
        restore=seconds(table.number("restore_s", 120.0, 0.001, 7200.0)),
        step=seconds(table.number("step_s", 5.0, 0.001, 600.0)),
        notice=seconds(table.number("notice_s", 0.0, 0.0, _FAR_S)),
        checkpoint_wait=seconds(table.number("checkpoint_wait_s", 0.0, 0.0, _FAR_S)),
        wait_for_end=seconds(table.number("wait_for_end_s", 0.0, 0.0, _FAR_S)),
    )
    if table.has("checkpoint_every"):
        found = found.but(checkpoint_auto=table.choice("checkpoint_every", None, ("auto",)) == "auto")
        if table.has("checkpoint_every_s"):
            table.note(
                "checkpoint_every", 'checkpoint_every = "auto" chooses the interval itself', "remove one of them"
            )
    table.finish()
    return found


def _check_jobs(twin: Table, jobs: tuple[JobClass, ...], found: fleetfile.FleetFile) -> None:
    """A gang has to fit into one cluster."""
    counts: dict[str, int] = {}
    for host in found.fleet.hosts:
        counts[host.cluster] = counts.get(host.cluster, 0) + (host.kind == "compute")
    most = max(counts.values(), default=0)
    for place, job in enumerate(jobs):
        if job.hosts > most:
            reason = f"a job takes hosts of one cluster, and the largest has {most}"
            twin.document.note(("twin", "job", place, "hosts"), reason, f"use 1 to {most}")
    names = [job.name for job in jobs]
    for place, name in enumerate(names):
        if name in names[:place]:
            twin.document.note(("twin", "job", place, "name"), f"{name!r} stands twice", "rename one")
