"""The additive critic: sums of functions of single coordinates.

For a test the entries that stand out are kept, on their own coordinate and on others. For an estimate the functions of
each coordinate on its own coordinate are solved together, and the pairs that stand out are a critic of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.maps.angles import FREQUENCIES, multiple_angles
from steinscope.portfolio.learner import Context, Learner
from steinscope.portfolio.marginal import MarginalLearner, OriginalLearner, RotatedLearner, or_one
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["AdditiveLearner", "PairLearner"]


class AdditiveLearner(Learner):
    r"""The additive critic: each output coordinate is a sum of few functions of single coordinates.

    $f = W \varphi(x)$ with $\varphi$ each standardised coordinate and its sines and cosines at a few frequencies. Each
    entry of W is estimated on its own, as the average of $s_i \varphi_{jm} + [i = j] \varphi_{jm}'$ divided by its
    variance, and is kept where its z-score exceeds $\sqrt{2 \ln(\text{number of entries})}$. It sees wrong marginals,
    wrong scales and wrong pairs.
    """

    name = "additive"
    totals = ("count", "sums")
    at_home = ("squares", "feature_squares", "ratio")
    frequencies = FREQUENCIES
    fallback = 3
    most = 1000
    # Variances come from the first points alone: they need not be as good as the means, and would cost as much.
    variance_points = 1000

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        learners = [MarginalLearner(), RotatedLearner(), PairLearner()]
        if math.prod(context.shape) <= RotatedLearner.most_coordinates:
            learners.append(RotatedLearner(is_independent=True))
        if context.metric.root is not None:
            learners.append(OriginalLearner(context.metric))
        return learners

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        d = x.shape[1]
        self.centre = x.mean(0)
        self.spread = or_one(x.std(0))
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
        for number, (sine, cosine) in enumerate(multiple_angles(u)):
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
        self.sums = torch.addmm(self.sums, score.T, features.view(n, -1))
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

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Output coordinate, function and input coordinate of each kept entry."""
        d = len(self.centre)
        columns = len(self.rate) * d
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
