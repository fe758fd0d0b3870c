"""`trainmaster demo`: the main job, or a maintenance train under it, with a report."""

from pathlib import Path

import click

from trainmaster.cli.options import Command


@click.command(
    cls=Command,
    examples=[
        ("trainmaster demo", "play it, with the report in ./trainmaster-demo"),
        ("trainmaster demo --out build/demo --steps 120", "a longer one"),
        ("trainmaster demo --maintenance", "a maintenance train, a rollout that fails, a gang upgrade"),
    ],
    exit_codes=(0, 1, 2, 130),
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("trainmaster-demo"), help="Folder of the report.")
@click.option("--steps", type=click.IntRange(30, 10_000), default=60, show_default=True, help="Training steps.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of weights and data order.")
@click.option("--maintenance", is_flag=True, help="A maintenance train instead of a killed host and a drain.")
def demo(out: Path, steps: int, seed: int, maintenance: bool) -> int:
    """Train a model on five local hosts, kill one, drain another, and compare with an undisturbed run.

    With --maintenance a train goes round all hosts instead, a failing version is taken off it, and all hosts of the
    job are upgraded together.
    """
    try:
        from trainmaster.demo import main, maint_main
        from trainmaster.demo.scene import Settings
    except ModuleNotFoundError as error:
        from trainmaster.cli.errors import Failed

        raise Failed(
            "the demo needs more packages", f"{error.name} is missing", "pip install 'trainmaster[all]'"
        ) from error
    run = maint_main.run if maintenance else main.run
    every = max(steps // 6, 5)
    return run(out, Settings(steps=steps, checkpoint_every=every, seed=seed, trainer=()))
