"""`steinscope test`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import (
    HeaderOption,
    SeedOption,
    check_chains,
    check_columns,
    check_standard_input,
    is_posterior,
    load_draws,
    load_model,
    read_points,
    read_scores,
    refuse_torchrun,
)
from steinscope.commands.options import Count, Flag
from steinscope.commands.outputs import check_output, json_text, write_output
from steinscope.errors import InputError
from steinscope.registries import CRITICS, KERNEL_TESTS
from steinscope.settings import read_support

__all__ = ["test"]

LEARNED = "learned"
_METHODS = f"The learned Stein test, {LEARNED}, or a kernel test: {KERNEL_TESTS.listed()}."
_CRITICS = (
    f"Learned test only: what looks for misfit. One of {CRITICS.listed()}; repeat it for several. "
    "By default all that apply; 'closed form' for those that need no training."
)


def test(
    x: str,
    /,
    *,
    score: str | None = None,
    model: str | None = None,
    samples: str | None = None,
    header: HeaderOption = None,
    support: str | None = None,
    chains: Flag = False,
    method: Annotated[str, Parameter(help=_METHODS)] = LEARNED,
    scheme: Literal["prequential", "split"] | None = None,
    critics: Annotated[list[str] | None, Parameter(help=_CRITICS)] = None,
    blocks: Count | None = None,
    repeats: Count | None = None,
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

        steinscope test posterior.nc --model mymodels:eight_schools

    Parameters
    ----------
    x
        The points: a .npy, .npz, .csv or .parquet file, one point in each row. FILE.npz:NAME is one array
        of an .npz file with several, and - the standard input. Names of columns are used in what is printed.
        A .nc file is a posterior that ArviZ has saved; the model is then one of PyMC, NumPyro or BridgeStan.
    score
        A file with the model's score at each point, of the same shape; - for the standard input. Names of columns must
        be those of the points in the same order, or others altogether.
    model
        The model as package.module:object, which may be in the current directory, or the directory of a run of
        steinscope train. The code of a module is run: name only one that you trust.
    samples
        A file with samples of the model, for a test that compares with them; - for the standard input.
    support
        Where the model's density is positive, if not everywhere: positive, unit, simplex, LOW,HIGH, or one of them
        for each coordinate, separated by spaces. By default what the model says.
    chains
        The points are draws of Markov chains, which depend on each other: an array of shape (chains, draws, ...). A .nc
        file needs no such flag.
    scheme
        Learned test only: prequential blocks (the default), or the paper's split.
    blocks
        Learned test only: how many blocks the points are divided into (10 by default).
    repeats
        Learned test only: how many random orders critics in closed form go through: 4 by default, 1 beyond 50 000
        points.
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
    refuse_torchrun("start a test without it, which uses all threads of one process")
    check_output(report, "report", ".html")
    if method not in (LEARNED, *KERNEL_TESTS):
        raise InputError("method", f"expected one of {', '.join((LEARNED, *KERNEL_TESTS))}, got {method!r}")
    _check_method(method, scheme=scheme, critics=critics, blocks=blocks, repeats=repeats)
    _check_sources(method, score, model, samples, support, chains)
    if explain and method != LEARNED:
        raise InputError("explain", f"only a learned test has a critic to explain, got --method {method}")
    points, target, columns = _load(x, score, model, samples, header, chains)
    options = {
        "support": None if support is None else read_support(support),
        "chains": True if chains else None,
        "scheme": scheme,
        "critics": critics,
        "blocks": blocks,
        "repeats": repeats,
        "names": columns,
    }
    result = _run_test(points, target, method, alpha=alpha, seed=seed, progress=not quiet, **options)
    explanation = result.explain() if explain else None
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


def _load(
    x: str, score: str | None, model: str | None, samples: str | None, header: bool | None, chains: bool
) -> tuple:
    """The points, what they are held against, and the names of their coordinates."""
    if is_posterior(x):
        draws = load_draws(x, model)
        return draws, draws.model, draws.names
    check_standard_input(x, score, samples)
    table = read_points(x, header=header)
    check_chains(table.array, chains)
    if samples is not None:
        others = read_points(samples, "samples", header=header)
        check_columns(others.names, table.names, "samples", samples)
        return table.array, others.array, table.names
    if score is not None:
        from steinscope.points import check_rows

        scores = read_scores(score, table, "score", header=header)
        check_rows(scores, "score")
        return table.array, scores, table.names
    return table.array, load_model(str(model), table), table.names


def _check_method(method: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None and method != LEARNED:
            raise InputError(name, f"this is an option of --method learned, got --method {method}")


def _check_sources(
    method: str, score: str | None, model: str | None, samples: str | None, support: str | None, chains: bool
) -> None:
    if method in KERNEL_TESTS and KERNEL_TESTS[method].against == "samples":
        if support is not None:
            raise InputError("support", f"--method {method} looks at samples, which need none")
        if chains:
            raise InputError("chains", f"--method {method} is for independent points; other methods take chains")
        if samples is None or score is not None or model is not None:
            raise InputError("samples", f"--method {method} compares with samples of the model: give --samples alone")
        return
    if samples is not None:
        which = ", ".join(name for name, entry in KERNEL_TESTS.items() if entry.against == "samples")
        raise InputError("samples", f"only --method {which} takes samples, got --method {method}")
    if (score is None) == (model is None):
        came = "neither" if score is None else "both"
        raise InputError("score, model", f"give the model as --score FILE or as --model NAME, got {came}")


def _run_test(points: Any, target: Any, method: str, *, alpha: float, seed: int, progress: bool, **options: Any) -> Any:
    given = {name: value for name, value in options.items() if value is not None}
    if method == LEARNED:
        from steinscope.gof.driver import gof_test

        if given.get("scheme") == "split":
            for name in ("critics", "blocks", "repeats"):
                if name in given:
                    raise InputError(name, "this is an option of the prequential scheme, got --scheme split")
        return gof_test(points, target, alpha=alpha, seed=seed, progress=progress, **given)
    where = {name: given[name] for name in ("support", "chains") if name in given}
    return KERNEL_TESTS[method].load()(points, target, alpha=alpha, seed=seed, **where)
