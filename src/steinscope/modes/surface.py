"""The log-density of a model as a surface over flat points, in the coordinates of a metric."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.densities import as_density, call_model, evaluating, placement
from steinscope.errors import InputError
from steinscope.metric import Metric

__all__ = ["Surface"]

_BATCH_NUMBERS = 2**21


class Surface:
    """The log-density of a model, up to a constant, and its slope. Numbers go in and come out in float64.

    The model itself is called in the type of the user's points, with points of the shape that the user knows. Where it
    refuses a point, because it lies outside of the support, the log-density is minus infinity.

    Arguments:
        model: A model with `log_prob(x)`, or with `score(x)` where its slope is enough.
        metric: The coordinates.
        shape: The shape of a point as the user knows it.
        dtype: The floating type of the user's points.
        device: Where they are.
    """

    def __init__(
        self, model: Any, metric: Metric, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.model, self.metric, self.shape = model, metric, shape
        self.dtype, self.device = placement(model, dtype, device)
        self.density = as_density(model)
        # The spacing of floating numbers of the narrowest type that a log-density came in.
        self._eps = torch.finfo(self.dtype).eps

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return len(self.metric.centre)

    @property
    def has_log_prob(self) -> bool:
        """Whether the model knows its log-density; otherwise there is its slope alone."""
        return callable(getattr(self.model, "log_prob", None))

    @torch.no_grad()
    def log_prob(self, z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log-density at each point."""
        rows = max(1, _BATCH_NUMBERS // z.shape[1])
        with evaluating(self.model):
            return torch.cat([self._log_prob(part) for part in z.split(rows)]) if len(z) else z.new_empty(0)

    def _log_prob(self, z: Tensor) -> Tensor:
        try:
            value = call_model(self.model.log_prob, self._as_user_knows(z), "log_prob")
        except InputError:
            # It does not say which points it refuses.
            if len(z) == 1:
                return torch.full_like(z[:, 0], -torch.inf)
            return torch.cat([self._log_prob(half) for half in z.tensor_split(2)])
        if not isinstance(value, Tensor) or value.numel() != len(z):
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError("model", f"log_prob must return one number for each of the {len(z)} points, got {came}")
        if value.is_floating_point():
            self._eps = max(self._eps, torch.finfo(value.dtype).eps)
        value = value.detach().reshape(-1).to(z)
        return torch.where(value.isnan(), -torch.inf, value)

    def rounding(
        self, z: Float[Tensor, "n d"], score: Float[Tensor, "n d"], log_prob: Float[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        """How coarse log-densities are: by the digits of their numbers, and of the points, which may lie far from zero.

        Arguments:
            z: The points.
            score: The slopes there.
            log_prob: The log-densities there.
        """
        from_zero = z - self.metric.wide_points(torch.zeros_like(z[:1]))
        return self._eps * (log_prob.abs() + torch.linalg.vecdot(from_zero.abs(), score.abs()))

    def score(self, z: Float[Tensor, "n d"], *, where_none: float = 0.0) -> Float[Tensor, "n d"]:
        """The slope at each point.

        Arguments:
            z: The points.
            where_none: What stands for slopes that the model does not have, as outside of its support.
        """
        rows = max(1, _BATCH_NUMBERS // z.shape[1])
        with evaluating(self.model):
            return torch.cat([self._score(part, where_none) for part in z.split(rows)])

    def _score(self, z: Tensor, where_none: float) -> Tensor:
        try:
            value = call_model(self.density.score, self._as_user_knows(z), "score").detach()
        except InputError:
            if len(z) == 1:
                return torch.full_like(z, where_none)
            return torch.cat([self._score(half, where_none) for half in z.tensor_split(2)])
        return self.metric.scores(value.to(z)).nan_to_num(where_none, where_none, where_none)

    def _as_user_knows(self, z: Tensor) -> Tensor:
        x = self.metric.original(z).reshape(len(z), *self.shape)
        return x.to(dtype=self.dtype, device=self.device)
