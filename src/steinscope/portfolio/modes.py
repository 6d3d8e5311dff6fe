"""The critic that jumps: it sees how the mass is divided between separated modes, which no score does."""

from __future__ import annotations

import torch
from torch import Tensor

from steinscope.modes.moves import Moves
from steinscope.modes.search import find_modes
from steinscope.modes.surface import Surface
from steinscope.modes.weights import KEPT_POINTS, ModeWeights, weigh
from steinscope.portfolio.learner import Context, ValueLearner
from steinscope.shapes import FlatPoints, PerPoint
from steinscope.support.randomness import make_generator

__all__ = ["ModeLearner"]

# A mode takes part if the model lets so many points of the first batch through to it or from it. A rarer one would make
# values so skewed that the test rejects too often.
_LEAST_FLUX = 1.0


class ModeLearner(ValueLearner):
    r"""A weight h for each mode, and the values $\sum_b (h_b - h_a) \alpha_{ab}(x)$ of points in the cell of mode a.

    They are zero on average where the model is right, whatever h is (see `steinscope.modes.moves`). The weights are
    those that make the average over the points seen so far large for its standard error. The modes are searched from
    the first batch alone. Where one is found the critic takes no part in the test.

    Arguments:
        context: What is known before points are seen.
    """

    name = "modes"

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def for_test(cls, context: Context) -> ModeLearner:
        return cls(context)

    @property
    def is_present(self) -> bool:
        return self.moves is not None

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        known = self.context
        surface = Surface(known.model, known.metric, known.shape, known.dtype, x.device)
        starts = known.metric.points(known.starts.to(x)).double() if known.starts is not None else None
        modes = find_modes(surface, x.double(), make_generator(known.seed, x.device, purpose="modes"), starts)
        self.moves = _frequent(Moves(modes, surface), x) if len(modes) > 1 else None
        self.last: tuple[Tensor, Tensor, Tensor] | None = None
        if self.moves is not None:
            k, like = len(self.moves.modes), {"dtype": torch.float64, "device": x.device}
            self.total, self.products = torch.zeros(k, **like), torch.zeros(k, k, **like)
            self.count, self.kept = self.total.long(), x[:0].double()

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        if self.moves is not None:
            cells, flux = self._flux(x)
            self.count += cells.bincount(minlength=len(self.count))
            if len(self.kept) < KEPT_POINTS:
                self.kept = torch.cat([self.kept, x[: KEPT_POINTS - len(self.kept)].double()])
            self.total += flux.sum(0)
            self.products += flux.T @ flux

    def refit(self) -> None:
        if self.moves is not None:
            mean, scatter = self.total / self.count.sum(), self.products / self.count.sum()
            # The average variance that is added keeps modes with few moves from getting large weights.
            ridge = scatter.diagonal().mean().clamp_min(1e-300)
            self.weights = torch.linalg.solve(scatter + ridge * torch.eye(len(mean)).to(mean), mean)

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        return torch.zeros_like(x[:, 0]) if self.moves is None else (self._flux(x)[1] @ self.weights).to(x.dtype)

    def _flux(self, x: FlatPoints) -> tuple[Tensor, Tensor]:
        """The cells and the flux of points, which a test asks for up to three times."""
        if self.last is None or not _starts_with(self.last[0], x):
            assert self.moves is not None
            self.last = x, *self.moves.flux(x)
        return self.last[1][: len(x)], self.last[2][: len(x)]

    def mode_weights(self, alpha: float) -> ModeWeights | None:
        if self.moves is None:
            return None
        modes, surface = self.moves.modes, self.moves.surface
        generator = make_generator(self.context.seed, self.kept.device, purpose="masses")
        return weigh(modes, surface, self.count, self.kept, modes.cells(self.kept), generator, alpha, self.context.time)


def _starts_with(whole: Tensor, part: Tensor) -> bool:
    """Whether a tensor is, in memory, the first rows of another."""
    return part.data_ptr() == whole.data_ptr() and part.stride() == whole.stride() and len(part) <= len(whole)


def _frequent(moves: Moves, x: FlatPoints) -> Moves | None:
    """The moves between modes that take part; None if there are not two of them."""
    cells, accepted = moves.acceptances(x)
    rate = torch.zeros(len(moves.modes), len(moves.modes), dtype=torch.float64, device=x.device)
    rate.index_add_(0, cells, accepted)
    takes_part = (0.5 * (rate + rate.T)).amax(1) >= _LEAST_FLUX
    return Moves(moves.modes.take(takes_part), moves.surface) if int(takes_part.sum()) > 1 else None
