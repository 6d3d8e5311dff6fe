"""From weighted Stein values of several critics to one p-value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import batch_scores
from steinscope.support.normal import normal_quantile, upper_tail
from steinscope.support.randomness import make_generator

__all__ = [
    "ORDER_NOTE",
    "BlockSums",
    "Combined",
    "cauchy_pvalue",
    "combine_sums",
    "combine_values",
    "combined_pvalue",
    "soft_maximum",
]

_NORMAL_DRAWS = 2**15
_LEAST_FROM_DRAWS = 1e-3
_LARGEST_PVALUE = 0.99
ORDER_NOTE = "the p-value depends on the random order of the points, which seed fixes"


@dataclass(frozen=True)
class Combined:
    """What the learners found: everything the p-value depends on.

    Arguments:
        z: The z-score of each learner.
        correlation: How they are correlated where the model is right.
        norm: What the sums of weighted values are divided by.
        block_z: The z-score of each learner in each block.
        block_weight: The weight of each block.
        effective: How many independent values the values of each learner are worth.
    """

    z: np.ndarray
    correlation: np.ndarray
    norm: np.ndarray
    block_z: np.ndarray
    block_weight: np.ndarray
    effective: np.ndarray

    def only(self, chosen: Sequence[int]) -> Combined:
        """The same of some of the learners."""
        return Combined(
            self.z[chosen], self.correlation[np.ix_(chosen, chosen)], *(part[chosen] for part in self._rest)
        )

    @property
    def _rest(self) -> tuple[np.ndarray, ...]:
        return self.norm, self.block_z, self.block_weight, self.effective


@dataclass
class BlockSums:
    """Sums over the values of a block.

    Arguments:
        total: The sum of the values of each learner.
        products: The sums of their products.
        count: How many values there are.
    """

    total: np.ndarray
    products: np.ndarray
    count: int = 0

    @classmethod
    def empty(cls, learners: int) -> BlockSums:
        """Sums over nothing."""
        return cls(np.zeros(learners), np.zeros((learners, learners)))

    @classmethod
    def of(cls, values: np.ndarray) -> BlockSums:
        """Sums over values, learner by point."""
        sums = cls.empty(len(values))
        sums.add(values)
        return sums

    def add(self, values: np.ndarray) -> None:
        """Add the values of some points, learner by point."""
        self.total += values.sum(1)
        self.products += values @ values.T
        self.count += values.shape[1]

    def join(self, other: BlockSums) -> None:
        """Add sums over other points."""
        self.total += other.total
        self.products += other.products
        self.count += other.count


def combine_sums(blocks: Sequence[BlockSums]) -> Combined:
    """z-scores and their correlation from the weighted Stein values of each learner.

    The sum over the root of the sum of squares is asymptotically standard normal. Normalising once, and not in each
    block, keeps the effect of skewed values of order 1/√n.

    Arguments:
        blocks: The sums over each tested block.
    """
    totals = np.stack([block.total for block in blocks], 1)
    block_norm = np.sqrt(np.maximum(np.stack([np.diagonal(block.products) for block in blocks], 1), 1e-300))
    products = np.sum([block.products for block in blocks], 0)
    norm = np.sqrt(np.maximum(np.diagonal(products), 1e-300))
    correlation = products / np.outer(norm, norm)
    effective = np.full(len(norm), float(sum(block.count for block in blocks)))
    return Combined(totals.sum(1) / norm, correlation, norm, totals / block_norm, block_norm / norm[:, None], effective)


def combine_values(blocks: Sequence[np.ndarray], batch: int) -> Combined:
    """The same for dependent draws, of which the sums of batches take the place of single values.

    Arguments:
        blocks: The weighted values of each tested block, learner by point.
        batch: How many values in a row make a batch.
    """
    alive = np.flatnonzero([any(block[learner].any() for block in blocks) for learner in range(len(blocks[0]))])
    if len(alive) < len(blocks[0]):
        # A learner that has nothing to test has values of zero, which have no scale.
        found = combine_sums([BlockSums.of(block) for block in blocks])
        if len(alive):
            others = combine_values([block[alive] for block in blocks], batch)
            found.correlation[np.ix_(alive, alive)] = others.correlation
            for name in ("z", "norm", "block_z", "block_weight", "effective"):
                getattr(found, name)[alive] = getattr(others, name)
        return found
    values, counts = np.concatenate(blocks, axis=1), [block.shape[1] // batch for block in blocks]
    sums = values.reshape(len(values), -1, batch).sum(2)
    products = sums @ sums.T
    variance = np.maximum(np.diagonal(products), 1e-300)
    correlation = products / np.sqrt(np.outer(variance, variance))
    z, stderr = batch_scores(values, batch)
    starts = np.cumsum([0, *counts[:-1]])
    block_norm = np.sqrt(np.maximum(np.add.reduceat(np.square(sums), starts, axis=1), 1e-300))
    block_z = np.add.reduceat(sums, starts, axis=1) / block_norm
    # What sums are divided by to give z: not the standard error alone, because z has been mapped to a normal variable.
    total = values.sum(1)
    norm = np.where(np.abs(z) > 1e-6, total / np.where(z == 0, 1.0, z), stderr)
    effective = values.shape[1] * np.square(values).sum(1) / np.square(stderr)
    return Combined(z, correlation, norm, block_z, block_norm / np.sqrt(variance)[:, None], effective)


def soft_maximum(z: np.ndarray) -> float:
    """½ log Σ exp(2z): near the largest of the z-scores, and more where several of them are large."""
    largest = z.max()
    return float(largest + 0.5 * np.log(np.exp(2 * (z - largest)).sum()))


def combined_pvalue(z: np.ndarray, correlation: np.ndarray) -> float:
    """The probability that the soft maximum of correlated standard normals is at least as large as that of z.

    It comes from draws. Far out, where draws are too few, it is at most that of the largest statistic that they serve
    for, and at most the sum of the probabilities of the single normals.
    """
    count, statistic = len(z), soft_maximum(z)
    # The soft maximum exceeds the largest z-score by ½ log(count) at most.
    excess = 0.5 * math.log(count)
    bound = min(1.0, count * upper_tail(statistic - excess))
    if count == 1:
        return bound
    farthest = excess + normal_quantile(1 - _LEAST_FROM_DRAWS / count)
    eigenvalues, vectors = torch.linalg.eigh(torch.from_numpy(correlation))
    root = vectors * eigenvalues.clamp_min(0.0).sqrt()
    sums = (2 * _standard_normals(count) @ root.T).exp_().sum(1)
    exceeded = int((sums >= math.exp(2 * min(statistic, farthest))).sum())
    return min(bound, (1 + exceeded) / (1 + _NORMAL_DRAWS))


def cauchy_pvalue(pvalues: Sequence[float], weights: Sequence[float]) -> float:
    """One p-value from several that depend on each other: the Cauchy combination (Liu and Xie 2020).

    Each p-value becomes a standard Cauchy variable, tan(π(½ - p)), and their weighted mean has tails that hardly depend
    on how they are related. A p-value near 1 must not outweigh all others, so that none counts as more than 0.99.

    Example:
        >>> round(cauchy_pvalue([0.02, 0.02], [1, 1]), 6), round(cauchy_pvalue([0.001, 0.9], [1, 1]), 4)
        (0.02, 0.002)
    """
    p, w = np.minimum(np.asarray(pvalues, float), _LARGEST_PVALUE), np.asarray(weights, float)
    # 1 / tan(π p), which is exact for small p, where tan(π(½ - p)) is not.
    with np.errstate(divide="ignore", over="ignore"):
        mean = float((w / np.tan(np.pi * p)).sum() / w.sum())
    return math.atan2(1.0, mean) / math.pi


@lru_cache(maxsize=8)
def _standard_normals(count: int) -> Tensor:
    return torch.randn(_NORMAL_DRAWS, count, generator=make_generator(0), dtype=torch.float64)
