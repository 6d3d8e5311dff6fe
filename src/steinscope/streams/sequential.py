"""Test a model while points arrive: the result may be looked at after every batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from steinscope.densities import as_density, model_of
from steinscope.errors import InputError, NonFiniteError
from steinscope.frames import Names
from steinscope.metric import Metric
from steinscope.modes.surface import Surface
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import CLOSED_FORM, Critics, choose_critics, critic_name, is_closed_form, make_learner
from steinscope.portfolio.learner import Context, Learner
from steinscope.scoring import is_scores, make_points
from steinscope.shapes import FlatPoints
from steinscope.streams.bettor import Bettor
from steinscope.streams.purse import Purse
from steinscope.support.checks import check_level, check_path, check_seed
from steinscope.support.files import check_directory
from steinscope.training.checkpoint import load_checkpoint, newest_step, save_checkpoint
from steinscope.unconstrained import unconstrained_model

__all__ = ["SequentialTest", "StreamState", "saved_state"]

# The first points are learned from alone. Then critics are made anew each time that the points have become an eighth
# more, and at last after every hundred.
_FIRST = 50
_LEAST_BLOCK, _MOST_BLOCK = 25, 100
# Critics that have seen everything learn slowly of what has changed. After so many points each gets a young companion,
# which starts from the last points, and lives until the next.
_LIFE = 2000
_RECENT = 256
_BATCH_ROWS = 1024
_FORMAT = 1

_Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StreamState:
    """The state of a sequential test. It may be read after every batch, and the test may be stopped at any time.

    Arguments:
        n: The number of points so far.
        p: The p-value: if the model is right, the probability that it is ever at most α is at most α.
        evalue: The evidence against the model: the present wealth of bets against it that began with 1.
        alpha: The level.
        rejected_at: The number of the point at which the model was rejected, from 1 on; None if it was not.
        critics: The share of the wealth that each critic holds; the rest is not bet.
        is_exact: Whether the level holds at every n. With scores and no model it holds in the limit only.
    """

    n: int
    p: float
    evalue: float
    alpha: float
    rejected_at: int | None
    critics: Mapping[str, float]
    is_exact: bool

    @property
    def rejected(self) -> bool:
        """Whether the model has been rejected, at this look or an earlier one."""
        return self.rejected_at is not None

    def to_dict(self) -> dict[str, Any]:
        """Numbers and strings, ready for JSON."""
        return {**asdict(self), "rejected": self.rejected}

    def __str__(self) -> str:
        verdict = f"the model was rejected at point {self.rejected_at}" if self.rejected else "no misfit was found"
        return f"{self.n} points: p = {self.p:.3g}, e = {self.evalue:.3g}: {verdict} at level {self.alpha:g}"


class SequentialTest:
    """A test of whether points come from a model, batch by batch, which is valid at any time.

    Points must be independent of each other. Critics learn from all points before a batch, and bet that the model is
    wrong. If the model is right, the probability that these bets ever turn one unit of wealth into 1/α is at most α,
    however often one looks.

    Arguments:
        model: An object with `score(x)` or `log_prob(x)`. None if each batch comes with its scores: then the level
            holds in the limit of many points only, because bets need the model at other places, too.
        alpha: The level.
        support: Where the model's density is positive; by default what the model says. See `gof_test`.
        critics: Critics in closed form, by their names; by default all of them.
        seed: A whole number: all that is random in the critics.

    Example:
        >>> from steinscope.models import Gaussian
        >>> model, test = Gaussian(torch.zeros(3)), SequentialTest(Gaussian(torch.zeros(3)))
        >>> test.update(model.sample(400)).rejected, test.update(1.0 + model.sample(400, seed=1)).rejected
        (False, True)
    """

    def __init__(
        self,
        model: Any = None,
        alpha: float = 0.05,
        *,
        support: Any = None,
        critics: Critics = CLOSED_FORM,
        seed: int = 0,
    ) -> None:
        if is_scores(model):
            raise InputError("model", "expected a model or None: scores come with each batch, as update(x, score)")
        if model is not None:
            model = model_of(None, model)
            as_density(model)
        self.model, self.support = model, support
        self.alpha, self.seed = check_level("alpha", alpha), check_seed("seed", seed)
        self.critics = _closed_form(critics, model)
        self._shape: tuple[int, ...] | None = None
        self._names: Names = None
        self._metric: Metric | None = None
        self._surface: Surface | None = None
        self._recent: _Pair | None = None
        self._old: list[Bettor] = []
        self._young: list[Bettor] = []
        self._purse = Purse(2 * len(self.critics), self.alpha)
        self._n = 0
        self.notes: dict[str, Any] = {}

    @torch.inference_mode(False)
    def update(self, x: Any, score: Any = None) -> StreamState:
        """Add a batch of any size, and return the state of the test.

        How points are divided into batches does not matter, except for rounding.

        Arguments:
            x: The new points, an array (n, ...) or a data frame.
            score: The model's scores at them, if the test has no model.
        """
        if self.model is None and score is None:
            raise InputError("score", "expected scores with each batch, because this test has no model")
        if self.model is not None and score is not None:
            raise InputError("score", "expected none, because this test has a model")
        points = make_points(x, score if self.model is None else self.model, support=self.support, is_part=True)
        shape = tuple(points.x.shape[1:])
        if self._shape is not None and shape != self._shape:
            raise InputError("x", f"expected points of the shape of those before, {self._shape}, got {shape}")
        if None not in (points.names, self._names) and points.names != self._names:
            expected, came = (", ".join(names or ()) for names in (self._names, points.names))
            raise InputError("x", f"expected the columns of the points before, {expected}, got {came}")
        self._shape, self._names = shape, self._names or points.names
        for rows in points.batches(_BATCH_ROWS):
            # What is saved on one device must go on on another, so all but the model is computed on the CPU.
            self._take_in(points, *(part.reshape(len(part), -1).double().cpu() for part in rows))
        return self.state

    @property
    def state(self) -> StreamState:
        """The state of the test after the last batch."""
        purse, count = self._purse, len(self.critics)
        shares = purse.shares[:count] + purse.shares[count:-1]
        return StreamState(
            self._n,
            purse.pvalue,
            math.exp(min(purse.log_wealth, 700.0)),
            self.alpha,
            None if purse.reached is None else purse.reached + _FIRST,
            dict(zip(self.critics, shares.tolist(), strict=True)),
            self.model is not None,
        )

    def _take_in(self, points: ScoredPoints, x: FlatPoints, score: FlatPoints) -> None:
        """Test and learn from points, up to the next number of them at which critics are made anew."""
        while len(x):
            room = _next_stop(self._n) - self._n
            batch = x[:room], score[:room]
            if self._metric is None:
                self._remember(*batch)
            else:
                self._look(points, self._metric, *batch)
            self._n += len(batch[0])
            if self._n == _FIRST:
                self._begin()
            elif len(batch[0]) == room:
                self._refit()
            x, score = x[room:], score[room:]

    def _begin(self) -> None:
        """Learn from the first points, which are not tested."""
        assert self._recent is not None
        self._metric = Metric.by_scores(*self._recent)
        self._recent = self._metric.wide_points(self._recent[0]), self._metric.wide_scores(self._recent[1])
        self._old = self._generation()

    def _look(self, points: ScoredPoints, metric: Metric, x: FlatPoints, score: FlatPoints) -> None:
        """Bet on new points, and then show them to the critics."""
        if self.model is not None and self._surface is None:
            model = unconstrained_model(self.model, points.coordinates)
            self._surface = Surface(model, metric, tuple(points.x.shape[1:]), points.dtype, torch.device("cpu"))
        x, score = metric.wide_points(x), metric.wide_scores(score)
        gains = np.zeros((len(x), 2 * len(self.critics)))
        for column, bettor in enumerate([*self._old, *self._young]):
            gains[:, column] = bettor.bet(self._surface, x, score)
            bettor.learner.observe(x, score)
        if np.isnan(gains).any():
            raise NonFiniteError(f"sequential test: the e-value of a point after point {self._n} is not a number")
        self._purse.bet(gains)
        self._remember(x, score)

    def _refit(self) -> None:
        """Make critics anew from all points that they have seen."""
        assert self._recent is not None
        for bettor in [*self._old, *self._young]:
            bettor.refit(*self._recent)
        if self._n % _LIFE == 0:
            self._young = self._generation()

    def _generation(self) -> list[Bettor]:
        """New bettors, who know the last points."""
        assert self._recent is not None
        bettors = [self._bettor(critic) for critic in self.critics]
        for bettor in bettors:
            bettor.learner.begin(*self._recent)
            bettor.learner.observe(*self._recent)
            bettor.refit(*self._recent)
        return bettors

    def _bettor(self, critic: str) -> Bettor:
        assert self._metric is not None and self._shape is not None
        context = Context(self.model, self._metric, self._shape, torch.float64, self.seed, None)
        return Bettor(cast(Learner, make_learner(critic, context)))

    def _remember(self, x: FlatPoints, score: FlatPoints) -> None:
        """Keep the last points."""
        before = self._recent or (x[:0], score[:0])
        self._recent = torch.cat([before[0], x])[-_RECENT:], torch.cat([before[1], score])[-_RECENT:]

    def __str__(self) -> str:
        return str(self.state)

    def save(self, directory: str | Path) -> Path:
        """Save all that is needed to continue bit for bit: tensors as safetensors and numbers as JSON.

        `notes`, a dictionary of your own with numbers and strings, is saved with it.

        Arguments:
            directory: The directory to write to. It is made if it does not exist.
        """
        directory = check_path("directory", directory)
        check_directory(directory, "directory")
        newest = newest_step(directory)
        if newest is not None and newest > self._n:
            raise InputError("directory", f"{directory} holds a test after {newest} points, this one has {self._n}")
        state = {
            "format": _FORMAT,
            "settings": self._settings(),
            "shape": self._shape,
            "names": self._names,
            "n": self._n,
            "recent": self._recent,
            "metric": self._metric and {"centre": self._metric.centre, "scale": self._metric.scale},
            "purse": self._purse.state(),
            "old": [bettor.state() for bettor in self._old],
            "young": [bettor.state() for bettor in self._young],
            "notes": self.notes,
        }
        return save_checkpoint(directory, self._n, state)

    def _settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "critics": list(self.critics), "seed": self.seed, "exact": self.model is not None}

    @classmethod
    def load(cls, directory: str | Path, model: Any = None, *, support: Any = None) -> SequentialTest:
        """A test that continues where a saved one ended.

        Arguments:
            directory: The directory in which it was saved.
            model: The same model as before, which is not saved; None if it had none.
            support: The same as before.
        """
        state = saved_state(directory)
        settings = state["settings"]
        if settings["exact"] != (model is not None):
            was = "a model" if settings["exact"] else "no model"
            raise InputError("model", f"the test in {directory} had {was}; load it with the same")
        test = cls(model, settings["alpha"], support=support, critics=settings["critics"], seed=settings["seed"])
        test._n, test.notes = state["n"], state["notes"]
        test._shape = None if state["shape"] is None else tuple(state["shape"])
        test._names = None if state.get("names") is None else tuple(state["names"])
        test._recent = None if state["recent"] is None else tuple(state["recent"])
        test._purse.restore(state["purse"])
        if state["metric"] is not None:
            test._metric = Metric(**state["metric"])
        for generation in ("old", "young"):
            bettors = []
            for critic, saved in zip(test.critics, state[generation], strict=False):
                bettors.append(test._bettor(critic))
                bettors[-1].restore(saved)
            setattr(test, f"_{generation}", bettors)
        return test


def saved_state(directory: str | Path) -> dict[str, Any]:
    """What was saved of a test in a directory, or an `InputError` where there is none."""
    found = load_checkpoint(directory)
    if found is None or not isinstance(found[1], dict) or "purse" not in found[1]:
        raise InputError("directory", f"there is no saved test in {directory}")
    if found[1]["format"] != _FORMAT:
        raise InputError("directory", f"{directory} holds a test of another version of steinscope")
    return found[1]


def _closed_form(critics: Critics, model: Any) -> tuple[str, ...]:
    """The names of critics in closed form."""
    chosen = choose_critics(critics, model, _FIRST, "test")
    for critic in chosen:
        if not is_closed_form(critic):
            name = critic_name(critic)
            raise InputError("critics", f"expected names of critics in closed form, got {name!r}, which is trained")
    return tuple(map(critic_name, chosen))


def _next_stop(n: int) -> int:
    """The next number of points at which critics are made anew. It depends on nothing but n."""
    # Each end of a life is such a number, so that a long stream need not be gone through from its beginning.
    stop = max(_FIRST, n // _LIFE * _LIFE)
    while stop <= n:
        stop = min(stop + min(max(_LEAST_BLOCK, stop // 8), _MOST_BLOCK), (stop // _LIFE + 1) * _LIFE)
    return stop
