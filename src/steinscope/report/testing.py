"""The report of a test of fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from steinscope.explanation import Explanation
from steinscope.findings import Finding, spoken
from steinscope.modes.weights import ModeWeights
from steinscope.registries import CRITICS
from steinscope.report.charts import field_chart, interval_chart, line_chart, number
from steinscope.report.page import Cell, Table, render
from steinscope.results import TestResult
from steinscope.support.checks import check_kind, check_text
from steinscope.support.normal import normal_quantile

__all__ = ["report_test"]

_CHART_COORDINATES = 15
_TABLE_COORDINATES = 200
_POINT_COORDINATES = 4
_GRID = 13
_LEAST_PVALUE = 1e-12


def report_test(result: TestResult, explanation: Explanation | None = None, *, data: str = "", model: str = "") -> str:
    """The report of a test as one HTML file.

    Arguments:
        result: The outcome.
        explanation: What `result.explain()` returned; by default it is computed if there is a critic to explain.
        data: What the points are called.
        model: What the model is called.
    """
    check_kind("result", result, TestResult)
    if explanation is not None:
        check_kind("explanation", explanation, Explanation)
    if explanation is None and result.strongest_field is not None:
        explanation = result.explain()
    facts = [
        ("Points", check_text("data", data)),
        ("Model", check_text("model", model)),
        ("Size", f"{result.n} points, {result.dim} coordinate{'s' if result.dim != 1 else ''}"),
        ("Method", result.method),
        ("Statistic", number(result.statistic)),
        ("p-value", number(result.pvalue, 3) if result.pvalue > 0 else "below 1e−300"),
        ("Level", number(result.alpha)),
    ]
    strongest = result.strongest
    return render(
        "test.html",
        title="Test of fit",
        verdict="bad" if result.rejected else "good",
        headline="The model is rejected" if result.rejected else "No misfit was found",
        sentence=_sentence(result),
        facts=[(name, value) for name, value in facts if value],
        findings=spoken(result.findings, 5) if result.rejected else [],
        intervals=any(isinstance(finding, Finding) and finding.size is not None for finding in result.findings),
        critics=_critics_table(result) if result.critics else None,
        strongest=strongest.name if strongest else "",
        blocks=_blocks_table(result) if strongest and len(strongest.block_z) > 1 else None,
        block_chart=_block_chart(result) if strongest and len(strongest.block_z) > 1 else "",
        explanation=explanation,
        coordinate_chart=_coordinate_chart(explanation) if explanation else "",
        coordinates=_coordinates_table(explanation) if explanation else None,
        points=_points_table(explanation) if explanation and explanation.worst else None,
        field=_field(explanation) if explanation else "",
        rejected=result.rejected,
        modes=result.modes,
        modes_table=_modes_table(result.modes) if result.modes else None,
        modes_chart=_modes_chart(result.modes) if result.modes else "",
        notes=result.notes,
    )


def _sentence(result: TestResult) -> str:
    level = number(result.alpha)
    # Farther out, a normal distribution that holds in the limit says nothing about 1000 points.
    p = number(result.pvalue, 3) if result.pvalue >= _LEAST_PVALUE else f"below {number(_LEAST_PVALUE)}"
    chance = f"If the points came from the model, a misfit at least as large would be seen with probability {p}."
    if result.rejected:
        return f"{chance} That is no more than the level {level}, so the model is rejected."
    text = (
        f"{chance} That is above the level {level}. The test has found nothing against the model, which does not prove "
        "it right: more points may show more"
    )
    # MMD compares samples, which have their shares in each mode.
    is_blind = result.modes is None and not result.method.startswith("MMD")
    return text + (", and scores do not tell how the mass is divided between separated modes." if is_blind else ".")


def _modes_table(modes: ModeWeights) -> Table:
    rows = [
        [
            Cell(str(i + 1), i + 1),
            Cell(str(count), int(count)),
            Cell.of(float(modes.share[i]), 3),
            Cell.of(float(modes.expected[i]), 3),
            Cell.of(float(modes.stderr[i]), 2),
            Cell.of(float(modes.z[i]), 3),
            modes.place(i),
        ]
        for i, count in enumerate(modes.count)
    ]
    columns = ("Mode", "Points", "Share", "The model gives", "s.e.", "z-score", "Centre")
    return Table("Modes of the model", columns, rows, frozenset({6}))


def _modes_chart(modes: ModeWeights) -> Markup:
    half = normal_quantile(0.975) * modes.stderr
    return interval_chart(
        "Shares of the modes: the model's with 95% intervals, and a ring for the points",
        [f"mode {i + 1}" for i in range(len(modes.count))],
        modes.expected,
        modes.expected - half,
        modes.expected + half,
        "share",
        ", ".join(str(finding) for finding in modes.findings()[:3]) or "The shares agree",
        rings=modes.share,
    )


def _critics_table(result: TestResult) -> Table:
    rows = [
        [critic.name, _looks_at(critic.name), Cell.of(critic.z), Cell.of(critic.pvalue, 3)] for critic in result.critics
    ]
    return Table("Critics", ("Critic", "Looks at", "z-score", "p-value on its own"), rows, frozenset({0, 1}))


def _looks_at(critic: str) -> str:
    return CRITICS[critic].text if critic in CRITICS else "a critic of your own"


def _blocks_table(result: TestResult) -> Table:
    names = [critic.name for critic in result.critics]
    rows = []
    for block, n in enumerate(result.critics[0].block_n):
        cells = [Cell.of(float(critic.block_z[block]), 3) for critic in result.critics]
        rows.append([Cell(str(block + 2), block + 2), Cell(str(int(n)), int(n)), *cells])
    return Table("z-scores of the critics, block by block", ("Block", "Points", *names), rows, frozenset())


def _block_chart(result: TestResult) -> Markup:
    critic = result.strongest
    assert critic is not None
    blocks = np.arange(2, len(critic.block_z) + 2)
    description = f"z-scores from {number(float(critic.block_z.min()), 3)} to {number(float(critic.block_z.max()), 3)}"
    title = f"The critic {critic.name}, block by block"
    return line_chart(title, blocks, critic.block_z, "block", "z-score", description, marks=True)


def _coordinate_chart(explanation: Explanation) -> Markup:
    order = explanation.order[:_CHART_COORDINATES]
    low, high = explanation.intervals()[order].T
    values = explanation.coordinates[order]
    description = ", ".join(f"{explanation.label(i)} {number(float(explanation.coordinates[i]), 3)}" for i in order[:3])
    return interval_chart(
        "Contributions of the coordinates, with 95% intervals",
        [explanation.label(i) for i in order],
        values,
        low,
        high,
        f"contribution to the {explanation.quantity}",
        f"The largest: {description}",
    )


def _coordinates_table(explanation: Explanation) -> Table:
    intervals = explanation.intervals()
    rows = [
        [
            Cell(explanation.label(i), int(i)),
            Cell.of(float(explanation.coordinates[i])),
            Cell.of(float(explanation.stderr[i]), 2),
            Cell.of(float(intervals[i, 0])),
            Cell.of(float(intervals[i, 1])),
        ]
        for i in explanation.order[:_TABLE_COORDINATES]
    ]
    caption = "Contributions of the coordinates"
    if len(explanation.coordinates) > _TABLE_COORDINATES:
        caption += f": the largest {_TABLE_COORDINATES} of {len(explanation.coordinates)}"
    return Table(caption, ("Coordinate", "Contribution", "s.e.", "95% from", "to"), rows)


def _points_table(explanation: Explanation) -> Table:
    """Where the points are: all of their coordinates if they are few, otherwise those that contribute most."""
    dim = len(explanation.coordinates)
    rows = []
    for point in explanation.worst:
        order = np.argsort(-point.coordinates, kind="stable")[:_POINT_COORDINATES]
        head = [Cell(str(point.index), point.index), Cell.of(point.contribution)]
        if dim <= _POINT_COORDINATES:
            rows.append([*head, explanation.label(order[0]), *(Cell.of(float(value), 3) for value in point.x)])
        else:
            values = [f"{explanation.label(i)} =\u00a0{number(float(point.x[i]), 3)}" for i in order[:3]]
            rows.append([*head, *values])
    if dim <= _POINT_COORDINATES:
        names = [explanation.label(i) for i in range(dim)]
        return Table("Points that contribute most", ("Row", "Contribution", "Mostly by", *names), rows, frozenset({2}))
    columns = ("Row", "Contribution", "Mostly by", "then by", "then by")
    return Table("Points that contribute most", columns, rows, frozenset({2, 3, 4}))


def _field(explanation: Explanation) -> Any:
    """The critic as arrows: over the two coordinates that contribute most. For a single coordinate it is a curve."""
    sample = explanation.sample.astype(np.float64)
    dim = sample.shape[1]
    if dim == 1:
        low, high = np.quantile(sample[:, 0], [0.01, 0.99])
        x = np.linspace(low, high, 100)
        title = "Where the model should have more mass: up is to the right, down to the left"
        arrows = -explanation.critic_at(x[:, None])[:, 0]
        text = "A curve over the range of the points"
        return line_chart(title, x, arrows, explanation.label(0), "minus the critic", text)
    first, second = sorted(int(i) for i in (explanation.order[:2] if dim > 2 else (0, 1)))
    plane = sample[:, [first, second]]
    low, high = np.quantile(plane, [0.01, 0.99], axis=0)
    grid = np.stack(np.meshgrid(*np.linspace(low, high, _GRID).T), -1).reshape(-1, 2)
    step = (high - low) / (_GRID - 1)
    # Away from all points the critic has learned nothing.
    distance = np.abs((grid[:, None] - plane) / np.maximum(step, 1e-300)).max(2).min(1)
    grid = grid[distance < 1.0]
    places = np.tile(np.median(sample, axis=0), (len(grid), 1))
    places[:, [first, second]] = grid
    # f is proportional to the model's score minus the data's, so against it is where the data have more mass.
    arrows = -explanation.critic_at(places)[:, [first, second]]
    description = f"{len(grid)} arrows over {len(plane)} points"
    axes = explanation.label(first), explanation.label(second)
    return field_chart("Points, and the critic as arrows", plane, grid, arrows, axes, description)
