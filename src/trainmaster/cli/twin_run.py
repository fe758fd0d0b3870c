"""`trainmaster twin run`: lets a scenario happen and tells what became of it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed, NoSuchThing, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, say
from trainmaster.cli.twin_meter import Meter, Progress
from trainmaster.cli.words import DURATION
from trainmaster.core.base.hostlist import parse
from trainmaster.core.base.time import seconds
from trainmaster.core.base.value import encode
from trainmaster.core.fleet.inventory import groups_of
from trainmaster.core.words import count_text

if TYPE_CHECKING:
    from trainmaster.twin.report import RunReport
    from trainmaster.twin.run import Run
    from trainmaster.twin.scenario import Scenario
    from trainmaster.twin.world import World


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin run scenarios/two-clusters.toml", "its own duration and seed"),
        ("trainmaster twin run scenarios/two-clusters.toml --duration 1h --out day", "pictures and report in a folder"),
        ("trainmaster twin run scenarios/two-clusters.toml --seed 7 --profile -o json", "for programs"),
        (
            "trainmaster twin run scenarios/two-clusters.toml --duration 365d --operations 2000 --disruptive 2000"
            " --least-hosts 32",
            "a year",
        ),
    ],
    exit_codes=(0, 1, 2),
)
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(0, 2**63), metavar="N", help="Instead of the scenario's.")
@click.option("--duration", type=DURATION, metavar="TIME", help="Simulated; instead of the scenario's.")
@click.option("--operations", type=click.IntRange(0), metavar="N", help="Operations a day, instead of the scenario's.")
@click.option("--disruptive", type=click.IntRange(0), metavar="N", help="Disruptive ones of them a day.")
@click.option("--least-hosts", type=click.IntRange(1), metavar="N", help="Only jobs of at least so many hosts.")
@click.option("--only", metavar="NAMES", help="Only these inputs, as `twin minimize` names them: r17,f3,small-2.")
@click.option("--hosts", metavar="LIST", help="Only these hosts.")
@click.option("--watch-every", type=click.IntRange(0), default=200_000, show_default=True, metavar="N",
              help="Look at the whole state after so many events; 0: watch nothing.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Measure the engine's time by type of event.")
@click.option("--hash", "hashed", is_flag=True, help="Hash the log of events: equal for equal histories.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write report.json and capacity.svg there.")
@shows
def run(
    scenario: Path,
    seed: int | None,
    duration: float | None,
    operations: int | None,
    disruptive: int | None,
    least_hosts: int | None,
    only: str | None,
    hosts: str | None,
    watch_every: int,
    profile: bool,
    hashed: bool,
    out: Path | None,
    output: Output,
) -> None:
    """Let a simulated fleet live through a scenario, and report.

    The engine is the very one that runs live; hosts, jobs, failures and requests are simulated. The same seed gives the
    same history. Ends with 1 if an invariant was broken.
    """
    from trainmaster.cli.scenariofile import load
    from trainmaster.twin.run import Options, Run

    chosen = _changed(load(scenario), seed, duration, operations, disruptive, least_hosts)
    options = Options(whole_every=watch_every, hashed=hashed, profiled=profile)
    report = Run(chosen, options, Meter(), _tells(), _world(chosen, only, hosts)).run()
    if out is not None:
        _write(out, report)
    output.one("twin-run", report, fields(report))
    if report.invariants_broken:
        for sentence in report.broken[:10]:
            say(f"broken: {sentence}")
        raise Failed(
            f"{report.invariants_broken} times an invariant was broken",
            "the policies or the twin have a defect",
            f"find what it takes: trainmaster twin minimize {scenario} --seed {report.seed}",
        )


def _world(scenario: "Scenario", only: str | None, hosts: str | None) -> "World | None":
    """With a part of what comes in, and of the hosts; None: with all."""
    from trainmaster.twin.inputs import Inputs
    from trainmaster.twin.world import World

    if only is None and hosts is None:
        return None
    known = {host.id for host in scenario.fleet.hosts}
    chosen = parse(hosts, groups_of(scenario.fleet.hosts)) if hosts is not None else ()
    unknown = [host for host in chosen if host not in known]
    if unknown:
        raise NoSuchThing(f"the scenario has no host {', '.join(unknown[:5])}", "", "see `trainmaster fleet show FILE`")
    if hosts is not None and scenario.trains:
        raise WrongUsage("--hosts does not go with trains", "their domains are of the whole fleet", "leave out --hosts")
    names = None if only is None else frozenset(name.strip() for name in only.split(",") if name.strip())
    classes = "|".join(re.escape(job.name) for job in scenario.jobs)
    form = re.compile(rf"[rsbf]\d+|({classes})-\d+" if classes else r"[rsbf]\d+")
    odd = sorted(name for name in names or () if not form.fullmatch(name))
    if odd:
        told = ", ".join(repr(name) for name in odd[:5])
        raise NoSuchThing(f"no input is named {told}", "", "take names that `trainmaster twin minimize` printed")
    return World(scenario, inputs=Inputs(names), hosts=None if hosts is None else frozenset(chosen))


def _changed(
    scenario: "Scenario",
    seed: int | None,
    duration: float | None,
    operations: int | None,
    disruptive: int | None,
    least_hosts: int | None,
) -> "Scenario":
    """The scenario with what the command line says instead."""
    mix = scenario.operations
    per_day = mix.per_day if operations is None else operations
    of_them = min(mix.disruptive_per_day, per_day) if disruptive is None else disruptive
    if of_them > per_day:
        why = f"{of_them:,} of {per_day:,} cannot be disruptive"
        raise WrongUsage("--disruptive is among --operations", why, "raise --operations")
    if duration == 0:
        raise WrongUsage("nothing happens in no time", "--duration is 0", "give --duration 10m, or leave it out")
    return scenario.but(
        seed=scenario.seed if seed is None else seed,
        duration=scenario.duration if duration is None else seconds(duration),
        operations=mix.but(per_day=per_day, disruptive_per_day=of_them),
        jobs=tuple(job for job in scenario.jobs if job.hosts >= (least_hosts or 1)),
    )


def _tells() -> Callable[[float, "Run"], None]:
    """Tells how far the run is."""
    progress = Progress()

    def tell(part: float, run: "Run") -> None:
        maintenance = run.world.engine.state.maintenance
        done = maintenance.counts.get("done", 0)
        progress.tell(f"simulated {part:4.0%}, {maintenance.requested:,} requested, {done:,} done")
        if part >= 1:
            progress.end()

    return tell


def _write(out: Path, report: "RunReport") -> None:
    from trainmaster.cli.twin_picture import svg

    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.json").write_bytes(encode(report) + b"\n")
        (out / "capacity.svg").write_text(svg(report), "utf-8")
    except OSError as error:
        raise WrongUsage(f"cannot write into {out}", str(error.strerror), "choose another --out") from error
    say(f"written: {out / 'report.json'}, {out / 'capacity.svg'}")


def _trains(report: "RunReport") -> list[tuple[str, str]]:
    """A row for each train, rollout and released component."""
    rows = []
    for name, train in report.trains.items():
        cycles = [f"{one.visited} of {one.units} visited" for one in train.cycles[-3:]]
        waits = "".join(f"; waited {hours:,.1f} h for {token}" for token, hours in train.waited_h.items())
        stops = count_text(train.stops, "stop")
        rows.append((f"train {name}", f"{train.state}, {stops}; last cycles: {', '.join(cycles)}{waits}"))
        rows += [(f"train {name}", f"holds back {sentence}") for sentence in train.held_back.values()]
    for name, one in report.rollouts.items():
        told = f"{one.state} in stage {one.stage} of {one.stages} after {one.hours / 24:.1f} days"
        rows.append((f"rollout {name}", f"{told}; tried on {one.tried} of {one.pool}; {one.reason}"))
    for component, skew in report.versions.items():
        counts = ", ".join(f"{version} on {count:,}" for version, count in skew.units.items())
        rows.append((f"versions of {component}", f"{counts}; the oldest is {skew.oldest_h:,.0f} h behind"))
    return rows


def fields(report: "RunReport") -> list[Column]:
    """What a person sees; the whole report is in the other forms."""
    outcomes = ", ".join(f"{name} {count:,}" for name, count in sorted(report.operations_by_outcome.items()))
    widths = ", ".join(f"{name} {count:,}" for name, count in report.scope_widths.items())
    waits = ", ".join(f"{token} {wait.hours:,.0f} h" for token, wait in list(report.waits_by_reason.items())[:5])
    lost = ", ".join(f"{cause} {count / 3600:,.0f} h" for cause, count in report.lost_gpu_s_by_cause.items())
    stops = ", ".join(f"{cause} {count:,}" for cause, count in report.interruptions.items())
    failures = ", ".join(f"{what} {count:,}" for what, count in report.failures.items())
    watched, missed = report.watched, count_text(report.hosts_missed, "host")
    looked = f"{watched.events:,} events, {watched.whole_states:,} whole states in {watched.whole_state_s:.1f} s"
    slowest = sorted(report.events_by_type.items(), key=lambda row: -(row[1].us_each or 0) * row[1].events)
    times = ", ".join(f"{name} {cost.us_each:.0f} us" for name, cost in slowest[:6] if cost.us_each is not None)
    rows: list[tuple[str, str]] = [
        ("simulated", f"{report.scenario}, seed {report.seed}, {duration_text(seconds(report.simulated_s))}"),
        ("took", f"{report.wall_s:.1f} s ({report.cpu_s:.1f} s of processor), {report.peak_memory_mib} MiB"),
        ("events", f"{report.events:,}, {report.us_per_event:.1f} us each"),
        ("operations", f"{report.operations_requested:,} requested: {outcomes}; {report.unfinished:,} under way"),
        ("kinds", f"{report.kinds_used} kinds and components of {report.kinds + report.components}"),
        ("scopes", widths),
        ("disruptive", f"{report.disruptive:,}; wider than a unit: {report.wide:,}"),
        ("visits", f"{report.visits:,} on {count_text(report.hosts_visited, 'host')}; {missed} had none"),
        *_trains(report),
        ("waits", waits),
        ("failures", failures),
        ("stops of jobs", stops),
        ("gpu hours", f"{report.trained_gpu_s / 3600:,.0f} trained; lost: {lost}"),
        ("watched", looked),
        ("broken", f"{report.invariants_broken:,} invariants"),
        *([("engine", times)] if times else []),
        *([("log hash", report.log_hash)] if report.log_hash else []),
    ]
    return [Column(name, lambda _, text=text: text) for name, text in rows]  # type: ignore[misc]
