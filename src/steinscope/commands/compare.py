"""`steinscope compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import (
    HeaderOption,
    SeedOption,
    check_chains,
    check_standard_input,
    is_posterior,
    load_draws,
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
    *others: str,
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
    """Rank models by their learned Stein discrepancy to the points, or samples by theirs to one model, the best first.

    One file of points and several models rank the models. Several files and one model rank the files, such as draws of
    NUTS and of a variational fit: samples of one posterior.

    Examples:

        steinscope compare points.npy --score a=scores_a.npy --score b=scores_b.npy

        steinscope compare points.npy --model moons=runs/moons --model mymodels:gaussian --report report.html

        steinscope compare nuts.nc advi.nc --model mymodels:eight_schools

    Parameters
    ----------
    x
        The points: a .npy, .npz, .csv or .parquet file, one point in each row; - for the standard input. Or the first
        of several samples, as NAME=FILE or FILE: such files, or .nc files with posteriors that ArviZ has saved.
    others
        The other samples, which are ranked together with the first.
    score
        NAME=FILE: a file with a model's score at each point; - for the standard input. Without NAME= the name is that
        of the file. Repeat it.
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
    settings = FitSettings(**given_options(fit))
    options: dict[str, Any] = {
        "support": None if support is None else read_support(support),
        "critics": critics or "auto",
        "folds": folds or None,
        "l2": l2,
        "settings": settings,
        "jobs": jobs,
        "seed": seed,
    }
    if others or is_posterior(x):
        if scores or len(models) != 1:
            hint = f"; or is {others[0]} a file of scores? Give it as --score {others[0]}" if others else ""
            wanted = _one_model(score, model)
            raise InputError("model", f"several samples, or a posterior, are held against one model: {wanted}{hint}")
        if metric != "scaled":
            raise InputError("metric", f"samples are measured in units of their standard deviations, got {metric!r}")
        samples, target = _load_samples(named("x", (x, *others), "samples"), next(iter(models.values())), header)
        from steinscope.bayes import compare_samples

        with on_cluster(cluster):
            ranking = compare_samples(samples, target, **options)
        _hand_over(ranking, ", ".join((x, *others)), json, csv, report, quiet)
        return
    for name in scores:
        if name in models:
            raise InputError("model", f"two models are named {name!r}; give names as NAME=SOURCE")
    if not scores and not models:
        raise InputError("score, model", "give at least one model, as --score NAME=FILE or --model NAME=MODEL")
    check_standard_input(x, *scores.values())
    table = read_points(x, header=header)
    points = table.array
    check_chains(points, chains)
    candidates: dict[str, Any] = {
        name: read_scores(source, table, f"score {name}", header=header) for name, source in scores.items()
    }
    candidates |= {name: load_model(source, table, f"model {name}") for name, source in models.items()}
    from steinscope.comparison import compare as rank

    with on_cluster(cluster):
        ranking = rank(
            candidates,
            points,
            chains=True if chains else None,
            metric=metric,
            names=table.names,
            progress=not quiet,
            **options,
        )
    _hand_over(ranking, x, json, csv, report, quiet)


def _one_model(score: list[str] | None, model: list[str] | None) -> str:
    count = len(model or ())
    came = "--score" if score else "none" if not count else f"{count} models"
    return f"give one as --model MODULE:MODEL, got {came}"


def _load_samples(sources: dict[str, str], model: str, header: bool | None) -> tuple[dict[str, Any], Any]:
    """Samples by their names, and the model that those are held against which bring no scores."""
    samples: dict[str, Any] = {}
    target = None
    for name, source in sources.items():
        if is_posterior(source):
            samples[name] = load_draws(source, model)
            continue
        table = read_points(source, f"x {name}", header=header)
        # Chains have one axis more than points.
        points = replace(table, array=table.array[0]) if table.array.ndim == 3 else table
        target = target or load_model(model, points)
        samples[name] = table.array
    return samples, target


def _hand_over(ranking: Any, data: str, json: bool, csv: Path | None, report: Path | None, quiet: bool) -> None:
    """Write a ranking to where it was asked for."""
    if csv is not None:
        write_csv(csv, ranking.rows(), "csv")
    if report is not None:
        from steinscope.report import report_ranking, report_samples

        write = report_samples if hasattr(ranking, "findings") else report_ranking
        write_output(report, write(ranking, data=data), "report")
    if json:
        print(json_text(ranking.to_dict()))
    elif not quiet:
        print(ranking)
        for path, what in ((csv, "table"), (report, "report")):
            if path is not None:
                print(f"{what}: {path}")
