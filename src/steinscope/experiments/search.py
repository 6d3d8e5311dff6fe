"""Small grids of settings, of which each method takes what was best on other data than those that are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from steinscope.experiments.runner import Trial

__all__ = ["SEARCH_SEED", "best_points", "grid_points"]

# Settings are chosen on data of this seed, and reported on those of seeds from `FIRST_SEED` on.
SEARCH_SEED = 0


def grid_points(grid: Mapping[str, Sequence[Any]], keys: Sequence[str]) -> list[Trial]:
    """The points of a grid, each with all keys: None for those that the grid does not have.

    Example:
        >>> grid_points({"lr": [0.1, 0.2]}, ["lr", "sigma"])
        [{'lr': 0.1, 'sigma': None}, {'lr': 0.2, 'sigma': None}]
    """
    return [dict(zip(keys, point, strict=True)) for point in product(*(grid.get(key, [None]) for key in keys))]


def best_points(
    searched: Sequence[tuple[Trial, Trial]], keys: Sequence[str], cell: Callable[[Trial], Any], value: str
) -> dict[Any, Trial]:
    """For each cell the point of the grid with the largest value. Runs that failed have none.

    Arguments:
        searched: Trials and their results.
        keys: The keys of a point.
        cell: What a trial belongs to, such as its method.
        value: The key of the value in results.
    """
    best: dict[Any, tuple[Trial, float]] = {}
    for trial, result in searched:
        found = result[value]
        if found is not None and (cell(trial) not in best or found > best[cell(trial)][1]):
            best[cell(trial)] = {key: trial[key] for key in keys}, found
    return {name: point for name, (point, _) in best.items()}
