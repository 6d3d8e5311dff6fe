"""`steinscope test` and `steinscope compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import Flag, SeedOption, load_model, named, read_points, read_scores
from steinscope.commands.outputs import check_output, json_text, write_csv, write_output
from steinscope.errors import InputError

__all__ = ["compare", "test"]

Method = Literal["learned", "ksd", "linear-ksd", "fssd", "ksdagg", "mmd"]


def test(
    x: str,
    /,
    *,
    score: str | None = None,
    model: str | None = None,
    samples: str | None = None,
    method: Method = "learned",
    scheme: Literal["prequential", "split"] | None = None,
    critics: list[str] | None = None,
    blocks: int | None = None,
    repeats: int | None = None,
    alpha: float = 0.05,
    seed: SeedOption = 0,
    explain: Flag = False,
    json: Flag = False,
    report: Path | None = None,
    fail_on_reject: Flag = False,
    quiet: Flag = False,
) -> int:
    """Test whether points come from a model.

    The model is given by its scores at the points, which are the gradients of its log-density, or by itself.
    The exit status is 0 whatever the outcome, unless --fail-on-reject is given, and 2 for input that cannot be used.

    Examples:

        steinscope test points.npy --score scores.npy

        steinscope test points.csv --model mymodels:posterior --report report.html

        steinscope test points.npy --model runs/moons --method ksd --json

    Parameters
    ----------
    x
        The points: a .npy, .npz, .csv or .parquet file, one point in each row. Of an .npz file with several arrays
        choose one as FILE.npz:NAME.
    score
        A file with the model's score at each point, of the same shape.
    model
        The model as package.module:object, where the current directory is looked in, too, or the directory of a run
        of steinscope train.
    samples
        A file with samples of the model, for --method mmd.
    method
        The learned Stein test, or a kernel test.
    scheme
        Of the learned test: prequential blocks (the default), or the paper's split.
    critics
        Of the learned test: mean, linear, sparse, features, mlp or model; repeat it for several. By default all that
        apply.
    blocks
        Of the learned test: into how many blocks the points are divided (10 by default).
    repeats
        Of the learned test: test in so many random orders (1 by default).
    alpha
        The level.
    seed
        The source of all that is random.
    explain
        Say which coordinates and points the misfit comes from.
    json
        Print JSON and nothing else.
    report
        Write a report to this .html file.
    fail_on_reject
        Exit with status 1 if the model is rejected.
    quiet
        Print nothing but errors, and JSON if it is asked for.
    """
    check_output(report, "report", ".html")
    _check_method(method, scheme=scheme, critics=critics, blocks=blocks, repeats=repeats)
    _check_sources(method, score, model, samples)
    if explain and method != "learned":
        raise InputError(f"explain: only a learned test has a critic to explain, got --method {method}")
    points = read_points(x)
    if method == "mmd":
        assert samples is not None
        target: Any = read_points(samples, "samples")
    elif score is not None:
        from steinscope.arrays import check_rows

        target = read_scores(score, points, "score")
        check_rows(target, "score")
    else:
        target = load_model(str(model), points)
    options = {"scheme": scheme, "critics": critics, "blocks": blocks, "repeats": repeats}
    result = _run_test(points, target, method, alpha=alpha, seed=seed, progress=not quiet, **options)
    explanation = result.explain() if method == "learned" and (explain or report is not None) else None
    if report is not None:
        from steinscope.report import report_test

        source = samples or score or model or ""
        write_output(report, report_test(result, explanation, data=x, model=source), "report")
    if json:
        extra = {"explanation": explanation.to_dict()} if explain and explanation is not None else {}
        print(json_text({**result.to_dict(), **extra}))
    elif not quiet:
        print(result)
        if explain:
            print(f"\n{explanation}")
        if report is not None:
            print(f"report: {report}")
    return int(fail_on_reject and result.rejected)


def _check_method(method: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None and method != "learned":
            raise InputError(f"{name}: this is an option of --method learned, got --method {method}")


def _check_sources(method: str, score: str | None, model: str | None, samples: str | None) -> None:
    if method == "mmd":
        if samples is None or score is not None or model is not None:
            raise InputError("samples: --method mmd compares with samples of the model: give --samples alone")
        return
    if samples is not None:
        raise InputError(f"samples: only --method mmd takes samples, got --method {method}")
    if (score is None) == (model is None):
        came = "neither" if score is None else "both"
        raise InputError(f"score, model: give the model as --score FILE or as --model NAME, got {came}")


def _run_test(points: Any, target: Any, method: str, *, alpha: float, seed: int, progress: bool, **options: Any) -> Any:
    if method == "learned":
        from steinscope.gof import gof_test

        given = {name: value for name, value in options.items() if value is not None}
        if given.get("scheme") == "split":
            for name in ("critics", "blocks", "repeats"):
                if name in given:
                    raise InputError(f"{name}: this is an option of the prequential scheme, got --scheme split")
        return gof_test(points, target, alpha=alpha, seed=seed, progress=progress, **given)
    from steinscope import kernels

    if not 0 < alpha < 1:
        raise InputError(f"alpha: expected a number between 0 and 1, got {alpha}")
    tests = {
        "ksd": kernels.ksd_test,
        "linear-ksd": kernels.linear_ksd_test,
        "fssd": kernels.fssd_test,
        "ksdagg": kernels.ksdagg_test,
        "mmd": kernels.mmd_test,
    }
    return tests[method](points, target, alpha=alpha, seed=seed)


def compare(
    x: str,
    /,
    *,
    score: list[str] | None = None,
    model: list[str] | None = None,
    folds: int = 5,
    l2: Annotated[float, Parameter(name="--l2")] = 0.5,
    steps: int = 1000,
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
        The points: a .npy, .npz, .csv or .parquet file, one point in each row.
    score
        NAME=FILE: a file with a model's score at each point. Without NAME= the name is that of the file. Repeat it.
    model
        NAME=MODEL: a model as package.module:object, or the directory of a run of steinscope train. Repeat it.
    folds
        Hold out one of so many parts at a time; 0 for one split of 80, 10 and 10%.
    l2
        The penalty λ of the critics.
    steps
        How many steps each critic is trained at most.
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
    check_output(csv, "csv", ".csv")
    check_output(report, "report", ".html")
    scores, models = named("score", score or ()), named("model", model or ())
    for name in scores:
        if name in models:
            raise InputError(f"model: two models are named {name!r}; give names as NAME=SOURCE")
    if not scores and not models:
        raise InputError("score, model: give at least one model, as --score NAME=FILE or --model NAME=MODEL")
    points = read_points(x)
    candidates: dict[str, Any] = {name: read_scores(source, points, f"score {name}") for name, source in scores.items()}
    candidates |= {name: load_model(source, points, f"model {name}") for name, source in models.items()}
    from steinscope.comparison import compare as rank

    ranking = rank(candidates, points, folds=folds or None, l2=l2, steps=steps, seed=seed, progress=not quiet)
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
