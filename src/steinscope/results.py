"""What every test of fit returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from steinscope.errors import InputError
from steinscope.frames import Names, coordinate_label

if TYPE_CHECKING:
    from steinscope.explanation import Explanation

__all__ = ["CriticResult", "Finding", "TestResult", "one_for_each_pair"]


@dataclass(frozen=True)
class Finding:
    """What a critic found: how coordinate `output` depends on coordinate `input` in another way than the model says.

    Arguments:
        critic: The critic that found it.
        output: The coordinate whose score was looked at.
        input: The coordinate of which a function was taken.
        function: Which function of the standardised coordinate u.
        z: How many standard errors the average lies from zero, over all points.
        names: What the two coordinates are called, if anybody has named them.
    """

    critic: str
    output: int
    input: int
    function: str
    z: float
    names: tuple[str, str] | None = None

    def named(self, names: Names) -> Finding:
        """The same finding, with the coordinates called by these names."""
        return self if names is None else replace(self, names=(names[self.output], names[self.input]))

    def __str__(self) -> str:
        output, input = self.names or (coordinate_label(None, self.output), coordinate_label(None, self.input))
        if self.function == "u" and self.output == self.input:
            what = f"{output} spreads {'less' if self.z > 0 else 'more'} than the model says"
        elif self.function == "u":
            more = "less" if self.z > 0 else "more"
            what = f"{output} and {input} are {more} positively related than the model says"
        elif self.output == self.input:
            what = f"the marginal of {output} has another shape than the model says"
        else:
            what = f"{output} depends on {input} in another way than the model says"
        return f"{what} ({self.function}, z = {self.z:.1f})"


@dataclass(frozen=True)
class CriticResult:
    """What one critic found, block by block.

    Arguments:
        name: The critic.
        z: Its combined z-score, standard normal where the model is right.
        pvalue: The p-value that it would have on its own.
        block_n: The number of points of each tested block.
        block_z: The z-score of each block.
        block_weight: The weight of each block; their squares add up to 1. A weight depends on earlier blocks alone, up
            to the common factor that makes the sum 1.
    """

    name: str
    z: float
    pvalue: float
    block_n: np.ndarray = field(repr=False)
    block_z: np.ndarray = field(repr=False)
    block_weight: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class TestResult:
    """The outcome of a test of fit. The null hypothesis is that the model is right.

    Arguments:
        statistic: The test statistic; large values speak against the model.
        pvalue: The p-value.
        alpha: The level.
        method: What was done.
        n: How many points there were.
        dim: How many coordinates they have.
        critics: Critic by critic, for learned tests.
        findings: What critics found that can say so in words, strongest first.
        notes: What a reader should know about this result.
        recipe: How `explain` works, for learned tests; see `steinscope.explanation.Recipe`.
    """

    __test__: ClassVar[bool] = False

    statistic: float
    pvalue: float
    alpha: float
    method: str
    n: int
    dim: int
    critics: tuple[CriticResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    recipe: Any = field(default=None, repr=False, compare=False)

    @property
    def rejected(self) -> bool:
        """Whether the model is rejected at level `alpha`."""
        return self.pvalue <= self.alpha

    @property
    def strongest(self) -> CriticResult | None:
        """The critic with the largest z-score."""
        return max(self.critics, key=lambda critic: critic.z, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON."""
        result = {**asdict(self), "rejected": self.rejected}
        del result["recipe"]
        for critic in result["critics"]:
            for name in ("block_n", "block_z", "block_weight"):
                critic[name] = critic[name].tolist()
        return result

    def explain(self, worst: int = 10, critic: str | None = None) -> Explanation:
        """Which coordinates and points the misfit comes from, as a critic sees it that has not seen the points.

        That critic goes through the blocks again, so this takes about as long as its part of the test.

        Arguments:
            worst: How many of the worst points to list.
            critic: The name of the critic; by default the strongest.
        """
        names = [result.name for result in self.critics]
        if self.recipe is None:
            raise InputError("explain", f"{self.method} has no critic that could be explained; gof_test has")
        if critic is None:
            return self.recipe(worst, int(np.argmax([result.z for result in self.critics])))
        if critic not in names:
            raise InputError("critic", f"expected one of {', '.join(names)}, which were run, got {critic!r}")
        return self.recipe(worst, names.index(critic))

    def plot(self, ax: Any = None) -> Any:
        """Draw the z-scores of critics and blocks; returns the matplotlib figure."""
        from steinscope.plots import plot_test

        return plot_test(self, ax)

    def __str__(self) -> str:
        verdict = "the model is rejected" if self.rejected else "no misfit was found"
        lines = [
            f"{self.method}: {self.n} points, {self.dim} coordinate{'s' if self.dim != 1 else ''}",
            f"p = {self.pvalue:.3g}, statistic {self.statistic:.3g}: {verdict} at level {self.alpha:g}",
        ]
        if self.critics:
            lines.append("critics: " + ", ".join(f"{critic.name} z = {critic.z:.2f}" for critic in self.critics))
        if self.rejected and self.strongest is not None:
            others = [
                name for name in dict.fromkeys(item.critic for item in self.findings) if name != self.strongest.name
            ]
            lines.append(
                f"found by: {self.strongest.name}" + (f"; in words, by {', '.join(others)}:" if others else "")
            )
            lines += [f"  {finding}" for finding in one_for_each_pair(self.findings)[:5]]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def one_for_each_pair(findings: tuple[Finding, ...]) -> list[Finding]:
    """One finding for each pair of coordinates, strongest pair first: that of u itself if it is there."""
    pairs: dict[frozenset[int], Finding] = {}
    for finding in findings:
        pair = frozenset((finding.output, finding.input))
        if pair not in pairs or (finding.function == "u" and pairs[pair].function != "u"):
            pairs[pair] = finding
    return list(pairs.values())
