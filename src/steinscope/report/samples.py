"""The report of a ranking of samples."""

from __future__ import annotations

import numpy as np

from steinscope.bayes.samples import SampleRanking
from steinscope.report.charts import interval_chart, number
from steinscope.report.page import Cell, Table, render
from steinscope.report.ranking import CERTAIN
from steinscope.support.checks import check_kind, check_text
from steinscope.support.normal import normal_quantile

__all__ = ["report_samples"]


def report_samples(ranking: SampleRanking, *, data: str = "") -> str:
    """The report of a ranking of samples of one posterior as one HTML file.

    Arguments:
        ranking: What `compare_samples` returned.
        data: What the samples are called.
    """
    check_kind("ranking", ranking, SampleRanking)
    facts = [
        ("Samples", check_text("data", data)),
        ("Folds", str(ranking.folds) if ranking.folds else "one split"),
        ("Penalty λ", number(ranking.l2)),
    ]
    half = normal_quantile(0.975) * ranking.stderr
    values = ranking.values
    return render(
        "samples.html",
        title="Samples of one posterior",
        headline=_headline(ranking),
        sentence=f"Its learned Stein discrepancy is {number(values[0])} ± {number(ranking.stderr[0], 2)}; 0 would be a "
        "sample of the posterior itself.",
        facts=[(name, value) for name, value in facts if value],
        table=_table(ranking),
        chart=interval_chart(
            "Learned Stein discrepancy, with 95% intervals",
            ranking.names,
            values,
            values - half,
            values + half,
            "discrepancy",
            ", ".join(f"{name} {number(value, 3)}" for name, value in zip(ranking.names[:3], values, strict=False)),
        ),
        findings=[(name, [str(one) for one in ranking.findings[name]]) for name in ranking.names],
        failures=list(ranking.failures.items()),
    )


def _headline(ranking: SampleRanking) -> str:
    sure = np.asarray(ranking.best_is_better())
    if (sure >= CERTAIN).all():
        return f"{ranking.names[0]} is nearest to the posterior"
    return f"{ranking.names[0]} comes first, but not beyond doubt"


def _table(ranking: SampleRanking) -> Table:
    sure = [None, *np.asarray(ranking.best_is_better()).tolist()]
    rows = [
        [
            Cell(str(rank), rank),
            name,
            Cell.of(one.value),
            Cell.of(one.stderr, 2),
            Cell.of(None) if rank == 1 else Cell(f"{sure[rank - 1]:.3f}", sure[rank - 1]),
        ]
        for rank, (name, one) in enumerate(ranking.estimates.items(), start=1)
    ]
    columns = ("Rank", "Sample", "LSD", "s.e.", "P(best is better)")
    return Table("Samples, the nearest first", columns, rows, frozenset({1}))
