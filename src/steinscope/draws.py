"""Draws of a posterior: chains of points with the score at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steinscope.errors import InputError
from steinscope.frames import check_names

__all__ = ["Draws"]


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of a posterior in unconstrained coordinates, with the score of the posterior at each of them.

    `gof_test(draws)`, `discrepancy(draws)` and `compare(models, draws)` take it as it is. It also acts as a data frame
    with named columns and one row for each draw, all chains one after the other.

    Arguments:
        x: The draws, of shape (chains, draws, d).
        scores: The gradient of the log-density at each of them, of the same shape.
        names: What the coordinates are called, one for each; by default `x[0]`, `x[1]` and so on.
        log_prob: The log-density at each draw, up to a constant, of shape (chains, draws), where it is known.
        density: The posterior itself, with `score(x)` and `log_prob(x)` in the same coordinates, where it is known.
        diverging: Which draws end a divergent trajectory, of shape (chains, draws), where the sampler says so.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(4, 250, 2))
        >>> draws = Draws(x, -x, ("alpha", "beta"))
        >>> draws
        Draws(4 chains of 250 draws, 2 coordinates: alpha, beta)
        >>> from steinscope import gof_test
        >>> gof_test(draws, critics="closed form").rejected
        False
    """

    x: np.ndarray
    scores: np.ndarray
    names: tuple[str, ...] = ()
    log_prob: np.ndarray | None = None
    density: Any = None
    diverging: np.ndarray | None = None

    def __post_init__(self) -> None:
        x = _numbers(self.x, "x")
        if x.ndim != 3 or 0 in x.shape:
            raise InputError("x", f"expected draws of shape (chains, draws, coordinates), got {x.shape}")
        scores = _numbers(self.scores, "scores")
        if scores.shape != x.shape:
            raise InputError("scores", f"expected the shape of the draws, {x.shape}, got {scores.shape}")
        for values, name in ((x, "x"), (scores, "scores")):
            _check_finite(values, name)
        is_named = not isinstance(self.names, tuple) or bool(self.names)
        names = check_names(self.names if is_named else [f"x[{place}]" for place in range(x.shape[2])], x.shape[2])
        settled = {"x": x, "scores": scores, "names": names}
        for name in ("log_prob", "diverging"):
            if (value := getattr(self, name)) is not None:
                settled[name] = np.asarray(value)
                if settled[name].shape != x.shape[:2]:
                    raise InputError(
                        name, f"expected one value for each draw, {x.shape[:2]}, got shape {settled[name].shape}"
                    )
        for name, value in settled.items():
            # The class is frozen: its fields are settled here and nowhere else.
            object.__setattr__(self, name, value)

    @property
    def chains(self) -> int:
        """How many chains there are."""
        return self.x.shape[0]

    @property
    def length(self) -> int:
        """How many draws a chain has."""
        return self.x.shape[1]

    @property
    def dim(self) -> int:
        """How many coordinates a draw has."""
        return self.x.shape[2]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the coordinates, as a data frame has them."""
        return self.names

    def to_numpy(self) -> np.ndarray:
        """One row for each draw, all chains one after the other."""
        return self.x.reshape(-1, self.dim)

    @property
    def model(self) -> Any:
        """What the draws are tested against: the posterior where it is known, otherwise the scores, one row a draw."""
        return self.score_rows if self.density is None else self.density

    @property
    def score_rows(self) -> np.ndarray:
        """The scores, one row for each draw, in the order of `to_numpy`."""
        return self.scores.reshape(-1, self.dim)

    def __len__(self) -> int:
        return self.chains * self.length

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", …" if self.dim > 4 else "")
        chains = f"{self.chains} chain{'s' if self.chains > 1 else ''}"
        return f"Draws({chains} of {self.length} draws, {self.dim} coordinates: {shown})"


def _numbers(value: Any, name: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise InputError(name, f"expected real numbers, got an array of {array.dtype}")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _check_finite(values: np.ndarray, name: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        chain, draw, place = np.argwhere(bad)[0]
        raise InputError(
            name, f"draw {draw} of chain {chain} holds {values[chain, draw, place]}; every value must be finite"
        )
