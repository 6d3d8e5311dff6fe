"""Points of which many are the same: no density has such, and tests take each row for a point of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from steinscope.frames import coordinate_label
from steinscope.points import ScoredPoints

__all__ = ["tie_notes"]

_MOST_ROWS = 4000
# Numbers that are rounded to less than a quarter of their spread have no value that is as frequent.
_SHARE = 0.1
_COPIES = 0.05
_NAMED = 3


def tie_notes(points: ScoredPoints) -> list[str]:
    """What to say about coordinates with a value that comes again and again, and about rows that are copies of others.

    A coordinate that is constant is a finding of its own.
    """
    rows = torch.arange(len(points))[:: -(-len(points) // _MOST_ROWS)]
    x = points.original(points.take(rows)[0]).double().cpu()
    notes = []
    # Of a single coordinate rounding alone makes copies.
    if x.shape[1] > 1:
        different = len({row.tobytes() for row in x.numpy()})
        copies = 1 - different / len(x)
        if copies >= _COPIES and different > 1:
            notes.append(f"{100 * copies:.0f}% of the rows are copies of others; the test takes all for independent")
    frequent = [(i, share) for i, share in enumerate(map(_largest_share, x.T)) if _SHARE <= share < 1]
    if frequent:
        named = ", ".join(f"{coordinate_label(points.names, i)} ({100 * share:.0f}%)" for i, share in frequent[:_NAMED])
        more = f" and {len(frequent) - _NAMED} more" if len(frequent) > _NAMED else ""
        notes.append(
            f"one value comes again and again in {named}{more}, which no density says: counts, categories and rounded "
            "numbers are rejected where points are enough"
        )
    return notes


def _largest_share(values: Tensor) -> float:
    """The share of the most frequent value."""
    return float(values.unique(return_counts=True)[1].max()) / len(values)
