"""Which points train, validate and are held out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import Chains
from steinscope.errors import InputError

__all__ = ["chain_parts", "fold_parts", "split_parts"]

_MOST_VALIDATION = 10_000


def split_parts(n: int, split: Sequence[float], generator: torch.Generator) -> list[tuple[Tensor, Tensor, Tensor]]:
    """One split at random: rows for training, validation and estimation."""
    n_validation, n_test = (max(2, round(n * part)) for part in split[1:])
    n_validation = min(n_validation, _MOST_VALIDATION)
    n_train = n - n_validation - n_test
    if n_train < 2:
        raise InputError("x", f"{n} rows are too few for the split {tuple(split)}; each part needs at least 2 points")
    order = torch.randperm(n, generator=generator)
    return [(order[:n_train], order[n_train : n_train + n_validation], order[n_train + n_validation :])]


def fold_parts(
    n: int, folds: int, split: Sequence[float], generator: torch.Generator
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Folds at random, each of which is held out in turn; of the others some validate."""
    share = split[1] / (split[0] + split[1])
    order = torch.randperm(n, generator=generator)
    parts = []
    for start, stop in _bounds(n, folds):
        rest = torch.cat([order[stop:], order[:start]])
        n_validation = min(max(2, round(share * len(rest))), _MOST_VALIDATION)
        parts.append((rest[n_validation:], rest[:n_validation], order[start:stop]))
    if min(len(part) for train, _, test in parts for part in (train, test)) < 2:
        raise InputError("x", f"{n} rows are too few for {folds} folds; each part needs at least 2 points")
    return parts


def chain_parts(
    chains: Chains, folds: int | None, split: Sequence[float], generator: torch.Generator
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Stretches of time are held out; of the other batches some validate."""
    share = split[1] / (split[0] + split[1])
    cells = chains.parts(folds or max(2, round(1 / split[2])), generator)
    # One batch has no standard error. Where there is one split, several stretches may be held out together.
    least = 1 if folds is not None or len(cells[0]) > chains.batch else 2
    parts = []
    for number in range(len(cells) if folds is not None else 1):
        held_out, others = cells[number : number + least], [*cells[:number], *cells[number + least :]]
        batches = torch.cat(others).reshape(-1, chains.batch)
        batches = batches[torch.randperm(len(batches), generator=generator)]
        count = min(max(1, round(share * len(batches))), math.ceil(_MOST_VALIDATION / chains.batch))
        parts.append(
            (torch.cat([chains.left, batches[count:].flatten()]), batches[:count].flatten(), torch.cat(held_out))
        )
    return parts


def _bounds(n: int, folds: int) -> list[tuple[int, int]]:
    sizes = [len(part) for part in torch.arange(n).tensor_split(folds)]
    stops = np.cumsum(sizes).tolist()
    return [(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]
