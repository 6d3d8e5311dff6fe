r"""What a misfit amounts to: means, spreads, correlations and shapes, each with its size and an interval.

Points have a mean and a covariance. The model's are read off its scores at the points: the linear function of x that
is nearest to the scores is the score of a Gaussian. Where the model is right, that Gaussian has the mean and covariance
of the points, by Stein's identity and whatever the model; where the model is Gaussian, it is the model. What the linear
function leaves over is compared with functions of single coordinates, which are made orthogonal to linear ones, so that
a wrong mean, spread or correlation is not said again as a wrong shape. `docs/how-it-works.md` has the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.chains import Chains, batch_stderr
from steinscope.findings import Finding
from steinscope.maps.angles import FREQUENCIES, multiple_angles
from steinscope.points import ScoredPoints
from steinscope.results import TestResult
from steinscope.shapes import flattened
from steinscope.support.normal import normal_quantile, student_of_normal

__all__ = ["find_effects", "with_effects"]

Errors = Callable[[Tensor], Tensor]
"""The standard error of the mean of each column of (n, k) values, one row for each point in their order."""

# Of more numbers than this a part of the points is looked at.
_MOST_NUMBERS = 3_000_000
# With fewer points for each coordinate the slopes of a linear fit are mostly noise, and pairs are not looked at.
_POINTS_FOR_EACH_COORDINATE = 5
_LEVEL, _KINDS = 0.05, 4
_MOST_PAIRS = 1000
_CHUNK_NUMBERS = 2_000_000
_LEAST_FOR_FACTOR = 3
# How many points weighted by the ratio of two marginals must be worth, as a share, for their distance to be told.
_LEAST_ALIKE = 0.5
# Less than this is left of functions that are linear at the points, as all are where there are two values.
_LEAST_CURVED = 1e-9
# Eigenvalues below this share of the largest are zero, as of linear dependence. Slopes below such a share are rounding.
_SINGULAR, _LEAST_SLOPE = 1e-10, 1e-13
_SURE = normal_quantile(0.975)


def independent_errors(values: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """The standard errors of the means of independent rows."""
    return values.std(0) / math.sqrt(len(values))


def chain_errors(chains: Chains) -> Errors:
    """The standard errors of the means of draws of chains, from batches of them."""
    rows, batch = chains.batches.flatten(), chains.batch
    count = len(rows) // batch

    def errors(values: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
        kept = values[rows]
        spread = batch_stderr((kept - kept.mean(0)).T.contiguous().numpy(), batch)
        return torch.from_numpy(spread) / len(rows) * math.sqrt(count / max(1, count - 1))

    return errors


def with_effects(
    result: TestResult, points: ScoredPoints, chains: Chains | None = None, about: str = "model"
) -> TestResult:
    """A result with what the misfit amounts to, if one was found.

    Arguments:
        result: The outcome of a test of these points.
        points: The points with the model's scores.
        chains: How the points are arranged in chains, where they are draws of them.
        about: What the model is called in words.
    """
    found = find_effects(points, chains) if result.rejected else ()
    findings = tuple(one.of(about) for one in (*result.findings, *found))
    return replace(result, findings=findings, about=about)


def find_effects(points: ScoredPoints, chains: Chains | None = None) -> tuple[Finding, ...]:
    """The differences between points and model in means, spreads, correlations and shapes, the largest of each first.

    Each kind has a quarter of the level 5%, which the comparisons of that kind share equally, by quantiles of Student's
    distribution. So where the model is right, anything is listed in about one case of twenty, and in up to 8% of cases
    with 200 points.

    Arguments:
        points: The points with the model's scores.
        chains: How the points are arranged in chains, where they are draws of them.
    """
    step = 1 if chains is not None else max(1, math.ceil(len(points) * points.dim / _MOST_NUMBERS))
    x, score = (flattened(rows).double().cpu() for rows in points.take(slice(None, None, step)))
    errors = independent_errors if chains is None else chain_errors(chains)
    varies = (x != x[0]).any(0)
    places = varies.nonzero().view(-1)
    found = [Finding("constant", (int(place),)) for place in (~varies).nonzero()]
    if len(places):
        degrees = len(x) - 1 if chains is None else len(chains.batches) - 1
        for one in _Comparison.of(x[:, places], score[:, places], errors, degrees).findings():
            found.append(replace(one, coordinates=tuple(int(places[place]) for place in one.coordinates)))
    return tuple(one.named(points.names) for one in found)


@dataclass(frozen=True)
class _Comparison:
    """Points beside the Gaussian that the model's scores describe. Each coordinate is in units of the points' spread.

    Arguments:
        u: The points, with mean 0 and variance 1 in each coordinate.
        score: The scores in these units.
        correlation: The correlations of the points, C; the identity where coordinates are looked at one by one.
        precision: Minus the slopes of the linear function nearest to the scores, B; diagonal in that case.
        is_joint: Whether all coordinates are looked at together.
        errors: How standard errors of means are found.
        degrees: The degrees of freedom of such an error.
    """

    u: Float[Tensor, "n d"]
    score: Float[Tensor, "n d"]
    correlation: Float[Tensor, "d d"]
    precision: Float[Tensor, "d d"]
    is_joint: bool
    errors: Errors
    degrees: int

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], score: Float[Tensor, "n d"], errors: Errors, degrees: int) -> _Comparison:
        n, d = x.shape
        spread = x.std(0, correction=0)
        u, score = (x - x.mean(0)) / spread, score * spread
        products = score.T @ u / n
        if n >= _POINTS_FOR_EACH_COORDINATE * d:
            correlation = u.T @ u / n
            slopes = products @ _inverse(correlation)
            precision = -(slopes + slopes.T) / 2
            eigenvalues = torch.linalg.eigvalsh(precision)
            if float(eigenvalues[0]) > _SINGULAR * float(eigenvalues[-1]):
                return cls(u, score, correlation, precision, True, _corrected(errors, n, d), degrees)
        identity = torch.eye(d, dtype=u.dtype)
        return cls(u, score, identity, -products.diagonal().diag(), False, _corrected(errors, n, 1), degrees)

    def threshold(self, comparisons: int) -> float:
        """What one of so many comparisons of a kind must exceed, in standard errors: Student's quantile."""
        return student_of_normal(normal_quantile(1 - _LEVEL / _KINDS / max(1, comparisons) / 2), self.degrees)

    def remains(self, values: Float[Tensor, "n d"], *given: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
        """The z-score of what is left of the mean of Stein values once other Stein values have been accounted for.

        To first order, moving the model along one critic changes the mean of the Stein values of another by their
        covariance, whatever the model. So what a shift, or a stretch, would explain is a regression.
        """
        design = torch.stack(given, 2).transpose(0, 1)
        centred = design - design.mean(1, keepdim=True)
        products = centred.transpose(1, 2) @ centred
        cross = centred.transpose(1, 2) @ (values - values.mean(0)).T[:, :, None]
        weights = torch.linalg.pinv(products, hermitian=True) @ cross
        left = values - (design @ weights)[:, :, 0].T
        return left.mean(0) / self.errors(left)

    def findings(self) -> list[Finding]:
        """All that is beyond chance."""
        outward = self._outward()
        if outward is None:
            return [Finding("sign")]
        # Where the scores push outwards, or are constant but for rounding, no Gaussian is described.
        usable = (self.precision.diagonal() > _LEAST_SLOPE * self.score.abs().amax(0)).nonzero().view(-1)
        found = [*outward]
        if len(usable):
            is_all = len(usable) == self.u.shape[1]
            view = (
                self if is_all else _Comparison.of(self.u[:, usable], self.score[:, usable], self.errors, self.degrees)
            )
            gaussian = _Described.by(view)
            correlations = gaussian.correlations() if view.is_joint else []
            scales = gaussian.scales()
            factor = gaussian.factor(scales) if not correlations else None
            inner = [*gaussian.means(), *([factor] if factor else scales), *correlations, *_Shapes(gaussian).findings()]
            found += [replace(one, coordinates=tuple(int(usable[i]) for i in one.coordinates)) for one in inner]
        return found

    def _outward(self) -> list[Finding] | None:
        """Coordinates whose scores push them away from the middle of the points; None if the scores do so as a whole.

        Where the model is right, the mean of s u is -1 in each coordinate, and 1 if the scores have the wrong sign.
        """
        products = (self.score - self.score.mean(0)) * self.u
        mean = products.mean(0)
        z = mean / self.errors(products)
        outward = z > self.threshold(len(z))
        if bool(outward.all()) and 0.5 < float(mean.median()) < 2:
            return None
        return [Finding("outward", (int(i),), z=float(z[i])) for i in outward.nonzero()]


@dataclass(frozen=True)
class _Described:
    """The Gaussian that the scores describe, with what each point adds to its errors.

    Arguments:
        view: The points and scores.
        covariance: Its covariance, S.
        mean_score: The mean of the scores, a.
        left: S r for each point, where r is what the linear fit leaves over.
        right: S C⁻¹ u for each point. A point adds the symmetric part of the product of both to the error of S.
    """

    view: _Comparison
    covariance: Float[Tensor, "d d"]
    mean_score: Float[Tensor, " d"]
    left: Float[Tensor, "n d"]
    right: Float[Tensor, "n d"]

    @classmethod
    def by(cls, view: _Comparison) -> _Described:
        covariance, mean_score = torch.linalg.inv(view.precision), view.score.mean(0)
        residual = view.score - mean_score + view.u @ view.precision
        return cls(
            view, covariance, mean_score, residual @ covariance, view.u @ (_inverse(view.correlation) @ covariance)
        )

    @cached_property
    def tangents(self) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        """The Stein values of a shift and of a stretch of each coordinate, of which others follow as they are related.

        That is a move along the column of S, in units in which the coordinate itself moves by 1.
        """
        return _tangents(self.view.score @ (self.covariance / self.covariance.diagonal()), self.view.u)

    def means(self) -> list[Finding]:
        """How far the points lie from the model, in units of its standard deviation: -S a / √S_jj."""
        variance, a = self.covariance.diagonal(), self.mean_score
        unit = variance.sqrt()
        size = -(self.covariance @ a) / unit
        turned = self.left * (self.right @ a)[:, None] + self.right * (self.left @ a)[:, None]
        moved = (self.view.score - a) @ self.covariance + turned / 2
        stderr = self.view.errors(-moved / unit - size * self.left * self.right / (2 * variance))
        shift, stretch = self.tangents
        return _beyond_chance("mean", self.view.threshold(len(size)), size, stderr, self.view.remains(shift, stretch))

    def scales(self) -> list[Finding]:
        """The spread of the points over that of the model: 1 / √S_jj."""
        size, stderr = self._log_ratios()
        shift, stretch = self.tangents
        found = _beyond_chance("scale", self.view.threshold(len(size)), size, stderr, self.view.remains(stretch, shift))
        return [one.transformed(math.exp) for one in found]

    def factor(self, scales: list[Finding]) -> Finding | None:
        """One finding for all coordinates, where they spread too much, or too little, by the same factor."""
        size, stderr = self._log_ratios()
        if not len(scales) == len(size) >= _LEAST_FOR_FACTOR:
            return None
        influence = self._ratio_terms()
        weights = stderr.square().reciprocal() / stderr.square().reciprocal().sum()
        common, common_stderr = float(weights @ size), float(self.view.errors((influence @ weights)[:, None]))
        others = self.view.errors(influence - (influence @ weights)[:, None])
        if bool(((size - common).abs() > self.view.threshold(len(size)) * others).any()):
            return None
        return _finding("factor", (), common, common_stderr).transformed(math.exp)

    def _log_ratios(self) -> tuple[Tensor, Tensor]:
        return -0.5 * self.covariance.diagonal().log(), self.view.errors(self._ratio_terms())

    def _ratio_terms(self) -> Float[Tensor, "n d"]:
        return 0.5 * (self.view.u.square() - self.left * self.right / self.covariance.diagonal())

    def correlations(self) -> list[Finding]:
        """Correlations of the points minus those of the model."""
        unit = self.covariance.diagonal().sqrt()
        found, expected = self.view.correlation, self.covariance / torch.outer(unit, unit)
        n, d = self.view.u.shape
        first, second = torch.triu_indices(d, d, 1)
        size = (found - expected)[first, second]
        # The standard error of a correlation of normal points chooses whom to look at.
        rough = size.abs() * math.sqrt(n) / (1 - found[first, second].square()).clamp_min(1e-3)
        chosen = rough.topk(min(len(rough), _MOST_PAIRS)).indices
        chosen = chosen[rough[chosen] > _SURE]
        u, left, right = self.view.u, self.left / unit, self.right / unit
        stderr = torch.empty(len(chosen), dtype=u.dtype)
        width = max(1, _CHUNK_NUMBERS // n)
        for start in range(0, len(chosen), width):
            i, j = first[chosen[start : start + width]], second[chosen[start : start + width]]
            own = u[:, i] * u[:, j] - found[i, j] / 2 * (u[:, i].square() + u[:, j].square())
            cross = (left[:, i] * right[:, j] + right[:, i] * left[:, j]) / 2
            theirs = cross - expected[i, j] / 2 * (left[:, i] * right[:, i] + left[:, j] * right[:, j])
            stderr[start : start + width] = self.view.errors(own - theirs)
        listed = []
        for place in (size[chosen].abs() > self.view.threshold(len(size)) * stderr).nonzero().view(-1).tolist():
            k = chosen[place]
            pair = (int(first[k]), int(second[k]))
            one = _finding("correlation", pair, float(size[k]), float(stderr[place]))
            listed.append(replace(one, found=float(found[pair])))
        return _largest_first(listed)


class _Shapes:
    """Functions of single coordinates, made orthogonal to linear ones, against what the scores are beyond linear.

    Arguments:
        gaussian: The Gaussian that the scores describe.
    """

    def __init__(self, gaussian: _Described) -> None:
        self.view = view = gaussian.view
        # A coordinate may be moved alone, or with those that are related to it.
        self.tangents = (*gaussian.tangents, *_tangents(view.score, view.u))
        # The scores, with their linear part replaced by that of the points' own Gaussian: where means, spreads and
        # correlations are all that is wrong, these are the scores of the points.
        self.inverse = _inverse(view.correlation)
        self.score = view.score - view.score.mean(0) + view.u @ (view.precision - self.inverse)
        angles = multiple_angles(view.u)
        pairs = zip(FREQUENCIES, angles, strict=True)
        # Each function with its derivative and its integral.
        self.functions = [
            triple
            for rate, (sine, cosine) in pairs
            for triple in ((sine, rate * cosine, -cosine / rate), (cosine, -rate * sine, sine / rate))
        ]

    def _residual(self, number: int, columns: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor]:
        """Function `number` of coordinates less its linear part, and the slopes of that in its own and all of them."""
        (function, *_), u = self.functions[number], self.view.u
        function = function[:, columns] - function[:, columns].mean(0)
        if self.view.is_joint:
            slopes = self.inverse @ (u.T @ function / len(u))
            return function - u @ slopes, slopes[columns].diagonal(), slopes
        own = (u[:, columns] * function).mean(0)
        return function - u[:, columns] * own, own, torch.eye(u.shape[1], dtype=u.dtype)[:, columns] * own

    def findings(self) -> list[Finding]:
        """The marginals and pairs that stand out."""
        d = self.view.u.shape[1]
        limit = self.view.threshold(len(self.functions) * (d * d if self.view.is_joint else d))
        marginal = torch.zeros(d, dtype=torch.float64)
        pairs: dict[frozenset[int], Finding] = {}
        for number, (_, derivative, _) in enumerate(self.functions):
            residual, own, slopes = self._residual(number)
            terms = self.score * residual + derivative - own
            z = (terms.mean(0) / self.view.errors(terms)).abs()
            raw = self.view.score * residual + derivative - own
            marginal = torch.maximum(marginal, torch.minimum(z, self.view.remains(raw, *self.tangents).abs()))
            if self.view.is_joint:
                for one in self._pairs(residual, slopes, limit):
                    known = pairs.setdefault(frozenset(one.coordinates), one)
                    if abs(one.z or 0.0) > abs(known.z or 0.0):
                        pairs[frozenset(one.coordinates)] = one
        found = [self._marginal(int(i), float(marginal[i])) for i in (marginal > limit).nonzero()]
        return _largest_first(found) + _largest_first(list(pairs.values()))

    def _pairs(self, residual: Tensor, slopes: Tensor, limit: float) -> list[Finding]:
        """The coordinates that depend on this function of another one in another way than the model says."""
        n, found = len(residual), []
        mean = self.score.T @ residual / n - slopes
        spread = torch.outer(self.score.square().mean(0).sqrt(), residual.square().mean(0).sqrt())
        rough = mean.abs() * math.sqrt(n) / spread.clamp_min(1e-300)
        rough.fill_diagonal_(0.0)
        chosen = rough.view(-1).topk(min(rough.numel(), _MOST_PAIRS)).indices
        chosen = chosen[rough.view(-1)[chosen] > limit / 2]
        width = max(1, _CHUNK_NUMBERS // n)
        for start in range(0, len(chosen), width):
            part = chosen[start : start + width]
            output, source = part // len(mean), part % len(mean)
            terms = self.score[:, output] * residual[:, source] - slopes[output, source]
            z = mean[output, source] / self.view.errors(terms)
            for place in (z.abs() > limit).nonzero().view(-1).tolist():
                pair = (int(output[place]), int(source[place]))
                found.append(replace(self._dependence(*pair, residual, slopes), z=float(z[place])))
        return found

    def _dependence(self, output: int, source: int, residual: Tensor, slopes: Tensor) -> Finding:
        """How far the mean of a coordinate given the others is off along a function of another, in its own spread.

        The score of a Gaussian coordinate is minus its distance from that mean over its variance given the others.
        """
        # What the others do not explain of the output, linearly, and of the function.
        own = self.view.u @ self.inverse[:, output] / self.inverse[output, output]
        function = residual[:, source] + slopes[output, source] * own
        precision = self.view.precision[output, output]
        left = self.score[:, output] + self.view.u @ self.inverse[:, output] - precision * own
        size = function.square().mean().sqrt()
        values = left * function / (size * precision.sqrt())
        value = values.mean()
        stderr = self.view.errors((values - value / 2 * (function / size).square())[:, None])
        return _finding("dependence", (output, source), abs(float(value)), float(stderr))

    def _marginal(self, i: int, z: float) -> Finding:
        """How much of the mass of a coordinate lies elsewhere: the total variation, if all else were right."""
        parts = [self._residual(number, slice(i, i + 1)) for number in range(len(self.functions))]
        basis, own = torch.cat([residual for residual, _, _ in parts], 1), torch.cat([own for _, own, _ in parts])
        derivatives, integrals = (torch.stack([f[k][:, i] for f in self.functions], 1) for k in (1, 2))
        means = torch.stack([f[0][:, i].mean() for f in self.functions])
        u = self.view.u[:, i : i + 1]
        integrals = integrals - means * u - own * u.square() / 2
        terms = self.score[:, i : i + 1] * basis + derivatives - own
        average, gram = terms.mean(0), basis.T @ basis / len(basis)
        if float(gram.diagonal().amax()) < _LEAST_CURVED:
            return Finding("shape", (i,), z=z)
        ridge = torch.cov(terms.T) / len(terms)
        with torch.enable_grad():
            average.requires_grad_()
            # The score of the model minus that of the points along the coordinate, and its integral.
            weights = torch.linalg.solve(gram + ridge, average)
            ratio = torch.softmax(integrals @ weights, 0) * len(basis)
            share = (ratio - 1).abs().mean() / 2
            (slope,) = torch.autograd.grad(share, average)
        if float(ratio.detach().square().mean()) > 1 / _LEAST_ALIKE:
            # A few points stand for all of the model's mass: it is too far away for its share to be told.
            return Finding("shape", (i,), z=z)
        stderr = float(self.view.errors((terms @ slope)[:, None]))
        return replace(_finding("shape", (i,), float(share.detach()), stderr), z=z)


def _tangents(
    score: Float[Tensor, "n d"], u: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """The Stein values of the critics 1 and u, for each coordinate."""
    return score, (score - score.mean(0)) * u + 1


def _inverse(correlation: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The inverse; where coordinates depend on each other linearly, on the space that they span."""
    return torch.linalg.pinv(correlation, hermitian=True, rtol=_SINGULAR)


def _corrected(errors: Errors, n: int, slopes: int) -> Errors:
    """Standard errors after a fit with so many slopes, which leaves over less than there is."""
    factor = math.sqrt(n / max(1, n - 1 - slopes))
    return lambda values: errors(values) * factor


def _finding(kind: str, coordinates: tuple[int, ...], size: float, stderr: float) -> Finding:
    low, high = size - _SURE * stderr, size + _SURE * stderr
    if kind in ("shape", "dependence"):  # A share of the mass and a root mean square are never negative.
        low, high = max(0.0, low), min(1.0, high) if kind == "shape" else high
    return Finding(kind, coordinates, size, low, high, size / stderr if stderr > 0 else None)


def _beyond_chance(kind: str, limit: float, size: Tensor, stderr: Tensor, remains: Tensor) -> list[Finding]:
    """The coordinates whose size is beyond chance, and remains so once other kinds have been accounted for."""
    places = ((size.abs() > limit * stderr) & (remains.abs() > limit)).nonzero().view(-1).tolist()
    return _largest_first([_finding(kind, (i,), float(size[i]), float(stderr[i])) for i in places])


def _largest_first(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: one.strength, reverse=True)
