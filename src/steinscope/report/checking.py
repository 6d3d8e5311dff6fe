"""The report of a check of a posterior."""

from __future__ import annotations

from steinscope.bayes.verdict import PosteriorCheck
from steinscope.report.charts import number
from steinscope.report.page import Cell, Table, render
from steinscope.support.checks import check_kind, check_text

__all__ = ["report_check"]

_HEADLINES = {
    "misfit": ("bad", "The draws do not fit the posterior"),
    "nothing found": ("good", "Nothing was found"),
    "cannot tell": ("", "These draws cannot tell"),
}


def report_check(check: PosteriorCheck, *, data: str = "", model: str = "") -> str:
    """The report of a check of a posterior as one HTML file.

    Arguments:
        check: What `check_posterior` returned.
        data: What the draws are called.
        model: What the model is called.
    """
    check_kind("check", check, PosteriorCheck)
    verdict, headline = _HEADLINES[check.verdict]
    facts = [
        ("Draws", check_text("data", data)),
        ("Model", check_text("model", model)),
        ("Size", f"{check.chains} chains of {check.draws} draws, {len(check.names)} coordinates"),
        ("Test", check.test.method if check.test else ""),
        ("p-value", number(check.test.pvalue, 3) if check.test else ""),
    ]
    reasons = [reason.strip() for reason in check.reasons]
    return render(
        "check.html",
        title="Check of a posterior",
        verdict=verdict,
        headline=headline,
        sentence=f"{reasons[0][:1].upper()}{reasons[0][1:]}.",
        facts=[(name, value) for name, value in facts if value],
        reasons=reasons[1:],
        diagnostics=Table(
            "Diagnostics", ("Diagnostic", "Value", "Limit", "Detects"), check.rows(), frozenset({0, 1, 2, 3})
        ),
        coordinates=_coordinates(check),
        notes=check.test.notes if check.test else (),
    )


def _coordinates(check: PosteriorCheck) -> Table:
    values = zip(check.names, check.rhat, check.bulk_ess, check.tail_ess, strict=True)
    rows = [
        [name, Cell.of(float(rhat)), Cell.of(float(bulk)), Cell.of(float(tail))]
        for name, rhat, bulk, tail in sorted(values, key=lambda row: -row[1])
    ]
    return Table("Coordinate by coordinate", ("Coordinate", "r̂", "Bulk ESS", "Tail ESS"), rows)
