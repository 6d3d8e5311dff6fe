"""Run an experiment: independent trials in parallel, each recorded as it ends and skipped when it is there already."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from steinscope.errors import InputError
from steinscope.support.checks import check_count
from steinscope.support.files import csv_text, read_sealed, sealed_json, write_file
from steinscope.support.jobs import as_they_end
from steinscope.support.progress import progress_bar

__all__ = ["EXPERIMENTS", "SCALES", "Experiment", "Trial", "load", "read_csv", "redraw", "reproduce", "write_csv"]

Trial = dict[str, Any]
SCALES = ("smoke", "quick", "paper")
RECORDS = "trials"

EXPERIMENTS = {
    "gaussian": "The critic recovers the optimum in 100 dimensions",
    "gof": "Rejection rates of all tests on perturbed RBMs",
    "null": "Normality of the statistic where the model is right",
    "level": "How often the test rejects where the model is right",
    "chains": "How often the test rejects right and wrong Markov chains, whole and thinned",
    "alternatives": "Power over families where no single critic wins",
    "estimates": "How much of a known discrepancy is found",
    "modes": "Weights of separated modes, beside perturbed KSD",
    "rbm-eval": "Discrepancies of perturbed RBMs, learned and by kernels",
    "flow-eval": "The learned discrepancy of a flow follows its likelihood",
    "toy": "Densities learned from two-dimensional points",
    "ica": "Linear ICA trained in five ways",
    "images": "A deep EBM of digits and clothes: samples, and what a critic says",
    "rbm-images": "RBMs of digits and clothes",
    "selection": "Selecting the critic by mean minus standard deviation",
}


@dataclass(frozen=True)
class Experiment:
    """What an experiment is made of.

    Arguments:
        scales: The settings for each scale.
        trials: Makes the list of trials from the settings. A trial is a dictionary that JSON can hold.
        run: Runs one trial and returns its result, again a dictionary that JSON can hold. It may read what `prepare`
            left in the directory.
        report: Writes figures and tables for the finished trials into a directory and returns lines to print.
        prepare: Makes, in the directory, what all trials need, such as trained models. It resumes where it was stopped.
        search: Makes trials that come before the others, from the settings. They are recorded like those.
        choose: Makes the settings of the other trials from the settings and what the search found, so that settings are
            chosen on other data than those that are reported.
        draw: Draws the figure from the rows of the table, so that a new look needs no new run.
    """

    scales: Mapping[str, Mapping[str, Any]]
    trials: Callable[[Mapping[str, Any]], list[Trial]]
    run: Callable[[Trial, Path], Trial]
    report: Callable[[Sequence[tuple[Trial, Trial]], Path], list[str]]
    prepare: Callable[[Mapping[str, Any], Path], None] | None = None
    search: Callable[[Mapping[str, Any]], list[Trial]] | None = None
    choose: Callable[[Mapping[str, Any], Sequence[tuple[Trial, Trial]]], Mapping[str, Any]] | None = None
    draw: Callable[[Sequence[Mapping[str, Any]], Path], None] | None = None


def load(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise InputError("name", f"expected one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return import_module(f"steinscope.experiments.{name.replace('-', '_')}").EXPERIMENT


def reproduce(
    name: str,
    scale: str = "quick",
    out: str | Path | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[str]:
    """Run an experiment of the paper and write its figure, its numbers and a comparison with the paper's.

    Arguments:
        name: The experiment; `EXPERIMENTS` lists them.
        scale: `"smoke"` for seconds, `"quick"` for minutes, `"paper"` for the paper's own size.
        out: The directory to write to; by default `results/NAME-SCALE`. Trials that are there already are not run
            again, so that a run that was stopped resumes where it was.
        options: Settings that replace those of the scale, such as `{"repetitions": 10}`.
        jobs: How many trials run at once, with one thread each, so that the results are the same to the bit for any
            number; by default as many as there are processors. Under `joblib.parallel_config(backend="dask")` they run
            on a Dask cluster, by default on all its workers.
        progress: Whether to show a progress bar; by default on a terminal.

    Returns:
        The lines of the report, which also stand in `report.txt`.
    """
    experiment = load(name)
    if scale not in SCALES:
        raise InputError("scale", f"expected one of {', '.join(SCALES)}, got {scale!r}")
    if jobs is not None:
        check_count("jobs", jobs)
    settings: Mapping[str, Any] = _settings(experiment, scale, options or {})
    directory = Path(out if out is not None else Path("results") / f"{name}-{scale}").absolute()
    records = directory / RECORDS
    records.mkdir(parents=True, exist_ok=True)
    run = partial(_run_missing, experiment, directory, jobs=jobs, progress=progress)
    if experiment.search is not None and experiment.choose is not None:
        searched = run(f"{name} ({scale}), search", settings, experiment.search(settings))
        settings = experiment.choose(settings, searched)
    results = run(f"{name} ({scale})", settings, experiment.trials(settings))
    lines = experiment.report(results, directory)
    write_file(directory / "report.txt", ("\n".join(lines) + "\n").encode())
    return lines


def _run_missing(
    experiment: Experiment,
    directory: Path,
    label: str,
    settings: Mapping[str, Any],
    trials: list[Trial],
    *,
    jobs: int | None,
    progress: bool | None,
) -> list[tuple[Trial, Trial]]:
    """Run those of the trials that have no record yet, and return all with their results."""
    records = directory / RECORDS
    missing = [trial for trial in trials if read_record(records, trial) is None]
    if missing and experiment.prepare is not None:
        experiment.prepare(settings, directory)
    done = len(trials) - len(missing)
    with progress_bar(label, len(trials), progress) as advance:
        advance(done, "")
        tasks = [partial(_run, experiment.run, trial, directory) for trial in missing]
        for count, (number, record) in enumerate(as_they_end(tasks, jobs), start=1):
            write_file(_record_path(records, missing[number]), record)
            advance(done + count, "")
    return [(trial, record) for trial in trials if (record := read_record(records, trial)) is not None]


def redraw(name: str, table: str | Path) -> Path:
    """Draw the figure of an experiment from a table that it wrote, beside it and with its name.

    Arguments:
        name: The experiment.
        table: The CSV file, such as `gof.csv`.

    Returns:
        The path of the figure.
    """
    experiment = load(name)
    if experiment.draw is None:
        known = ", ".join(key for key in EXPERIMENTS if load(key).draw is not None)
        raise InputError("table", f"expected a table of one of {known}; {name} draws what its trials have recorded")
    table = Path(table)
    rows = read_csv(table)
    picture = table.with_suffix(".png")
    try:
        experiment.draw(rows, picture)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("table", f"{table} is no table of {name}: {type(error).__name__}: {error}") from None
    return picture


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that `write_csv` wrote: numbers where they are numbers, None for empty cells."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{key: _number(cell) for key, cell in row.items()} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("table", f"{path} cannot be read: {error}") from None
    if not rows:
        raise InputError("table", f"{path} has no rows")
    return rows


def _number(cell: str) -> Any:
    """A cell as an int or a float where it is one, None where it is empty."""
    for kind in (int, float):
        try:
            return kind(cell)
        except (TypeError, ValueError):
            continue
    return cell or None


def _settings(experiment: Experiment, scale: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a scale, with some of them replaced by others of the same kind."""
    defaults = experiment.scales[scale]
    for key, value in options.items():
        if key not in defaults:
            raise InputError("options", f"expected some of {', '.join(defaults)}, got {key!r}")
        examples = [settings[key] for settings in experiment.scales.values() if key in settings]
        if not _is_like(value, examples):
            sizes = sorted(_inner_sizes(examples))
            expected = f", expected lists of {' or '.join(map(str, sizes))} in it" if sizes else ""
            raise InputError(
                "options", f"{key} is {json.dumps(defaults[key])} by default, got {json.dumps(value)}{expected}"
            )
    return {**defaults, **options}


def _is_like(value: Any, examples: Sequence[Any]) -> bool:
    """Whether a value is of the kind of one of the examples. Numbers are positive, or zero where an example is."""
    kinds = {type(example) for example in examples}
    if isinstance(value, bool | str | None):
        return type(value) in kinds
    if isinstance(value, int | float):
        least = min((example for example in examples if isinstance(example, int | float)), default=math.inf)
        is_kind = float in kinds or (int in kinds and isinstance(value, int))
        return is_kind and math.isfinite(value) and (value > 0 or value >= least)
    if isinstance(value, list):
        inner = [item for example in examples if isinstance(example, list | tuple) for item in example]
        # Lists of a list are tuples, such as the two sizes of a model: each has as many entries as an example has.
        sizes = _inner_sizes(examples)
        fits = all(len(item) in sizes for item in value if isinstance(item, list))
        return bool(value) and bool(inner) and fits and all(_is_like(item, inner) for item in value)
    tables = [example for example in examples if isinstance(example, Mapping)]
    return bool(value) and all(
        any(key in table for table in tables) and _is_like(item, [table[key] for table in tables if key in table])
        for key, item in value.items()
    )


def _inner_sizes(examples: Sequence[Any]) -> set[int]:
    """How many entries the lists inside of lists have."""
    outer = [example for example in examples if isinstance(example, list | tuple)]
    return {len(item) for example in outer for item in example if isinstance(item, list | tuple)}


def read_record(records: Path, trial: Trial) -> Trial | None:
    """The result of a trial, or None where it has not been recorded. A damaged record counts as none."""
    try:
        record = read_sealed(_record_path(records, trial).read_bytes())
        return record["result"] if record["trial"] == trial else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same keys as CSV."""
    write_file(path, csv_text(rows).encode())


def _record_path(records: Path, trial: Trial) -> Path:
    digest = hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:16]
    return records / f"{digest}.json"


def _run(run: Callable[[Trial, Path], Trial], trial: Trial, directory: Path) -> bytes:
    """The record of a trial. It is written by the process that asked for it: a worker may be another machine."""
    start = time.perf_counter()
    result = run(trial, directory)
    return sealed_json({"trial": trial, "seconds": round(time.perf_counter() - start, 3), "result": _plain(result)})


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays as Python ones; NaN as None, which JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
