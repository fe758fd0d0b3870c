"""`trainmaster demo`: the main job, with a report."""

from pathlib import Path

import click

from trainmaster.cli.options import Command


@click.command(
    cls=Command,
    examples=[
        ("trainmaster demo", "play it, with the report in ./trainmaster-demo"),
        ("trainmaster demo --out build/demo --steps 120", "a longer one"),
        ("trainmaster demo --seed 7", "other weights, another order of the data"),
    ],
    exit_codes=(0, 1, 2, 130),
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("trainmaster-demo"), help="Folder of the report.")
@click.option("--steps", type=click.IntRange(30, 10_000), default=60, show_default=True, help="Training steps.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of weights and data order.")
def demo(out: Path, steps: int, seed: int) -> int:
    """Train a model on five local hosts, kill one, drain another, and compare with an undisturbed run."""
    try:
        from trainmaster.demo.main import run
        from trainmaster.demo.scene import Settings
    except ModuleNotFoundError as error:
        from trainmaster.cli.errors import Failed

        raise Failed(
            "the demo needs more packages", f"{error.name} is missing", "pip install 'trainmaster[all]'"
        ) from error
    every = max(steps // 6, 5)
    return run(out, Settings(steps=steps, checkpoint_every=every, seed=seed, trainer=()))
