r"""Points that end sharply where the model's density does not: a support that nobody has declared.

Near an edge at which the density of the points jumps, or grows, they lie as densely as further inside, while in a
smooth tail they thin out. And with f falling from 1 at the edge to 0 inside, $E[s f + f']$ is minus the model's
density at the edge: it is zero only where the score pushes inwards as strongly as a density that vanishes needs it.
Both are looked at, on three scales, so that neither a smooth tail nor a wrong model alone gives a warning.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steinscope.frames import coordinate_label
from steinscope.points import ScoredPoints
from steinscope.shapes import FlatPoints

__all__ = ["edge_warnings", "sharp_ends"]

_SHARES = (1 / 10, 1 / 20, 1 / 40)
_FEWEST = 25
_MOST_ROWS = 4000
# The mean position of points between the first and the last of the scale: 1/2 for a constant density, about 3/4 in the
# tail of a Gaussian, more in heavier ones.
_MEAN_POSITION = 0.6
_POSITION_ERRORS = 2.2
_Z = -3.0
_NAMED = 3


def edge_warnings(points: ScoredPoints) -> list[str]:
    """What to say about coordinates that end sharply; nothing below 1000 points, which cannot tell."""
    rows = torch.arange(len(points))[:: -(-len(points) // _MOST_ROWS)]
    x, score = (part.reshape(len(rows), -1).double() for part in points.take(rows))
    found = []
    for sign, is_sharp in zip((1, -1), sharp_ends(x, score), strict=True):
        ends = sign * (sign * x).amin(0)
        found += [(i, float(ends[i])) for i in is_sharp.nonzero().view(-1).tolist()]
    if not found:
        return []
    found.sort(key=lambda end: end[0])
    named = ", ".join(f"{coordinate_label(points.names, i)} at {end:.4g}" for i, end in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [
        f"points end sharply where the model's score does not push inwards: {named}{more}; if the density ends there, "
        "the result is wrong until support= says so"
    ]


def sharp_ends(x: FlatPoints, score: FlatPoints) -> Bool[Tensor, "2 d"]:
    """Whether each coordinate ends sharply below, and above."""
    sizes = [round(share * len(x)) for share in _SHARES]
    both, scores = torch.cat([x, -x], 1), torch.cat([score, -score], 1)
    is_sharp = torch.ones(both.shape[1], dtype=torch.bool, device=x.device)
    if sizes[-1] < _FEWEST:
        return ~is_sharp.view(2, -1)
    lowest, index = both.topk(sizes[0], 0, largest=False)
    pushes = scores.gather(0, index)
    for size in sizes:
        is_sharp &= _is_sharp(lowest[:size], pushes[:size])
    return is_sharp.view(2, -1)


def _is_sharp(x: Float[Tensor, "k d"], score: Float[Tensor, "k d"]) -> Bool[Tensor, " d"]:
    """Whether the lowest points of each coordinate, in ascending order, are the end of a density that does not vanish.

    Many equal values are no density at all.
    """
    width = x[-1] - x[0]
    rate = 1 / width.clamp_min(1e-300)
    position = (x - x[0]) * rate
    # Scores that push outwards beyond measure must not hide how many others do.
    terms = (score * (1 - position)).maximum(-rate) - rate
    z = terms.sum(0) / terms.square().sum(0).sqrt()
    most = max(_MEAN_POSITION, 0.5 + _POSITION_ERRORS / math.sqrt(12 * (len(x) - 2)))
    return (width > 0) & (position[1:-1].mean(0) < most) & (z < _Z)
