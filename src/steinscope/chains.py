r"""Chains of dependent draws: how long they remember, batches of them, and how many independent draws they are worth.

The mean of n draws has variance $\tau \sigma^2 / n$, where τ, the autocorrelation time, is one plus twice the sum of
the autocorrelations. It is estimated for several functions of the draws, and the largest counts: samplers such as NUTS
are antithetic in x (τ < 1) and slow in x² and in the norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.draws import Draws
from steinscope.errors import InputError
from steinscope.points import ScoredPoints, check_rows
from steinscope.scoring import is_scores
from steinscope.shards import Shards
from steinscope.support.checks import check_count
from steinscope.support.normal import normal_of_student

__all__ = [
    "Chains",
    "TooFewDraws",
    "autocorrelation_times",
    "batch_scores",
    "batch_stderr",
    "dependence_note",
    "in_chains",
    "mean_and_stderr",
    "measure_chains",
    "scores_in_chains",
    "thin",
]

LEAST_EFFECTIVE = 100
# A batch is so many autocorrelation times that sums of batches are nearly independent.
_TIMES_IN_BATCH = 5
_COLUMNS_AT_ONCE = 64
# Estimated from independent draws, the longest of many times is a little above 1.
_NO_MEMORY = 1.3
_LOOK_ROWS, _LOOK_LAGS, _LOOK_STDERRS = 4096, 16, 6.0


class TooFewDraws(InputError):
    """Chains that are worth too few independent draws for a verdict."""


@dataclass(frozen=True)
class Chains:
    """How rows are arranged in chains: all draws of the first chain, then those of the second, and so on.

    Arguments:
        count: How many chains.
        length: How many draws each has.
        time: The autocorrelation time, in draws.

    Example:
        >>> chains = Chains(4, 1000, time=8.0)
        >>> chains.batch, round(chains.effective)
        (40, 500)
    """

    count: int
    length: int
    time: float

    @property
    def effective(self) -> float:
        """How many independent draws they are worth."""
        return self.count * self.length / self.time

    @property
    def batch(self) -> int:
        """How many consecutive draws make a batch, whose sums are nearly independent of each other."""
        return math.ceil(_TIMES_IN_BATCH * self.time)

    @property
    def slots(self) -> int:
        """How many batches a chain has."""
        return self.length // self.batch

    def checked(self) -> Chains:
        """The same chains, or an error where they are worth too little."""
        if self.effective < LEAST_EFFECTIVE:
            found = f"{self.effective:.0f} effective draws, at least {LEAST_EFFECTIVE} are needed"
            raise TooFewDraws("x", f"cannot tell: {found}")
        if self.slots == 0:
            short = f"chains of {self.length} draws are shorter than {_TIMES_IN_BATCH} autocorrelation times"
            raise TooFewDraws("x", f"cannot tell: {short} ({self.batch} draws)")
        return self

    @property
    def batches(self) -> Tensor:
        """The rows of each batch, of shape (batches, draws of a batch); draws that fill no batch are left out."""
        return self._in_slots.reshape(-1, self.batch)

    @property
    def places(self) -> Tensor:
        """The place of each batch in time. Those that follow each other differ by 1, those of two chains by more."""
        return (torch.arange(self.count)[:, None] * (self.slots + 1) + torch.arange(self.slots)).flatten()

    @property
    def _in_slots(self) -> Tensor:
        rows = torch.arange(self.count * self.length).reshape(self.count, self.length)
        return rows[:, self.length - self.slots * self.batch :].reshape(self.count, self.slots, self.batch)

    def parts(self, blocks: int, generator: torch.Generator) -> list[Tensor]:
        """Rows of each block: stretches of time of one chain or several, in random order, each of whole batches.

        Chains are independent of each other, and stretches of a chain nearly so. So there is a block for each chain, or
        several where they are fewer than blocks.
        """
        groups = min(self.count, blocks)
        stretches = min(self.slots, math.ceil(blocks / groups))
        in_slots = self._in_slots
        cells = [cell.flatten() for group in in_slots.tensor_split(groups) for cell in group.tensor_split(stretches, 1)]
        return [cells[place] for place in torch.randperm(len(cells), generator=generator).tolist()]

    @property
    def left(self) -> Tensor:
        """The rows at the beginning of chains that fill no batch. They may be learned from, and are not tested."""
        is_left = torch.ones(self.count * self.length, dtype=torch.bool)
        is_left[self._in_slots.flatten()] = False
        return is_left.nonzero()[:, 0]

    def __str__(self) -> str:
        return f"{self.count} chain{'s' if self.count > 1 else ''} × {self.length} draws"


def batch_stderr(values: np.ndarray, batch: int) -> np.ndarray:
    r"""The standard error of the sum of each row, from sums of batches of dependent values of zero mean.

    The variance that sums of batches of length b have falls short by a term of order 1/b; that of b and of b/3 together
    does not, $2V_b - V_{b/3}$ (the lugsail estimator of Vats and Flegal 2022). It counts where it is the larger one.

    Arguments:
        values: The values in the order of time, with a whole number of batches in each row.
        batch: The length of a batch; 1 for independent values.
    """
    in_batches, third = values.reshape(len(values), -1, batch), batch // 3
    variance = np.square(in_batches.sum(2)).sum(1)
    if third > 0:
        thirds = in_batches[:, :, : 3 * third].reshape(len(values), -1, third).sum(2)
        variance = np.maximum(variance, 2 * variance - np.square(thirds).sum(1) * (batch / (3 * third)))
    return np.sqrt(np.maximum(variance, 1e-300))


@np.errstate(over="ignore", invalid="ignore")
def mean_and_stderr(values: np.ndarray, batch: int = 1) -> tuple[float, float]:
    """The mean of values and its standard error, which may be infinite; those of chains come in whole batches."""
    mean, count = float(values.mean()), len(values) // batch
    if batch == 1:
        return mean, float(values.std(ddof=1)) / math.sqrt(count)
    error = float(batch_stderr(values[None] - mean, batch)[0]) / len(values)
    return mean, error * math.sqrt(count / (count - 1))


def batch_scores(values: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The sum of each row over its standard error, as a normal variable where the mean is zero, and that error.

    The ratio is a Student variable with one degree of freedom less than there are batches. It is mapped to the normal
    one of the same probability.

    Arguments:
        values: As in `batch_stderr`.
        batch: The length of a batch.
    """
    stderr, degrees = batch_stderr(values, batch), max(1, values.shape[1] // batch - 1)
    return np.array([normal_of_student(value, degrees) for value in values.sum(1) / stderr]), stderr


def in_chains(x: Any, chains: bool | None) -> tuple[Any, tuple[int, int] | None]:
    """Points one row for each draw, and the number and length of the chains where there are any.

    Arguments:
        x: The points as the user gave them.
        chains: Whether x has the shape (chains, draws, ...); by default `Draws` do, and nothing else.
    """
    if chains is not None and not isinstance(chains, bool | np.bool_):
        raise InputError("chains", f"expected True or False, got {chains!r}")
    if isinstance(x, Draws):
        return x, None if chains is False else (x.chains, x.length)
    if not chains:
        _check_no_chains(x, chains)
        return x, None
    rows = _one_array(x, "x")
    if rows.ndim < 3:
        hint = "for one chain pass x[None]" if rows.ndim == 2 else "with one coordinate pass x[..., None]"
        expected = "expected the shape (chains, draws, ...) with chains=True"
        raise InputError("x", f"{expected}, got {tuple(rows.shape)}; {hint}")
    return _flat(rows), (rows.shape[0], rows.shape[1])


def scores_in_chains(model: Any, shape: tuple[int, int] | None, name: str = "model") -> Any:
    """Scores one row for each draw, where a model was given by an array of them; otherwise the model as it is.

    Arguments:
        model: A model, or scores.
        shape: The number and length of the chains, if there are any.
        name: What the user calls it.
    """
    if shape is None or isinstance(model, Draws) or not is_scores(model):
        return model
    scores = check_rows(model, f"{name} (array of scores)")
    return _flat(scores) if scores.ndim > 2 and tuple(scores.shape[:2]) == tuple(shape) else scores


def _one_array(x: Any, name: str) -> Tensor | np.memmap:
    rows = check_rows(x, name)
    if isinstance(rows, Shards):
        raise InputError(name, "chains must be one array, got shards or partitions of Dask")
    return rows


def _flat(rows: Any) -> Any:
    return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])


def _check_no_chains(x: Any, chains: bool | None) -> None:
    """A line for arrays that look like chains, unless the user has said that they are none."""
    shape = tuple(getattr(x, "shape", ()))
    if chains is None and len(shape) == 3 and shape[0] < 20 < shape[1]:
        raise InputError(
            "x",
            f"the shape {shape} looks like {shape[0]} chains of {shape[1]} draws: pass chains=True (--chains), "
            f"or chains=False if these are {shape[0]} points",
        )


def measure_chains(points: ScoredPoints, shape: tuple[int, int]) -> Chains:
    """The autocorrelation time of chains: the longest of points, their squares and norm, scores, and x·s.

    Arguments:
        points: The draws, one chain after the other, with the model's scores.
        shape: The number and length of the chains.
    """
    x, score = (rows.reshape(len(rows), -1) for rows in points.take(slice(None)))
    scale, longest = x.double().std(0), 1.0
    norm, along = (torch.zeros(len(x), dtype=torch.float64, device=x.device) for _ in range(2))
    for columns in torch.arange(x.shape[1]).split(_COLUMNS_AT_ONCE):
        part, slope = x[:, columns].double(), score[:, columns].double()
        part, slope = _standardised(part), slope * scale[columns]
        norm += part.square().sum(1)
        along += (part * slope).sum(1)
        longest = max(longest, *(_longest(values, shape) for values in (part, part.square(), slope)))
    return Chains(*shape, time=max(longest, *(_longest(values[:, None], shape) for values in (norm, along))))


def _standardised(x: Tensor) -> Tensor:
    """Columns with mean 0 and variance 1, and zeros where a column is constant, whatever rounding makes of its mean."""
    moved = x - x[0]
    return (moved - moved.mean(0)) / moved.std(0).clamp_min(1e-300)


def _longest(values: Tensor, shape: tuple[int, int]) -> float:
    return float(autocorrelation_times(values.reshape(*shape, -1).cpu().numpy()).max())


def autocorrelation_times(values: np.ndarray) -> np.ndarray:
    """The autocorrelation time of each function of the draws, by Geyer's initial monotone sequence.

    Deviations are from the mean of all chains. So chains that disagree have long times.

    Arguments:
        values: Values of functions of the draws, of shape (chains, draws, functions).

    Example:
        >>> noise = np.random.default_rng(0).normal(size=(4, 5000, 1))
        >>> walk = noise.copy()
        >>> for t in range(1, 5000):
        ...     walk[:, t] += 0.8 * walk[:, t - 1]
        >>> bool(abs(autocorrelation_times(walk)[0] - 9) < 1.5)  # (1 + .8) / (1 - .8) is 9
        True
    """
    length = values.shape[1]
    deviations = values - values.mean((0, 1))
    spectrum = np.fft.rfft(deviations, 2 * length, axis=1)
    # That of lag `length`, which is zero, makes their number even.
    covariances = np.fft.irfft((spectrum * spectrum.conj()).real.mean(0), axis=0)[: length + length % 2]
    variance = covariances[0]
    correlations = covariances / np.where(variance > 0, variance, 1.0)
    # Sums of two neighbours, the first of which is at an even lag, are positive and decrease in theory, also where
    # draws are antithetic and slow at once. Sums that begin at an odd lag need not be.
    sums = correlations.reshape(-1, 2, *variance.shape).sum(1)
    kept = np.minimum.accumulate(np.maximum(sums, 0.0), axis=0)
    # What does not vary has no memory.
    return np.where(variance > 0, 2 * kept.sum(0) - 1, 1.0)


def dependence_note(points: ScoredPoints) -> str | None:
    """A note where rows depend on the rows before them, as successive draws of a Markov chain do."""
    x = points.take(slice(_LOOK_ROWS))[0].reshape(min(len(points), _LOOK_ROWS), -1).double()
    n, lags = len(x), min(_LOOK_LAGS, len(x) // 4)
    # Heavy tails would give single products too much weight.
    x = _standardised(x).clamp(-4, 4)
    found = torch.stack([(x[lag:] * x[:-lag]).mean(0) for lag in range(1, lags + 1)])
    if float(found.max()) * math.sqrt(n) < _LOOK_STDERRS:
        return None
    lag = int(found.amax(1).argmax()) + 1
    return (
        f"rows are correlated with earlier ones (autocorrelation {float(found.max()):.2f} at lag {lag}), and this "
        "p-value is for independent points: if these are draws of Markov chains, pass them as (chains, draws, ...) "
        "with chains=True (--chains); if rows are only sorted, by class for instance, it does not matter"
    )


def thin(draws: Any, *, every: int | None = None) -> Any:
    """Thinned draws, which are nearly independent, for methods that need that.

    `gof_test`, `discrepancy` and `compare` take whole chains, and lose less.

    Arguments:
        draws: `Draws`, or an array of shape (chains, draws, ...).
        every: Keep one draw in this many. By default two autocorrelation times, the longest of the coordinates, their
            squares and their squared norm: half the effective number of draws. Thinned by one time, draws are still so
            correlated that a test for independent points rejects too often.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(4, 500, 3))
        >>> thin(x, every=10).shape, len(thin(x)) == 4
        ((4, 50, 3), True)
    """
    x = draws.x if isinstance(draws, Draws) else _one_array(draws, "draws")
    if x.ndim < 3:
        raise InputError("draws", f"expected the shape (chains, draws, ...), got {tuple(x.shape)}")
    if every is None:
        flat = torch.from_numpy(np.asarray(x, dtype=np.float64).reshape(x.shape[0] * x.shape[1], -1))
        values = _standardised(flat).numpy().reshape(*x.shape[:2], -1)
        squares = np.square(values)
        functions = np.concatenate([values, squares, squares.sum(2, keepdims=True)], 2)
        longest = float(autocorrelation_times(functions).max())
        every = min(x.shape[1], math.ceil(2 * longest)) if longest > _NO_MEMORY else 1
    every = check_count("every", every, most=x.shape[1])
    # The last draws are kept: if chains have not converged, they are the best of them.
    kept = slice((x.shape[1] - 1) % every, None, every)
    if not isinstance(draws, Draws):
        return (draws if hasattr(draws, "shape") else x)[:, kept]
    optional = {
        name: value[:, kept] for name in ("log_prob", "diverging") if (value := getattr(draws, name)) is not None
    }
    return replace(draws, x=draws.x[:, kept], scores=draws.scores[:, kept], **optional)
