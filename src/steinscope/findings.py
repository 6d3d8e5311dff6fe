"""What a misfit amounts to, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from steinscope.frames import Names, coordinate_label

__all__ = ["Finding", "ModeFinding", "spoken"]


@dataclass(frozen=True)
class Finding:
    """What a misfit amounts to in one respect, with its size and the 95% interval of that.

    Arguments:
        kind: What is wrong, and what its size is. "mean": how far the points lie from the model, in standard deviations
            of the model. "scale": the spread of the points over that of the model. "factor": the same for all
            coordinates at once. "correlation": that of the points minus that of the model. "shape": the share of the
            mass of a coordinate that lies elsewhere. "dependence": how far the mean of the first coordinate given the
            second is off, in standard deviations given all others, root mean square. Without a size: "shape" where the
            marginals are so far apart that it cannot be told, "constant",
            "outward" for scores that push points away from their middle, and "sign" if they do so in all coordinates.
        coordinates: Which coordinates it is about; none where it is about all of them.
        size: The size, where it has one.
        low: The lower end of its interval.
        high: The upper end.
        z: How many standard errors the points are away from what the model says.
        found: For a correlation, that of the points.
        names: The names of the coordinates, if they have any.
        about: What the model is called: the model, or the posterior.
    """

    kind: str
    coordinates: tuple[int, ...] = ()
    size: float | None = None
    low: float | None = None
    high: float | None = None
    z: float | None = None
    found: float | None = None
    names: tuple[str, ...] | None = None
    about: str = "model"

    def named(self, names: Names) -> Finding:
        """The same finding, with the coordinates called by these names."""
        return self if names is None else replace(self, names=tuple(names[place] for place in self.coordinates))

    def of(self, about: str) -> Finding:
        """The same finding, with the model called by this word."""
        return replace(self, about=about)

    def transformed(self, function: Callable[[float], float]) -> Finding:
        """The same finding, with another measure of its size."""
        sizes = {key: function(value) for key in ("size", "low", "high") if (value := getattr(self, key)) is not None}
        return replace(self, **sizes)

    @property
    def strength(self) -> tuple[float, float]:
        """What findings of one kind are ordered by: how far from a fit, then by how many standard errors.

        Half of the spread is as far away as twice the spread. What is too far away to have a size comes first.
        """
        if self.size is None:
            far = math.inf
        elif self.kind in ("scale", "factor"):
            far = abs(math.log(self.size)) if self.size > 0 else math.inf
        else:
            far = abs(self.size)
        return far, abs(self.z or 0.0)

    @property
    def is_small(self) -> bool:
        """Whether it is surely below what most uses of points would notice: a tenth of a standard deviation or 5%."""
        if self.size is None or self.low is None or self.high is None:
            return False
        if self.kind in ("scale", "factor"):
            return 0.95 < self.low and self.high < 1.05
        return max(abs(self.low), abs(self.high)) < (0.1 if self.kind in ("mean", "dependence") else 0.05)

    def __str__(self) -> str:
        one, two, *_ = *(self.names or (coordinate_label(None, place) for place in self.coordinates)), "", ""
        if self.size is None or self.low is None or self.high is None:
            return _WORDS[self.kind].format(one=one, about=self.about)
        size, low, high = self.size, self.low, self.high
        if self.kind in ("scale", "factor"):
            return f"{one or 'every coordinate'} {_spread(size, low, high, self.about)}{self._as_scores()}"
        # Towards the side that the words name: an interval that reaches beyond zero has a minus at its lower end.
        least, most = (low, high) if size > 0 else (-high, -low)
        side = "above" if size > 0 else "below"
        if self.kind == "mean":
            return f"{one} lies {_sized(abs(size), least, most, f' sd {side} the {self.about}')}"
        if self.kind == "correlation":
            found = size if self.found is None else self.found
            far = _sized(abs(size), least, most, f" {side} what the {self.about} says")
            return f"{one} and {two} have correlation {found:.2f}, {far}"
        if self.kind == "shape":
            share = _sized(100 * size, 100 * low, 100 * high, "% of its mass lies elsewhere", "%")
            return f"{one} has another shape than the {self.about} says: about {share}"
        far = _sized(size, low, high, " sd off on average")
        return f"{one} depends on {two} in another way than the {self.about} says: its mean given {two} is {far}"

    def _as_scores(self) -> str:
        """What a common factor means for the scores."""
        if self.kind != "factor" or self.size is None:
            return ""
        return f": as if all scores had been multiplied by {self.size**2:.2g}"


_WORDS = {
    "shape": "{one} has another shape than the {about} says",
    "constant": "{one} is constant, and the {about} says that it varies",
    "outward": "the scores push {one} away from the middle of the points",
    "sign": "these scores point away from the points: were gradients of the potential energy, minus the log-density, "
    "given instead of those of the log-density?",
}


def _sized(size: float, low: float, high: float, words: str, unit: str = "") -> str:
    """A size in words with its interval, to the digits that the interval allows."""
    if size and not _SHORT[0] <= abs(size) < _SHORT[1]:
        return f"{size:.2g}{words} ({low:.2g}{unit} to {high:.2g}{unit})"
    digits = min(_digits((high - low) / 2), _digits(abs(size)) + _MOST_DIGITS - 1)
    return f"{size:.{digits}f}{words} ({low:z.{digits}f}{unit} to {high:z.{digits}f}{unit})"


_MOST_DIGITS = 4
# Numbers between these are written in full.
_SHORT = 1e-6, 1e6


def _digits(half: float) -> int:
    return min(9, max(0, math.ceil(-math.log10(half)))) if half > 0 else 3


def _spread(size: float, low: float, high: float, about: str) -> str:
    if 0.5 < size < 2:
        more = "more" if size > 1 else "less"
        sizes = (size - 1, low - 1, high - 1) if size > 1 else (1 - size, 1 - high, 1 - low)
        share, least, most = (100 * part for part in sizes)
        return f"spreads {_sized(share, least, most, f'% {more} than the {about} says', '%')}"
    return f"spreads {_sized(size, low, high, f' times as much as the {about} says')}"


@dataclass(frozen=True)
class ModeFinding:
    """What a critic found: a mode of the model holds another share of the points than the model gives it.

    Arguments:
        critic: The critic that found it.
        mode: The number of the mode, from 1 on.
        share: The share of the points that it holds.
        expected: The share that the model gives it.
        stderr: The standard error of that.
        z: How many standard errors the two are apart.
        about: What the model is called: the model, or the posterior.
    """

    critic: str
    mode: int
    share: float
    expected: float
    stderr: float
    z: float
    about: str = "model"

    def of(self, about: str) -> ModeFinding:
        """The same finding, with the model called by this word."""
        return replace(self, about=about)

    @property
    def is_small(self) -> bool:
        """Whether the shares are surely within 5% of all points."""
        return abs(self.share - self.expected) + 2 * self.stderr < 0.05

    def __str__(self) -> str:
        return (
            f"mode {self.mode} holds {100 * self.share:.3g}% of the points; "
            f"the {self.about} gives it {100 * self.expected:.3g}% ± {100 * self.stderr:.2g}%"
        )


def spoken(findings: Sequence[Finding | ModeFinding], most: int = 3) -> list[str]:
    """Findings in words, at most so many of each kind."""
    lines: list[str] = []
    for kind, group in groupby(findings, lambda one: getattr(one, "kind", "mode")):
        said = [str(one) for one in group]
        left = len(said) - most
        lines += [*said[:most], *([f"and {left} more of this kind ({kind})"] if left > 0 else [])]
    return lines
