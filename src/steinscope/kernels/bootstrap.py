"""The wild bootstrap of degenerate U-statistics: one product with a matrix of signs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.support.checks import check_count

__all__ = ["MOST_DRAWS", "bootstrap_pvalue", "random_signs", "u_statistics"]

# More draws hardly change a p-value, and their signs would not fit into memory.
MOST_DRAWS = 100_000


def random_signs(
    n: int, draws: int, generator: torch.Generator, dtype: torch.dtype, batch: int = 1
) -> Float[Tensor, "n b"]:
    """A first column of ones, for the statistic itself, and columns of independent signs, one for each batch."""
    check_count("draws", draws, most=MOST_DRAWS)
    options = {"generator": generator, "dtype": torch.int8, "device": generator.device}
    signs = torch.randint(2, (n // batch, draws + 1), **options).mul_(2).sub_(1).to(dtype)
    signs[:, 0] = 1.0
    return signs if batch == 1 else signs.repeat_interleave(batch, 0)


def u_statistics(tiles: Iterable[tuple[slice, slice, Tensor]], signs: Float[Tensor, "n b"]) -> Float[Tensor, " b"]:
    """The U-statistic with each column of signs: the sum of ε_i ε_j u_ij over i ≠ j, divided by n (n - 1).

    Of some of the tiles it is their part of it.
    """
    total = torch.zeros(signs.shape[1], dtype=torch.float64, device=signs.device)
    for a, b, tile in tiles:
        sums = torch.linalg.vecdot(tile @ signs[b], signs[a], dim=0).double()
        total += sums if a == b else 2 * sums
    return total / (len(signs) * (len(signs) - 1))


def bootstrap_pvalue(statistics: Float[Tensor, " b"]) -> float:
    """The share of draws at least as large as the first entry, which is the statistic and counts itself."""
    return float((statistics >= statistics[0]).double().mean())
