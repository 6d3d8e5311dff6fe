"""`steinscope demo`."""

from __future__ import annotations

from pathlib import Path

from steinscope.commands.options import Count
from steinscope.support.checks import check_count, check_steps
from steinscope.support.files import check_directory

__all__ = ["demo"]


def demo(*, out: Path = Path("results/demo"), points: Count = 16_000, steps: Count = 2000) -> None:
    """Train an energy-based model, rank it among others, test each, and write a report; about a minute.

    Examples:

        steinscope demo

        steinscope demo --steps 500 --out results/short

    Parameters
    ----------
    out
        The directory for the report, the figure, and the arrays to continue with.
    points
        How many points; an eighth of them are held out to rank and test the models.
    steps
        How many steps to train for.
    """
    check_directory(out, "out")
    check_count("points", points, most=10**7)
    check_steps("steps", steps)
    from steinscope.experiments.moons import run_demo

    for line in run_demo(out, points=points, steps=steps):
        print(line, flush=True)
