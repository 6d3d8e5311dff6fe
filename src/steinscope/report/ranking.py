"""The report of a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from steinscope.comparison import Ranking
from steinscope.errors import InputError
from steinscope.report.charts import interval_chart, number
from steinscope.report.density import model_density
from steinscope.report.page import Cell, Table, render
from steinscope.report.rows import flat_rows
from steinscope.results import TestResult
from steinscope.support.checks import check_kind, check_text
from steinscope.support.normal import normal_quantile

__all__ = ["CERTAIN", "report_ranking"]

_MOST_PAIRS = 12
CERTAIN = 0.95
_MOST_EXPLAINED = 10
_PLACES = ("Largest", "Second", "Third")


def report_ranking(
    ranking: Ranking,
    *,
    data: str = "",
    tests: Mapping[str, TestResult] | None = None,
    models: Mapping[str, Any] | None = None,
    points: np.ndarray | None = None,
) -> str:
    """The report of a ranking as one HTML file.

    Arguments:
        ranking: What `compare` returned.
        data: What the points are called.
        tests: The test of fit of each model, for models that have one.
        models: The models, to draw their densities below points in the plane.
        points: The points, an array (n, 2); needed with `models`.
    """
    check_kind("ranking", ranking, Ranking)
    for argument, value in (("tests", tests), ("models", models)):
        if value is not None and not isinstance(value, Mapping):
            raise InputError(argument, f"expected them by the names of the models, got {type(value).__name__}")
    for name, test in (tests or {}).items():
        check_kind(f"tests[{name!r}]", test, TestResult)
    flat = None if points is None else flat_rows(points, "points")
    if models is not None and (flat is None or flat.shape[1] != 2):
        came = "none" if flat is None else f"points of {flat.shape[1]} coordinates"
        raise InputError("points", f"densities of models are drawn below points (n, 2), got {came}")
    first = next(iter(ranking.estimates.values()))
    facts = [
        ("Points", check_text("data", data)),
        ("Held out", f"{first.n_test} points, the same for every model"),
        ("Folds", str(ranking.folds) if ranking.folds else "one split"),
        ("Penalty λ", number(ranking.l2)),
    ]
    many = len(ranking.names) > 1
    return render(
        "ranking.html",
        title="Comparison of models",
        headline=_headline(ranking),
        sentence=_sentence(ranking),
        facts=[(name, value) for name, value in facts if value],
        table=_table(ranking),
        chart=_discrepancies(ranking),
        differences=_differences(ranking) if many else "",
        coordinates=_coordinates(ranking),
        tests=_tests(ranking, tests) if tests else None,
        densities=[
            model_density(models[name], flat, name)
            for name in ranking.names
            if callable(getattr(models.get(name), "log_prob", None))
        ]
        if models is not None and flat is not None
        else [],
        pairs=_pairs(ranking) if 2 < len(ranking.names) <= _MOST_PAIRS else None,
        failures=list(ranking.failures.items()),
    )


def _headline(ranking: Ranking) -> str:
    best = ranking.names[0]
    if len(ranking.names) == 1:
        return f"{best} is the only model that could be ranked" if ranking.failures else f"{best} is the only model"
    is_certain = ranking.best_is_better().min() >= CERTAIN
    return f"{best} fits best" if is_certain else f"{best} comes first, but not beyond doubt"


def _sentence(ranking: Ranking) -> str:
    best = ranking.estimates[ranking.names[0]]
    text = (
        f"Its learned Stein discrepancy is {number(best.value)} ± {number(best.stderr, 2)}; 0 would be a perfect fit."
    )
    if len(ranking.names) == 1:
        return text
    second = ranking.difference(ranking.names[1], ranking.names[0])
    return (
        f"{text} The next, {ranking.names[1]}, is worse by {number(second.value)} ± {number(second.stderr, 2)} on the "
        f"same points; P(best is better) is {ranking.best_is_better()[0]:.3f}."
    )


def _table(ranking: Ranking) -> Table:
    rows = []
    for row in ranking.rows():
        if row["failure"] is not None:
            rows.append([Cell("–", None), row["model"], *[Cell.of(None)] * 6])
            continue
        is_best = row["rank"] == 1
        rows.append(
            [
                Cell(str(row["rank"]), row["rank"]),
                row["model"],
                Cell.of(row["lsd"]),
                Cell.of(row["stderr"], 2),
                Cell.of(max(0.0, row["fisher_bound_lower"])),
                Cell.of(None if is_best else row["difference"]),
                Cell.of(None if is_best else row["difference_stderr"], 2),
                Cell.of(None) if is_best else Cell(f"{row['best_is_better']:.3f}", row["best_is_better"]),
            ]
        )
    columns = ("Rank", "Model", "LSD", "s.e.", "Fisher ≥", "Difference", "± s.e.", "P(best is better)")
    return Table("Models, the best first", columns, rows, frozenset({1}))


def _discrepancies(ranking: Ranking) -> Markup:
    half = normal_quantile(0.975) * ranking.stderr
    description = ", ".join(
        f"{name} {number(value, 3)}" for name, value in zip(ranking.names[:3], ranking.values, strict=False)
    )
    title = "Learned Stein discrepancy, with 95% intervals"
    values = ranking.values
    return interval_chart(title, ranking.names, values, values - half, values + half, "discrepancy", description)


def _differences(ranking: Ranking) -> Markup:
    others = ranking.names[1:]
    differences = [ranking.difference(name, ranking.names[0]) for name in others]
    low, high = np.array([difference.interval() for difference in differences]).T
    values = np.array([difference.value for difference in differences])
    description = ", ".join(f"{name} {number(value, 3)}" for name, value in zip(others[:3], values, strict=False))
    title = f"Paired differences to {ranking.names[0]}, with 95% intervals"
    return interval_chart(title, others, values, low, high, "difference", description)


def _coordinates(ranking: Ranking) -> Table | None:
    """What the coordinates contribute to each discrepancy; None for rankings that were saved without their points."""
    rows = []
    for name in ranking.names[:_MOST_EXPLAINED]:
        try:
            explanation = ranking.estimates[name].explain(worst=0)
        except InputError:
            return None
        order = explanation.order[: len(_PLACES)]
        shown = [
            f"{explanation.label(i)}: {number(float(explanation.coordinates[i]), 3)} "
            f"± {number(float(explanation.stderr[i]), 2)}"
            for i in order
        ]
        rows.append([name, *shown])
    columns = ("Model", *_PLACES[: len(rows[0]) - 1])
    return Table(
        "Coordinates that contribute most to each discrepancy, ± their standard errors",
        columns,
        rows,
        frozenset(range(len(columns))),
    )


def _tests(ranking: Ranking, tests: Mapping[str, TestResult]) -> Table:
    rows = []
    for name in ranking.names:
        if name not in tests:
            continue
        result = tests[name]
        rows.append(
            [
                name,
                f"rejected at {number(result.alpha)}"
                if result.rejected
                else f"nothing found at {number(result.alpha)}",
                Cell.of(result.pvalue, 3),
                result.strongest.name if result.strongest else "–",
                str(result.findings[0]) if result.rejected and result.findings else "–",
            ]
        )
    columns = ("Model", "Verdict", "p-value", "Strongest critic", "First finding")
    return Table("Tests of fit", columns, rows, frozenset({0, 1, 3, 4}))


def _pairs(ranking: Ranking) -> Table:
    rows = []
    for a in ranking.names:
        cells = [Cell("–", None)] * len(ranking.names)
        for column, b in enumerate(ranking.names):
            if a != b:
                difference = ranking.difference(a, b)
                cells[column] = Cell(
                    f"{number(difference.value, 3)} ± {number(difference.stderr, 2)}", difference.value
                )
        rows.append([a, *cells])
    return Table("Paired differences: the model of the row minus that of the column", ("Model", *ranking.names), rows)
