"""Critics that learn from block to block, for the prequential test.

A learner is shown the points block by block. Before it takes in a block it gives the Stein values of that block's
points under the critic that it made from the blocks before. Most learners make their critic in closed form from sums
over the points, so that a whole test costs a few passes of matrix products.
"""

from __future__ import annotations

import copy
import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.critics import MLP, Critic, Features, Preconditioned
from steinscope.features import FeatureMap, RandomCosines
from steinscope.results import Finding
from steinscope.stein import Objective, PenalisedLSD

__all__ = ["CriticLearner", "FeatureLearner", "Learner", "LinearLearner", "MeanLearner", "SparseLearner"]

Batch = Float[Tensor, "n d"]
PerPoint = Float[Tensor, " n"]

_ENOUGH_POINTS = 500


@runtime_checkable
class Learner(Protocol):
    """A critic that learns from block to block."""

    name: str

    def begin(self, x: Batch, score: Batch) -> None:
        """Look at the first batch of the first block: scales and sizes are taken from it, and stay fixed."""
        ...

    def values(self, x: Batch, score: Batch) -> PerPoint:
        """The Stein values of points under the critic of the blocks before."""
        ...

    def field(self, x: Batch) -> tuple[Batch, Batch]:
        """That critic at points, and the diagonal of its Jacobian."""
        ...

    def observe(self, x: Batch, score: Batch) -> None:
        """Take in points of the present block. The critic does not change yet."""
        ...

    def refit(self) -> None:
        """The block is over: make the critic from all points seen so far."""
        ...


class MeanLearner:
    """The constant critic f(x) = the average of the scores. It sees a wrong mean, with far less noise than `linear`."""

    name = "mean"

    def begin(self, x: Batch, score: Batch) -> None:
        self.count = 0
        self.total = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)

    def values(self, x: Batch, score: Batch) -> PerPoint:
        return score @ self.offset

    def field(self, x: Batch) -> tuple[Batch, Batch]:
        return self.offset.expand_as(x), torch.zeros_like(x)

    def observe(self, x: Batch, score: Batch) -> None:
        self.total += score.sum(0)
        self.count += len(x)

    def refit(self) -> None:
        self.offset = self.total / self.count


class LinearLearner:
    r"""The critic $f(x) = A (x - c) / \tau^2 + b$ with A and b the plain averages of $s (x - c)^\top + I$ and of s.

    It sees wrong means and covariances. It is not whitened: that would cost power while n is not far above d.
    """

    name = "linear"

    def begin(self, x: Batch, score: Batch) -> None:
        self.centre = x.mean(0)
        self.scale = float((x - self.centre).square().mean().clamp_min(1e-30))
        self.count = 0
        self.products = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device)
        self.total = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)

    def values(self, x: Batch, score: Batch) -> PerPoint:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return torch.linalg.vecdot(score, f) + self.matrix.trace()

    def field(self, x: Batch) -> tuple[Batch, Batch]:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return f, self.matrix.diagonal().expand_as(x)

    def observe(self, x: Batch, score: Batch) -> None:
        self.products.addmm_(score.T, x - self.centre)
        self.total += score.sum(0)
        self.count += len(x)

    def refit(self) -> None:
        self.matrix = self.products / self.count
        self.matrix.diagonal().add_(1.0)
        self.matrix /= self.scale
        self.offset = self.total / self.count


class SparseLearner:
    r"""The sparse coordinate critic: each output coordinate is a sum of functions of single coordinates.

    $f = W \varphi(x)$ with $\varphi$ each standardised coordinate and its sines and cosines at a few frequencies. Each
    entry of W is estimated on its own, as the average of $s_i \varphi_{jm} + [i = j] \varphi_{jm}'$ divided by its
    variance, and is kept where its z-score exceeds $\sqrt{2 \ln(\text{number of entries})}$. It sees wrong margins,
    wrong scales and wrong pairs, and the entries that survive say which.
    """

    name = "sparse"
    frequencies = (0.5, 1.0, 2.0, 3.0)
    fallback = 3
    most = 1000
    # Variances come from the first points alone: they need not be as good as the means, and would cost as much.
    variance_points = 1000

    def begin(self, x: Batch, score: Batch) -> None:
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

    def _features(self, x: Batch) -> Float[Tensor, "n m d"]:
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

    def _terms(self, x: Batch) -> tuple[Tensor, Tensor]:
        """The kept functions at each point, and their derivatives where they act on their own coordinate."""
        output, function, coordinate = self._entries()
        u = (x[:, coordinate] - self.centre[coordinate]) / self.spread[coordinate]
        rate, phase, is_linear = self.rate[function], self.phase[function], function == 0
        angle = rate * u + phase
        slopes = torch.where(is_linear, 1.0, rate * torch.cos(angle)).div_(self.spread[coordinate])
        return torch.where(is_linear, u, torch.sin(angle)), slopes.mul_((output == coordinate).to(x.dtype))

    def values(self, x: Batch, score: Batch) -> PerPoint:
        terms, slopes = self._terms(x)
        return slopes.addcmul_(terms, score[:, self._entries()[0]]) @ self.coefficients

    def field(self, x: Batch) -> tuple[Batch, Batch]:
        output = self._entries()[0]
        f, diagonal = (torch.zeros_like(x).index_add_(1, output, part * self.coefficients) for part in self._terms(x))
        return f, diagonal

    def observe(self, x: Batch, score: Batch) -> None:
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
            self._add_own_squares(features, squared.sum(0), score)
            self.variance_count += m

    def _add_own_squares(
        self, features: Float[Tensor, "n m d"], sums_of_squares: Float[Tensor, "m d"], score: Batch
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
            Finding(output, coordinate, names[function], size)
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


def _multiple_angles(u: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Sine and cosine of u/2, u, 2u and 3u. Addition theorems cost a fraction of the functions themselves."""
    half_sine, half_cosine = torch.sin(0.5 * u), torch.cos(0.5 * u)
    sine, cosine = 2 * half_sine * half_cosine, 1 - 2 * half_sine.square()
    double_sine, double_cosine = 2 * sine * cosine, 1 - 2 * sine.square()
    triple_sine = double_sine * cosine + double_cosine * sine
    triple_cosine = double_cosine * cosine - double_sine * sine
    return [(half_sine, half_cosine), (sine, cosine), (double_sine, double_cosine), (triple_sine, triple_cosine)]


class FeatureLearner:
    r"""The critic $f = W \varphi(x)$ on given features, with $W = C (G + rI)^{-1}$ from the averages over the past.

    Arguments:
        name: What the result calls it.
        feature_map: The features; by default random cosines whose width is the median distance in the first batch.
        count: How many random cosines.
        ridge: r, as a share of the mean diagonal entry of G.
        seed: The source of the random features.
    """

    def __init__(
        self,
        name: str = "features",
        feature_map: FeatureMap | None = None,
        count: int = 100,
        ridge: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.name, self.feature_map, self.count, self.ridge, self.seed = name, feature_map, count, ridge, seed

    def begin(self, x: Batch, score: Batch) -> None:
        if self.feature_map is None:
            width = float(torch.pdist(x[:200]).median().clamp_min(1e-30))
            self.feature_map = RandomCosines(x.shape[1], self.count, width, seed=self.seed).to(x)
        self.seen = 0
        self.gram: Tensor | float = 0.0
        self.cross: Tensor | float = 0.0

    @torch.no_grad()
    def values(self, x: Batch, score: Batch) -> PerPoint:
        assert self.feature_map is not None
        f, divergence = self.feature_map.value_and_divergence(x, self.weights)
        return torch.linalg.vecdot(score, f) + divergence

    @torch.no_grad()
    def field(self, x: Batch) -> tuple[Batch, Batch]:
        assert self.feature_map is not None
        return self.feature_map.value_and_diagonal(x, self.weights)

    @torch.no_grad()
    def observe(self, x: Batch, score: Batch) -> None:
        assert self.feature_map is not None
        features, jacobian = self.feature_map.sum_jacobian(x)
        self.gram = self.gram + features.T @ features
        self.cross = self.cross + torch.addmm(jacobian, score.T, features)
        self.seen += len(x)

    def refit(self) -> None:
        gram, cross = torch.as_tensor(self.gram) / self.seen, torch.as_tensor(self.cross) / self.seen
        regular = gram.clone()
        regular.diagonal().add_(self.ridge * float(gram.diagonal().mean()))
        self.weights = torch.cholesky_solve(cross.T, torch.linalg.cholesky(regular)).T


class CriticLearner:
    """A critic that is trained by gradient steps and goes on from block to block, or is solved after each block.

    Arguments:
        name: What the result calls it.
        critic: The critic to start from; by default a small `MLP` in coordinates of unit scale.
        steps: Steps of Adam after each block.
        most_points: How many of the points seen so far are kept for training, the newest first.
        lr: The learning rate once 500 points have been seen. Before that it is smaller, by the root of their share: a
            critic that has fitted few points closely gives Stein values so skewed that the test rejects too often.
        objective: What is maximised. By default the penalised LSD: maximising power makes values skewed, too.
        width: Units in each hidden layer of the default critic.
        dropout: Its dropout.
        weight_decay: Added to the gradient as weight_decay times the weights.
        seed: The source of the first weights and of dropout.
    """

    def __init__(
        self,
        name: str = "mlp",
        critic: Critic | None = None,
        steps: int = 10,
        most_points: int = 4096,
        lr: float = 1e-2,
        objective: Objective | None = None,
        width: int = 100,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        seed: int = 0,
    ) -> None:
        self.name, self.critic, self.steps, self.most_points, self.lr = name, critic, steps, most_points, lr
        self.objective = objective or PenalisedLSD()
        self.width, self.dropout, self.weight_decay, self.seed = width, dropout, weight_decay, seed

    def begin(self, x: Batch, score: Batch) -> None:
        if self.critic is None:
            variance = x.var(0).clamp_min(1e-30)
            inner = MLP(x.shape[1], self.width, dropout=self.dropout, seed=self.seed).to(x)
            self.critic = Preconditioned(inner, x.mean(0), torch.diag(variance)).to(x)
        else:
            self.critic = copy.deepcopy(self.critic).to(x)
        self.generator = torch.Generator(device=x.device).manual_seed(self.seed)
        self.kept: list[tuple[Tensor, Tensor]] = []
        if not isinstance(self.critic, Features):
            trainable = [parameter for parameter in self.critic.parameters() if parameter.requires_grad]
            self.optimiser = torch.optim.Adam(trainable, lr=self.lr, weight_decay=self.weight_decay, fused=True)

    @torch.no_grad()
    def values(self, x: Batch, score: Batch) -> PerPoint:
        assert self.critic is not None
        return self.critic.eval().stein(x, score, self.generator)[0]

    @torch.no_grad()
    def field(self, x: Batch) -> tuple[Batch, Batch]:
        assert self.critic is not None
        return self.critic.eval().value_and_diagonal(x)

    def observe(self, x: Batch, score: Batch) -> None:
        self.kept.insert(0, (x, score))
        total = 0
        for position, (batch, _) in enumerate(self.kept):
            total += len(batch)
            if total >= self.most_points:
                del self.kept[position + 1 :]
                break

    def refit(self) -> None:
        assert self.critic is not None
        x, score = (torch.cat(parts) for parts in zip(*self.kept, strict=True))
        if isinstance(self.critic, Features):
            self.critic.solve([(x, score)], ridge=1.0)
            return
        self.critic.train()
        self.optimiser.param_groups[0]["lr"] = self.lr * min(1.0, math.sqrt(len(x) / _ENOUGH_POINTS))
        for _ in range(self.steps):
            with torch.enable_grad():
                loss = -self.objective(*self.critic.stein(x, score, self.generator))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
