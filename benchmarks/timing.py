"""Measure several functions in turn, so that a noisy machine is noisy for all of them."""

import statistics
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """What a benchmark found. The first column names the row; columns of ratios have "ratio" or "/" in their name."""

    title: str
    goal: str
    rows: list[dict[str, float | int | str]]


def medians(functions, rounds=30, warm=True):
    """The median seconds of each function, over rounds in which each runs once, after one round that does not count."""
    for function in functions.values() if warm else ():
        function()
    seconds = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def table_text(rows):
    """Rows of the same keys as aligned text."""
    columns = list(rows[0])
    cells = [
        columns,
        *[[f"{row[key]:.3g}" if isinstance(row[key], float) else str(row[key]) for key in columns] for row in rows],
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
