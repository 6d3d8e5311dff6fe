"""`steinscope monitor`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from steinscope.commands.inputs import STANDARD_INPUT, HeaderOption, SeedOption, load_model, refuse_torchrun
from steinscope.commands.options import Count, Flag
from steinscope.commands.rows import arriving_rows
from steinscope.data.tables import Table
from steinscope.errors import InputError
from steinscope.settings import read_support
from steinscope.support.checks import check_count, check_level, check_number
from steinscope.support.files import check_directory

__all__ = ["monitor"]


def monitor(
    *files: Annotated[str, Parameter(show=True)],
    model: str | None = None,
    scored: Flag = False,
    batch: Count = 100,
    alpha: float = 0.05,
    critics: list[str] | None = None,
    support: str | None = None,
    header: HeaderOption = None,
    follow: Flag = False,
    interval: float = 1.0,
    state: Path | None = None,
    seed: SeedOption = 0,
    json: Flag = False,
    fail_on_reject: Flag = False,
    quiet: Flag = False,
) -> int:
    """Test a model while points arrive, and print a line for each batch.

    The level holds however often one looks: the probability that a right model is ever rejected is at most alpha.
    The exit status is 0 whatever the outcome, unless --fail-on-reject is given, and 2 for input that cannot be used.

    Examples:

        steinscope monitor --model mymodels:posterior points.csv --follow --fail-on-reject

        sensor | steinscope monitor --model runs/moons - --state monitor

    Parameters
    ----------
    files
        Text with one point in each line, which may grow (--follow), or .npy, .npz and .parquet files; - is the standard
        input. They are read one after the other.
    model
        The model as package.module:object, which may be in the current directory, or the directory of a run of
        steinscope train. The code of a module is run: name only one that you trust.
    scored
        Instead of --model: each row holds a point and then the model's score at it. The level then holds in the
        limit of many points only.
    batch
        How many points a batch has.
    alpha
        The level.
    critics
        Names of critics in closed form; by default all of them. Repeat it for several.
    support
        Where the model's density is positive, if not everywhere; see steinscope test --help.
    follow
        Wait for more rows of text files at the end, until the test is stopped.
    interval
        With --follow: how many seconds to wait before looking again.
    state
        A directory in which the test is saved after each batch. If it holds a test, that goes on: rows of files that it
        has seen are passed over, and rows of the standard input are new.
    seed
        The source of all that is random.
    json
        Print a line of JSON for each batch.
    fail_on_reject
        Stop with status 1 as soon as the model is rejected.
    quiet
        Print nothing but errors.
    """
    refuse_torchrun("start monitor without it")
    if scored == (model is not None):
        raise InputError("model", "give a model as --model NAME, or --scored for rows with scores")
    if not files:
        raise InputError("files", "expected at least one file, or - for the standard input")
    if STANDARD_INPUT in files and (follow or len(files) > 1):
        raise InputError("files", "the standard input is read alone, and to its end without --follow")
    check_count("batch", batch)
    check_level("alpha", alpha)
    check_number("interval", interval, over=0)
    check_directory(state, "state")
    settings = {
        "alpha": alpha,
        "critics": critics or "closed form",
        "support": None if support is None else read_support(support),
        "seed": seed,
    }
    saved = _saved(state)
    test, seen = None, dict(saved.get("notes", {}).get("rows", {}))
    # The generator keeps its own count of what it passes over.
    rows_of_files = arriving_rows(files, batch, header=header, seen=dict(seen), follow=follow, interval=interval)
    for source, rows in rows_of_files:
        points, scores = _parts(rows) if scored else (rows, None)
        if test is None:
            found = None if model is None else load_model(model, Table(points))
            test = _test(state if saved else None, found, settings)
        now = test.update(points, scores)
        if state is not None:
            seen[source] = seen.get(source, 0) + len(rows)
            test.notes = {"rows": seen}
            test.save(state)
        if not quiet:
            print(dumps(now.to_dict()) if json else now, flush=True)
        if fail_on_reject and now.rejected:
            return 1
    if test is None and not saved:
        raise InputError("files", f"expected at least one point, got none in {', '.join(files)}")
    # A test that was rejected before, and to which nothing was added, is rejected still.
    return int(fail_on_reject and test is None and bool(saved) and saved["purse"]["reached"] is not None)


def _parts(rows: Any) -> tuple[Any, Any]:
    if rows.shape[1] % 2:
        raise InputError("scored", f"expected as many scores as coordinates in each row, got {rows.shape[1]} columns")
    half = rows.shape[1] // 2
    return rows[:, :half], rows[:, half:]


def _saved(state: Path | None) -> dict[str, Any]:
    """What a directory holds of a saved test; nothing if there is none."""
    from steinscope.streams.sequential import saved_state
    from steinscope.training.checkpoint import newest_step

    return {} if state is None or newest_step(state) is None else saved_state(state)


def _test(state: Path | None, model: Any, settings: dict[str, Any]) -> Any:
    from steinscope.streams import SequentialTest

    wanted = SequentialTest(model, **settings)
    if state is None:
        return wanted
    test = SequentialTest.load(state, model, support=settings["support"])
    for name in ("alpha", "critics", "seed"):
        there, here = getattr(test, name), getattr(wanted, name)
        if there != here:
            there, here = (", ".join(value) if name == "critics" else f"{value:g}" for value in (there, here))
            raise InputError(name, f"the test in {state} was made with {there}, got {here}; use the same")
    return test
