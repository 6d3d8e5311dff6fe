"""What every test of fit returns."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steinscope.edges import edge_warnings
from steinscope.errors import InputError, NonFiniteError
from steinscope.findings import Finding, ModeFinding, spoken
from steinscope.points import ScoredPoints

if TYPE_CHECKING:
    from steinscope.explanation import Explanation
    from steinscope.modes.weights import ModeWeights

__all__ = [
    "CriticResult",
    "PairResult",
    "TestResult",
    "check_finite",
    "equals_pvalue",
    "support_notes",
    "with_support",
]


@dataclass(frozen=True)
class CriticResult:
    """What one critic found, block by block.

    Arguments:
        name: The critic.
        z: Its combined z-score, the mean over the orders of the points; in each it is standard normal where the model
            is right.
        pvalue: The p-value that it would have on its own, merged over the orders.
        block_n: The number of points of each tested block.
        block_z: The z-score of each block: the first of each order, the second, and so on, and the mean over the
            orders.
        block_weight: The weight of each block, the mean over the orders; in each their squares add up to 1. A weight
            depends on earlier blocks alone, up to the common factor that makes the sum 1.
        order_z: The combined z-score in each order.
    """

    name: str
    z: float
    pvalue: float
    block_n: np.ndarray = field(repr=False)
    block_z: np.ndarray = field(repr=False)
    block_weight: np.ndarray = field(repr=False)
    order_z: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class PairResult:
    """What a critic found in all pairs of points at once.

    Arguments:
        name: The critic.
        statistic: The U-statistic in units of its standard deviation where the model is right.
        pvalue: Its p-value, by the wild bootstrap.
    """

    name: str
    statistic: float
    pvalue: float


@dataclass(frozen=True)
class TestResult:
    """The outcome of a test of fit. The null hypothesis is that the model is right.

    Numbers that are not finite are a `NonFiniteError`, never a verdict.

    Arguments:
        statistic: The test statistic; large values are evidence against the model.
        pvalue: The p-value.
        alpha: The level.
        method: What was done.
        n: How many points there were.
        dim: How many coordinates they have.
        critics: Critic by critic, for learned tests.
        pairs: The tests over all pairs of points, whose p-values are part of `pvalue`.
        findings: What the misfit amounts to, if one was found: modes, means, scales, correlations, shapes.
        notes: What a reader should know about this result.
        modes: How points and model divide their mass between the modes, where the model has several.
        recipe: How `explain` works, for learned tests; see `steinscope.explanation.Recipe`.
        about: What the model is called: the model, or the posterior.
    """

    __test__: ClassVar[bool] = False

    statistic: float
    pvalue: float
    alpha: float
    method: str
    n: int
    dim: int
    critics: tuple[CriticResult, ...] = ()
    findings: tuple[Finding | ModeFinding, ...] = ()
    notes: tuple[str, ...] = ()
    modes: ModeWeights | None = None
    pairs: tuple[PairResult, ...] = ()
    recipe: Any = field(default=None, repr=False, compare=False)
    about: str = "model"

    def __post_init__(self) -> None:
        check_finite(self.method, "statistic", self.statistic)
        check_finite(self.method, "p-value", self.pvalue)
        for critic in self.critics:
            check_finite(self.method, f"z-score of {critic.name}", critic.z)

    @property
    def rejected(self) -> bool:
        """Whether the model is rejected at level `alpha`."""
        return self.pvalue <= self.alpha

    @property
    def strongest(self) -> CriticResult | None:
        """The critic with the largest z-score."""
        return max(self.critics, key=lambda critic: critic.z, default=None)

    @property
    def strongest_field(self) -> str | None:
        """The critic with the largest z-score of those that `explain` can explain."""
        fields = [] if self.recipe is None else [c for c in self.critics if c.name not in self.recipe.without_field]
        return max(fields, key=lambda critic: critic.z).name if fields else None

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON."""
        result = {**asdict(replace(self, modes=None)), "rejected": self.rejected}
        result["modes"] = self.modes.to_dict() if self.modes is not None else None
        del result["recipe"]
        for critic in result["critics"]:
            for name in ("block_n", "block_z", "block_weight", "order_z"):
                critic[name] = critic[name].tolist()
        return result

    def explain(self, worst: int = 10, critic: str | None = None) -> Explanation:
        """The coordinates and points that the misfit comes from, by critics that have not seen the points.

        The critic goes through the blocks again, so this takes about as long as its part of the test.

        Arguments:
            worst: How many of the worst points to list.
            critic: The name of the critic; by default the strongest that is a vector field.
        """
        names = [result.name for result in self.critics]
        if self.recipe is None:
            raise InputError(
                "explain", f"{self.method} has no critic that could be explained; gof_test has one from 100 points on"
            )
        if critic is None:
            critic = self.strongest_field
            if critic is None:
                raise InputError("explain", f"{', '.join(names)} is no vector field: it has no coordinates to explain")
        if critic not in names:
            raise InputError("critic", f"expected one of {', '.join(names)}, which were run, got {critic!r}")
        if critic in self.recipe.without_field:
            raise InputError("critic", f"{critic} is no vector field: it has no coordinates to explain; see .{critic}")
        return self.recipe(worst, names.index(critic))

    def plot(self, ax: Any = None) -> Any:
        """Draw the z-scores of critics and blocks; returns the matplotlib figure."""
        from steinscope.plots import plot_test

        return plot_test(self, ax)

    def __str__(self) -> str:
        verdict = f"the {self.about} is rejected" if self.rejected else "no misfit was found"
        lines = [
            f"{self.method}: {self.n} points, {self.dim} coordinate{'s' if self.dim != 1 else ''}",
            f"p {equals_pvalue(self.pvalue)}, statistic {self.statistic:.3g}: {verdict} at level {self.alpha:g}",
        ]
        if self.critics:
            lines.append("critics: " + ", ".join(f"{critic.name} z = {critic.z:.2f}" for critic in self.critics))
        if self.pairs:
            lines.append("all pairs: " + ", ".join(f"{pair.name} p = {pair.pvalue:.3g}" for pair in self.pairs))
        if self.rejected and self.strongest is not None:
            lines.append(f"found by: {self.strongest.name}")
        if self.rejected:
            lines += [f"  {line}" for line in spoken(self.findings)]
            if self.findings and all(finding.is_small for finding in self.findings):
                lines.append(f"  all of this is small: {self.n} points show it")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def equals_pvalue(pvalue: float, digits: int = 3) -> str:
    """A p-value after its p: one that is too small for a number is below the smallest, and not zero.

    Example:
        >>> equals_pvalue(0.01234), equals_pvalue(0.0)
        ('= 0.0123', '< 1e-300')
    """
    return f"= {pvalue:.{digits}g}" if pvalue > 0 else "< 1e-300"


def check_finite(method: str, name: str, value: float) -> float:
    """A number of a test. One that is not finite is an error, never a verdict."""
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{method}: its {name} is {value}; points or scores are so large, or so different in size, "
            "that sums of their products cannot be computed"
        )
    return value


def support_notes(points: ScoredPoints) -> tuple[str, ...]:
    """What a reader should know about the coordinates in which points were looked at."""
    if points.coordinates is None:
        return tuple(edge_warnings(points))
    return (f"computed in unconstrained coordinates ({points.coordinates})",)


def with_support(result: TestResult, points: ScoredPoints) -> TestResult:
    """A result about the user's coordinates, with a note where others were looked at."""
    notes = (*result.notes, *support_notes(points))
    if points.coordinates is None:
        return replace(result, notes=notes)
    owner = points.coordinates.owner.tolist()
    findings = tuple(
        replace(finding, coordinates=tuple(owner[place] for place in finding.coordinates)).named(points.names)
        if isinstance(finding, Finding)
        else finding
        for finding in result.findings
    )
    modes = None if result.modes is None else result.modes.in_original(points.coordinates)
    return replace(result, dim=points.outer_dim, findings=findings, notes=notes, modes=modes)
