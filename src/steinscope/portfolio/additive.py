"""The additive critic: sums of functions of single coordinates.

For a test the entries that stand out are kept, on their own coordinate and on others. For an estimate the functions of
each coordinate on its own coordinate are solved together, and the pairs that stand out are a critic of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.portfolio.learner import Context, Learner
from steinscope.results import Finding
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["AdditiveLearner", "MarginalLearner", "PairLearner", "RotatedLearner"]

_QUANTILE_ROWS = 5000


class AdditiveLearner(Learner):
    r"""The additive critic: each output coordinate is a sum of few functions of single coordinates.

    $f = W \varphi(x)$ with $\varphi$ each standardised coordinate and its sines and cosines at a few frequencies. Each
    entry of W is estimated on its own, as the average of $s_i \varphi_{jm} + [i = j] \varphi_{jm}'$ divided by its
    variance, and is kept where its z-score exceeds $\sqrt{2 \ln(\text{number of entries})}$. It sees wrong marginals,
    wrong scales and wrong pairs, and the entries that survive say which.
    """

    name = "additive"
    frequencies = (0.5, 1.0, 2.0, 3.0)
    fallback = 3
    most = 1000
    # Variances come from the first points alone: they need not be as good as the means, and would cost as much.
    variance_points = 1000

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        return MarginalLearner(), RotatedLearner(), RotatedLearner(is_independent=True), PairLearner()

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        d = x.shape[1]
        self.centre = x.mean(0)
        self.spread = x.std(0).clamp_min(1e-30)
        # Function 0 is u itself; the others are sin(frequency u + phase), a cosine having phase π/2.
        pairs = [(frequency, phase) for frequency in self.frequencies for phase in (0.0, math.pi / 2)]
        table = torch.tensor([(1.0, 0.0), *pairs], dtype=x.dtype, device=x.device)
        self.rate, self.phase = table.T
        self.count = self.variance_count = 0
        shape = (d, len(table) * d)
        self.sums = torch.zeros(shape, dtype=x.dtype, device=x.device)
        self.squares = torch.full(shape, 1e-30, dtype=x.dtype, device=x.device)
        self.ratio = torch.empty_like(self.sums)
        self.feature_squares = torch.zeros(len(table), d, dtype=x.dtype, device=x.device)

    def _features(self, x: FlatPoints) -> Float[Tensor, "n m d"]:
        """The functions of each coordinate: entry [:, m, j] is function m of x_j."""
        u = (x - self.centre) / self.spread
        features = x.new_empty(len(x), len(self.rate), x.shape[1])
        features[:, 0] = u
        for number, (sine, cosine) in enumerate(_multiple_angles(u)):
            features[:, 2 * number + 1], features[:, 2 * number + 2] = sine, cosine
        return features

    def _slope_sums(self, sums: Float[Tensor, "m d"], n: int) -> Float[Tensor, "m d"]:
        """Sums of the functions' derivatives over n points: a sine's is made of its cosine, a cosine's of its sine."""
        rate = self.rate[1::2, None] / self.spread
        slopes = torch.empty_like(sums)
        slopes[0], slopes[1::2], slopes[2::2] = n / self.spread, rate * sums[2::2], -rate * sums[1::2]
        return slopes

    def _terms(self, x: FlatPoints) -> tuple[Tensor, Tensor]:
        """The kept functions at each point, and their derivatives where they act on their own coordinate."""
        output, function, coordinate = self._entries()
        u = (x[:, coordinate] - self.centre[coordinate]) / self.spread[coordinate]
        rate, phase, is_linear = self.rate[function], self.phase[function], function == 0
        angle = rate * u + phase
        slopes = torch.where(is_linear, 1.0, rate * torch.cos(angle)).div_(self.spread[coordinate])
        return torch.where(is_linear, u, torch.sin(angle)), slopes.mul_((output == coordinate).to(x.dtype))

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        terms, slopes = self._terms(x)
        return slopes.addcmul_(terms, score[:, self._entries()[0]]) @ self.coefficients

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        output = self._entries()[0]
        f, diagonal = (torch.zeros_like(x).index_add_(1, output, part * self.coefficients) for part in self._terms(x))
        return f, diagonal

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        features = self._features(x)
        n = len(x)
        self.sums.addmm_(score.T, features.view(n, -1))
        self._diagonal(self.sums).add_(self._slope_sums(features.sum(0), n))
        self.count += n
        m = min(n, self.variance_points - self.variance_count)
        if m > 0:
            features, score = features[:m], score[:m]
            squared = features.square()
            self.squares.addmm_(score.T.square(), squared.view(m, -1))
            self.feature_squares += squared.sum(0)
            self._add_own_squares(features, squared.sum(0), score)
            self.variance_count += m

    def _add_own_squares(
        self, features: Float[Tensor, "n m d"], sums_of_squares: Float[Tensor, "m d"], score: FlatPoints
    ) -> None:
        """Where a function acts on its own coordinate, the square of s φ + φ' is s² φ² + 2 s φ φ' + φ'²."""
        diagonal, rate = self._diagonal(self.squares), self.rate[1::2, None] / self.spread
        diagonal[0] += (2 * torch.linalg.vecdot(features[:, 0], score, dim=0) + len(score) / self.spread) / self.spread
        products = (features[:, 1::2] * features[:, 2::2]).mul_(score[:, None]).sum(0).mul_(2 * rate)
        diagonal[1::2] += products + rate.square() * sums_of_squares[2::2]
        diagonal[2::2] += rate.square() * sums_of_squares[1::2] - products

    def refit(self) -> None:
        # With S the sum and Q the sum of squares of an entry's n terms, z² = r / (1 - r / n) for r = S² / Q. It grows
        # with r, so that entries are chosen by r, and mean and variance are needed only for those that are kept.
        torch.mul(self.sums, self.sums, out=self.ratio).div_(self.squares)
        threshold = 2 * math.log(self.ratio.numel())
        # The ratio is that of sums over different numbers of points.
        threshold = threshold / (1 + threshold / self.count) * self.count / self.variance_count
        largest = self.ratio.amax(1)
        strong = (largest > threshold).nonzero().view(-1)
        if len(strong):
            row, column = (self.ratio[strong] > threshold).nonzero(as_tuple=True)
            kept = strong[row] * self.ratio.shape[1] + column
        else:
            kept = strong
        flat = self.ratio.view(-1)
        if len(kept) < self.fallback:
            # Where nothing stands out, the largest entries of the strongest coordinates are as good a guess as any.
            rows = largest.topk(min(self.fallback, len(largest))).indices
            kept = rows * self.ratio.shape[1] + self.ratio[rows].argmax(1)
        elif len(kept) > self.most:
            kept = kept[flat[kept].topk(self.most).indices]
        self.kept = kept
        mean = self.sums.view(-1)[kept] / self.count
        mean_square = self.squares.view(-1)[kept] / self.variance_count
        # The mean of all points and the mean square of the first ones can contradict each other.
        self.coefficients = mean / torch.maximum(mean_square - mean.square(), 0.1 * mean_square)

    def findings(self) -> tuple[Finding, ...]:
        """The entries beyond the threshold, from all points seen, strongest first."""
        self.refit()
        ratio = self.ratio.view(-1)[self.kept] * self.variance_count / self.count
        z = (ratio / (1 - ratio / self.count).clamp_min(0.1)).sqrt() * self.sums.view(-1)[self.kept].sign()
        names = ["u", *(f"{name} {frequency:g}u" for frequency in self.frequencies for name in ("sin", "cos"))]
        found = [
            Finding(self.name, output, coordinate, names[function], size)
            for output, function, coordinate, size in zip(
                *(part.tolist() for part in self._entries()), z.tolist(), strict=True
            )
            if size**2 > 2 * math.log(self.ratio.numel())
        ]
        return tuple(sorted(found, key=lambda finding: -abs(finding.z))[:100])

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Output coordinate, function and input coordinate of each kept entry."""
        d, columns = self.ratio.shape
        column = self.kept % columns
        return self.kept // columns, column // d, column % d

    def _diagonal(self, matrix: Tensor) -> Tensor:
        """The entries [i, (m, i)], where a function of a coordinate acts on that coordinate: shape (m, d)."""
        d = len(self.centre)
        return matrix.view(d, -1, d).diagonal(dim1=0, dim2=2)


class PairLearner(AdditiveLearner):
    """Functions of single coordinates on other coordinates, where they stand out: wrong pairs, for an estimate."""

    # Thresholds on the z-score of an entry, as shares of √(2 ln(number of entries)).
    thresholds = (1.0, 0.75)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        super().observe(x, score)
        self._diagonal(self.sums).zero_()

    def path(self, l2: float) -> Iterator[None]:
        """Each entry is estimated on its own, as the average over 2λ times its function's mean square."""
        z_squared = self.sums.square() / self.squares * (self.variance_count / self.count)
        mean_square = (self.feature_squares / self.variance_count).clamp_min(1e-12)
        limit = 2 * math.log(self.sums.numel())
        for share in self.thresholds:
            kept = (z_squared.view(-1) > share**2 * limit).nonzero().view(-1)
            if len(kept) > self.most:
                kept = kept[z_squared.view(-1)[kept].topk(self.most).indices]
            self.kept = kept
            columns = kept % self.sums.shape[1]
            means = self.sums.view(-1)[kept] / self.count
            # An entry that stands out by chance is too large: it is shrunk by its own noise.
            shrink = 1 - 1 / z_squared.view(-1)[kept].clamp_min(1.0)
            self.coefficients = shrink * means / (2 * l2 * mean_square.view(-1)[columns])
            yield


class MarginalLearner(Learner):
    r"""Functions of each coordinate on that coordinate, $f_j(x) = \sum_m w_{jm} \varphi_m(x_j)$, for an estimate.

    One small ridge solve for each coordinate. The functions are those of `AdditiveLearner` and steps at quantiles of
    the coordinate.
    """

    name = "additive"
    knots = 12
    ridges = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        levels = torch.linspace(0.005, 0.995, self.knots, dtype=x.dtype, device=x.device)
        # Knots of each coordinate (K, d), and the width of the steps.
        self.places = torch.quantile(x[:_QUANTILE_ROWS], levels, dim=0)
        self.rate = 2 * self.knots / (self.places[-1] - self.places[0]).clamp_min(1e-30)
        self.lowest, self.highest = x.amin(0), x.amax(0)
        size, d = 10 + self.knots, x.shape[1]
        self.count, self.dtype = 0, x.dtype
        self.gram = torch.zeros(d, size, size, dtype=torch.float64, device=x.device)
        self.cross = torch.zeros(d, size, dtype=torch.float64, device=x.device)

    def _planes(self, x: FlatPoints) -> Iterator[tuple[Tensor, Tensor]]:
        """Each function of all coordinates, and its derivative, one after the other."""
        # Beyond all points that were seen the functions stay what they were at the last of them.
        u = torch.clamp(x, self.lowest, self.highest)
        is_inside = (u == x).to(x.dtype)
        yield torch.ones_like(u), torch.zeros_like(u)
        yield u, is_inside
        for frequency, (sine, cosine) in zip(AdditiveLearner.frequencies, _multiple_angles(u), strict=True):
            yield sine, frequency * cosine * is_inside
            yield cosine, -frequency * sine * is_inside
        for place in self.places:
            step = torch.sigmoid((u - place) * self.rate)
            yield step, (step - step.square()) * (self.rate * is_inside)

    def _functions(self, x: FlatPoints) -> tuple[Float[Tensor, "k n d"], Float[Tensor, "k n d"]]:
        """All functions, and their derivatives."""
        functions, slopes = zip(*self._planes(x), strict=True)
        return torch.stack(functions), torch.stack(slopes)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        functions, slopes = self._functions(x)
        by_coordinate = functions.permute(2, 0, 1).contiguous()
        self.gram += by_coordinate @ by_coordinate.transpose(1, 2)
        self.cross += (by_coordinate @ score.T[:, :, None])[:, :, 0] + slopes.sum(1).T
        self.count += len(x)

    def refit(self) -> None:
        for _ in self._solve(0.5, (1.0,)):
            pass

    def path(self, l2: float) -> Iterator[None]:
        return self._solve(l2, self.ridges)

    def _solve(self, l2: float, ridges: tuple[float, ...]) -> Iterator[None]:
        eigenvalues, vectors = torch.linalg.eigh(self.gram / self.count)
        rotated = torch.linalg.vecdot(vectors, (self.cross / self.count)[:, :, None], dim=1) / (2 * l2)
        for ridge in ridges:
            solved = (vectors @ (rotated / (eigenvalues.clamp_min(0.0) + ridge))[:, :, None])[:, :, 0]
            self.weights = solved.T.to(self.dtype).contiguous()
            yield

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f, slopes = torch.zeros_like(x), torch.zeros_like(x)
        for weight, (function, slope) in zip(self.weights, self._planes(x), strict=True):
            f, slopes = torch.addcmul(f, function, weight), torch.addcmul(slopes, slope, weight)
        return f, slopes

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        functions, slopes = self._functions(x)

        def look() -> tuple[FlatPoints, PerPoint]:
            weights = self.weights[:, None]
            return (functions * weights).sum(0), (slopes * weights).sum((0, 2))

        return look


class RotatedLearner(MarginalLearner):
    """The same functions of the coordinates along other orthogonal axes.

    Arguments:
        is_independent: Whether the principal axes of the points are turned until the projections on them are as far
            from normal as they can be.
    """

    # Turning takes a product of n × d × d in each of some twenty rounds.
    most_coordinates = 200

    def __init__(self, is_independent: bool = False) -> None:
        self.is_independent = is_independent

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.axes = torch.linalg.eigh(torch.atleast_2d(torch.cov(x.T)))[1].T.contiguous()
        if self.is_independent and x.shape[1] <= self.most_coordinates:
            self.axes = independent_directions(x - x.mean(0), self.axes)
        super().begin(x @ self.axes.T, score @ self.axes.T)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        super().observe(x @ self.axes.T, score @ self.axes.T)

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f, slopes = super().field(x @ self.axes.T)
        return f @ self.axes, slopes @ self.axes.square()

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        f, slopes = super().field(x @ self.axes.T)
        return f @ self.axes, slopes.sum(1)

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        turned = super().looking_at(x @ self.axes.T)

        def look() -> tuple[FlatPoints, PerPoint]:
            f, divergence = turned()
            return f @ self.axes, divergence

        return look


def independent_directions(x: FlatPoints, axes: Float[Tensor, "d d"], most_rounds: int = 50) -> Float[Tensor, "d d"]:
    r"""Orthogonal directions on which projections are far from normal, by the fixed-point iteration of FastICA.

    Arguments:
        x: Points with mean zero.
        axes: The directions to start from, as rows.
        most_rounds: How many rounds at most.
    """
    for _ in range(most_rounds):
        projections = x @ axes.T
        spread = projections.std(0).clamp_min(1e-6)
        u = projections / spread
        # The derivative of -exp(-u²/2), which few large projections cannot dominate.
        bell = torch.exp(-0.5 * u.square())
        slopes = ((1 - u.square()) * bell).mean(0)
        update = (u * bell).T @ x / len(x) - (slopes * spread)[:, None] * axes
        left, _, right = torch.linalg.svd(update, full_matrices=False)
        turned = left @ right
        is_done = bool(((turned * axes).sum(1).abs() > 1 - 1e-5).all())
        axes = turned
        if is_done:
            break
    return axes


def _multiple_angles(u: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Sine and cosine of u/2, u, 2u and 3u. Addition theorems cost a fraction of the functions themselves."""
    half_sine, half_cosine = torch.sin(0.5 * u), torch.cos(0.5 * u)
    sine, cosine = 2 * half_sine * half_cosine, 1 - 2 * half_sine.square()
    double_sine, double_cosine = 2 * sine * cosine, 1 - 2 * sine.square()
    triple_sine = double_sine * cosine + double_cosine * sine
    triple_cosine = double_cosine * cosine - double_sine * sine
    return [(half_sine, half_cosine), (sine, cosine), (double_sine, double_cosine), (triple_sine, triple_cosine)]
