r"""Score matching (Hyvärinen 2005), sliced (Song et al. 2019) and denoising (Vincent 2011).

For a model with score s, $\frac12 E\|s(x)\|^2 + E\,\nabla \cdot s(x)$ is half the Fisher divergence up to a constant
that does not depend on the model.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steinscope.densities import differentiable_score
from steinscope.errors import InputError, NonFiniteError
from steinscope.maps.divergence import draw_probe, value_and_exact, value_and_hutchinson
from steinscope.objectives.base import TrainingObjective
from steinscope.points import check_rows, read_rows, rows_dtype
from steinscope.scoring import unconstrained_rows
from steinscope.shapes import PerPoint, Points, Scalar, flattened
from steinscope.support.checks import check_choice, check_count, check_number
from steinscope.support.randomness import Seed, make_generator
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained, unconstrained_model

__all__ = ["DenoisingScoreMatching", "PointwiseObjective", "ScoreMatching", "ScoreMatchingEstimate", "score_matching"]


class PointwiseObjective(TrainingObjective):
    """An objective that is a mean over points, for training and for judging models."""

    @abstractmethod
    def values(self, model: Any, x: Points, generator: torch.Generator) -> PerPoint:
        """The value at each point, differentiable in the model's parameters."""

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The mean value."""
        return self.values(model, x, generator).mean()


@dataclass(frozen=True)
class ScoreMatching(PointwiseObjective):
    r"""$\frac12\|s(x)\|^2 + \nabla \cdot s(x)$ at each point.

    Arguments:
        trace: `"exact"`, d backward passes, or `"sliced"`: Hutchinson's estimate.
        probes: How many random directions the estimate takes at each point.
        noise: Their distribution, `"gaussian"` as in the paper or `"rademacher"`.
    """

    trace: Literal["exact", "sliced"] = "exact"
    probes: int = 1
    noise: Literal["gaussian", "rademacher"] = "gaussian"

    def __post_init__(self) -> None:
        check_choice("trace", self.trace, ("exact", "sliced"))
        check_count("probes", self.probes)

    def values(self, model: Any, x: Points, generator: torch.Generator) -> PerPoint:
        """The value at each point, differentiable in the model's parameters."""
        if self.trace == "exact":
            score, divergence = value_and_exact(lambda y: differentiable_score(model, y), x)
        else:
            score, divergence = value_and_hutchinson(
                lambda y: differentiable_score(model, y), x, self.probes, self.noise, generator
            )
        return 0.5 * flattened(score).square().sum(1) + divergence


@dataclass(frozen=True)
class DenoisingScoreMatching(PointwiseObjective):
    r"""$\frac12\|s(x + \sigma\varepsilon) + \varepsilon / \sigma\|^2$ at each point, with ε standard normal.

    Its minimiser is the score of the data smoothed by a Gaussian of standard deviation σ.

    Arguments:
        sigma: The standard deviation σ of the noise.
    """

    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma, over=0)

    def values(self, model: Any, x: Points, generator: torch.Generator) -> PerPoint:
        """The value at each point, differentiable in the model's parameters."""
        noise = draw_probe(x, "gaussian", generator)
        score = differentiable_score(model, x + self.sigma * noise)
        return 0.5 * flattened(score + noise / self.sigma).square().sum(1)


@dataclass(frozen=True)
class ScoreMatchingEstimate:
    """The value of a score-matching objective on points.

    Arguments:
        value: The mean over the points; smaller is better.
        stderr: Its standard error.
        values: The value at each point.
    """

    value: float
    stderr: float
    values: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        return f"Score matching {self.value:.5g} ± {self.stderr:.2g} ({len(self.values)} points)"


@torch.inference_mode(False)
def score_matching(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    objective: PointwiseObjective | None = None,
    batch_size: int = 1000,
    seed: Seed = 0,
) -> ScoreMatchingEstimate:
    """Judge a model by score matching on points.

    Arguments:
        x: The points.
        model: An object with a differentiable `log_prob(x)` or `score(x)`.
        support: Where the model's density is positive, as in `gof_test`. The objective is then that of unconstrained
            coordinates, because score matching, too, needs a density that vanishes at the edge.
        objective: By default the exact one, `ScoreMatching()`.
        batch_size: Points at a time.
        seed: The source of random directions and noise.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(3)).sample(2000)
        >>> estimate = score_matching(x, Gaussian(torch.zeros(3)))
        >>> abs(estimate.value + 1.5) < 4 * estimate.stderr
        True
    """
    check_count("batch_size", batch_size)
    rows = check_rows(x, "x")
    objective = ScoreMatching() if objective is None else objective
    if not isinstance(objective, PointwiseObjective):
        raise InputError("objective", f"expected an objective such as ScoreMatching(), got {objective!r}")
    device = rows.device if isinstance(rows, Tensor) else torch.device("cpu")
    region = find_region(support, model, rows.shape[1:])
    if region is not None:
        coordinates = Unconstrained(region)
        rows = unconstrained_rows(rows, coordinates, dtype=rows_dtype(rows), device=device)
        model = unconstrained_model(model, coordinates)
    generator = make_generator(seed, device)
    parts = []
    for start in range(0, len(rows), batch_size):
        batch = read_rows(rows, slice(start, start + batch_size), dtype=rows_dtype(rows), device=device)
        with torch.no_grad():
            parts.append(objective.values(model, batch, generator).detach().double().cpu())
    values = torch.cat(parts)
    if not bool(values.isfinite().all()):
        row = int((~values.isfinite()).nonzero()[0, 0])
        raise NonFiniteError(f"model: score matching at row {row} of x is {float(values[row])}")
    std = float(values.std()) if len(values) > 1 else math.nan
    return ScoreMatchingEstimate(float(values.mean()), std / math.sqrt(len(values)), values.numpy())
