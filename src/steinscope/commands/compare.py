"""`steinscope compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import (
    HeaderOption,
    SeedOption,
    load_model,
    named,
    read_points,
    read_scores,
    refuse_torchrun,
)
from steinscope.commands.options import Count, Flag, given_options, optional
from steinscope.commands.outputs import check_output, json_text, write_csv, write_output
from steinscope.errors import InputError
from steinscope.registries import CRITICS
from steinscope.settings import FitSettings, read_support
from steinscope.support.jobs import on_cluster

__all__ = ["compare"]

_CRITICS = (
    f"What looks for misfit. One of {CRITICS.listed()}; repeat it for several. "
    "By default all that apply; 'closed form' for those that need no training."
)
FitOptions = optional(
    FitSettings,
    kinds={"select": Literal["objective", "mu-sigma", "power", "mean"]},
    texts={
        "select": "How validation points choose among the critics along the way: by the penalised mean, by mean minus "
        "standard deviation of the Stein values (the paper's rule), by their ratio, or by the mean alone.",
        "patience": "Stop after this number of validations without a better one.",
    },
)
NOTHING_GIVEN = FitOptions()


def compare(
    x: str,
    /,
    *,
    score: list[str] | None = None,
    model: list[str] | None = None,
    header: HeaderOption = None,
    support: str | None = None,
    chains: Flag = False,
    critics: Annotated[list[str] | None, Parameter(help=_CRITICS)] = None,
    metric: Literal["scaled", "whitened", "identity"] = "scaled",
    folds: Count = 5,
    l2: Annotated[float, Parameter(name="--l2")] = 0.5,
    fit: Annotated[FitOptions, Parameter(name="*")] = NOTHING_GIVEN,  # pyright: ignore[reportInvalidTypeForm]
    jobs: Count | None = None,
    cluster: str | None = None,
    seed: SeedOption = 0,
    json: Flag = False,
    csv: Path | None = None,
    report: Path | None = None,
    quiet: Flag = False,
) -> None:
    """Rank models by their learned Stein discrepancy to the points, the best first.

    Examples:

        steinscope compare points.npy --score a=scores_a.npy --score b=scores_b.npy

        steinscope compare points.npy --model moons=runs/moons --model mymodels:gaussian --report report.html

    Parameters
    ----------
    x
        The points: a .npy, .npz, .csv or .parquet file, one point in each row; - for the standard input.
    score
        NAME=FILE: a file with a model's score at each point. Without NAME= the name is that of the file. Repeat it.
    model
        NAME=MODEL: a model as package.module:object, or the directory of a run of steinscope train. Repeat it. The code
        of a module is run: name only one that you trust.
    support
        Where the densities are positive, if not everywhere: positive, unit, simplex, LOW,HIGH, or one of them for each
        coordinate, separated by spaces. By default what the models say.
    chains
        The points are draws of Markov chains, which depend on each other: an array of shape (chains, draws, ...).
    metric
        The coordinates in which critics are measured: each in units of its standard deviation, all uncorrelated, or as
        they come.
    folds
        The number of parts, each of which is held out in turn; 0 for one split of 60, 20 and 20%.
    l2
        The penalty λ of the critics.
    jobs
        How many models and folds are worked on at once, each with one thread.
    cluster
        Work on a Dask cluster, whose scheduler listens at this address, such as tcp://10.0.0.1:8786. Needs
        pip install 'steinscope[cluster]' here and on the workers.
    seed
        The source of all that is random.
    json
        Print JSON and nothing else.
    csv
        Write the table to this .csv file.
    report
        Write a report to this .html file.
    quiet
        Print nothing but errors, and JSON if it is asked for.
    """
    refuse_torchrun("start compare without it, with --jobs for several processes or --cluster for several machines")
    check_output(csv, "csv", ".csv")
    check_output(report, "report", ".html")
    scores, models = named("score", score or ()), named("model", model or ())
    for name in scores:
        if name in models:
            raise InputError("model", f"two models are named {name!r}; give names as NAME=SOURCE")
    if not scores and not models:
        raise InputError("score, model", "give at least one model, as --score NAME=FILE or --model NAME=MODEL")
    table = read_points(x, header=header)
    points = table.array
    candidates: dict[str, Any] = {
        name: read_scores(source, table, f"score {name}", header=header) for name, source in scores.items()
    }
    candidates |= {name: load_model(source, points, f"model {name}") for name, source in models.items()}
    from steinscope.comparison import compare as rank

    settings = FitSettings(**given_options(fit))
    with on_cluster(cluster):
        ranking = rank(
            candidates,
            points,
            support=None if support is None else read_support(support),
            chains=True if chains else None,
            critics=critics or "auto",
            metric=metric,
            folds=folds or None,
            l2=l2,
            settings=settings,
            jobs=jobs,
            names=table.names,
            seed=seed,
            progress=not quiet,
        )
    if csv is not None:
        write_csv(csv, ranking.rows(), "csv")
    if report is not None:
        from steinscope.report import report_ranking

        write_output(report, report_ranking(ranking, data=x), "report")
    if json:
        print(json_text(ranking.to_dict()))
    elif not quiet:
        print(ranking)
        for path, what in ((csv, "table"), (report, "report")):
            if path is not None:
                print(f"{what}: {path}")
