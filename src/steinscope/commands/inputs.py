"""From what is typed on the command line to arrays and models."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from cyclopts.validators import Number

from steinscope.commands.options import Count
from steinscope.data.tables import Table, load_table
from steinscope.draws import Draws
from steinscope.errors import InputError, first_line
from steinscope.frames import Names

__all__ = [
    "STANDARD_INPUT",
    "HeaderOption",
    "SeedOption",
    "check_chains",
    "check_columns",
    "check_standard_input",
    "is_posterior",
    "load_draws",
    "load_model",
    "named",
    "read_points",
    "read_scores",
    "refuse_torchrun",
]

SeedOption = Annotated[Count, Parameter(validator=Number(gte=0, lt=2**63))]
HeaderOption = Annotated[
    bool | None,
    Parameter(
        negative="--no-header",
        show_default=False,
        help="Whether the first line of .csv files holds names; by default it does if none of them is a number.",
    ),
]
# What `-` becomes before options are parsed, which would take it for one.
STANDARD_INPUT = "<standard input>"
# How the files begin that can come through the standard input. Anything else is text.
_BEGINNINGS = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz", b"PAR1": ".parquet"}


def refuse_torchrun(instead: str) -> None:
    """Say that a command runs in one process, where torchrun has started several, each of which would do all of it.

    Arguments:
        instead: What to do.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("torchrun", f"only steinscope train shares its work between processes of torchrun; {instead}")


def read_points(source: str, name: str = "x", *, header: bool | None = None) -> Table:
    """Points from a file or the standard input. Their values are checked later, by what uses them."""
    points = _read_standard_input(name, header) if source == STANDARD_INPUT else load_table(source, name, header=header)
    if points.array.size == 0:
        raise InputError(name, f"{source} has shape {points.array.shape}, expected at least one row and one column")
    return points


def _read_standard_input(name: str, header: bool | None) -> Table:
    content = sys.stdin.buffer.read()
    suffix = next((suffix for start, suffix in _BEGINNINGS.items() if content.startswith(start)), ".csv")
    with tempfile.NamedTemporaryFile(prefix="steinscope-", suffix=suffix) as file:
        file.write(content)
        file.flush()
        try:
            return load_table(file.name, name, header=header)
        except InputError as error:
            raise InputError(name, error.problem.replace(file.name, "the standard input")) from None


def read_scores(source: str, x: Table, name: str, *, header: bool | None = None) -> np.ndarray:
    """Scores from a file, of the shape of the points. Their values are checked later, by what uses them."""
    scores = read_points(source, name, header=header)
    if scores.array.shape != x.array.shape:
        raise InputError(
            name,
            f"{source} has shape {scores.array.shape}, expected that of x, {x.array.shape}: one score for each "
            "coordinate of each point",
        )
    check_columns(scores.names, x.names, name, source)
    return scores.array


def check_columns(names: Names, expected: Names, name: str, source: str) -> None:
    """Refuse columns in another order than those of x, and names of which only some are those of x.

    Columns of scores may have names of their own, such as score_a, but not those of other columns of x.

    Arguments:
        names: The names of the columns, if they have any.
        expected: Those of x, if they have any.
        name: What the user calls the file, for messages.
        source: The file.
    """
    if names is None or expected is None or not set(names) & set(expected):
        return
    shown = "the standard input" if source == STANDARD_INPUT else source
    for place, (came, wanted) in enumerate(zip(names, expected, strict=False), start=1):
        if came != wanted:
            where = f"column {expected.index(came) + 1} of x" if came in expected else "no column of x"
            raise InputError(
                name,
                f"column {place} of {shown} is {came!r}, which is {where}; expected {wanted!r}: "
                "the columns must be those of x, in the order of x",
            )


def check_standard_input(*sources: str | None) -> None:
    """Refuse two sources that are both the standard input, which can be read only once."""
    if sum(source == STANDARD_INPUT for source in sources) > 1:
        raise InputError("-", "the standard input can be read only once: give all but one as files")


def check_chains(x: np.ndarray, chains: bool) -> None:
    """Refuse an array that holds no chains, in the words of the command line."""
    if chains and x.ndim < 3:
        raise InputError(
            "chains",
            f"expected an array of shape (chains, draws, coordinates) in an .npy or .npz file, got {x.shape}",
        )


def named(option: str, sources: Iterable[str], what: str = "models") -> dict[str, str]:
    """Sources by their names: `name=source`, or a source that names itself.

    Arguments:
        option: What the user calls them.
        sources: What was typed.
        what: What they are, for messages.

    Example:
        >>> named("score", ["a=scores.npy", "other.npy"])
        {'a': 'scores.npy', 'other': 'other.npy'}
    """
    found: dict[str, str] = {}
    for source in sources:
        name, equals, rest = source.partition("=")
        if not equals or Path(source).exists():
            name, rest = _own_name(source), source
        if not name or not rest:
            raise InputError(option, f"expected NAME=SOURCE or SOURCE, got {source!r}")
        rest = STANDARD_INPUT if rest == "-" else rest
        if name in found:
            raise InputError(option, f"two {what} are named {name!r}; give names as NAME=SOURCE")
        found[name] = rest
    return found


def _own_name(source: str) -> str:
    """The name of a file without its suffix, or of an object in a module."""
    if ":" in source and not Path(source).exists():
        return source.rpartition(":")[2]
    return Path(source).name if Path(source).is_dir() else Path(source).stem


def load_model(source: str, x: Table, name: str = "model") -> Any:
    """A model by its name `package.module:object`, or from the directory of a run of `steinscope train`.

    Arguments:
        source: What the user typed. The code of the module is run. Modules of the current directory can be named, but
            do not come before installed ones.
        x: The points. The model is tried at the first of them. A run knows the names of the columns it was trained on.
        name: What the user calls it, for messages.
    """
    if Path(source).is_dir():
        from steinscope.training.directory import load_run

        run, shape = load_run(source, name), x.array.shape[1:]
        if shape != run.shape:
            raise InputError(name, f"{source} was trained on points of shape {run.shape}, those of x are {shape}")
        check_columns(getattr(run, "names", None), x.names, name, source)
        return run.model
    from steinscope.foreign import check_fitted_columns

    model = _find_object(source, name)
    check_fitted_columns(model, x.names)
    _try_out(model, x.array, name)
    return model


def is_posterior(source: str) -> bool:
    """Whether this is a netCDF file, in which ArviZ keeps posteriors."""
    return source.lower().endswith(".nc")


def load_draws(source: str, model: str | None, name: str = "model") -> Draws:
    """Draws in a netCDF file, with scores of a model by its name `package.module:object`.

    Arguments:
        source: The file.
        model: What the user typed, if anything. The code of the module is run.
        name: What the user calls the model, for messages.
    """
    if model is None:
        raise InputError(name, f"{source} is a posterior: give the model that was sampled as --model MODULE:MODEL")
    from steinscope.bayes import from_posterior

    found = _find_object(model, name)
    try:
        return from_posterior(source, found)
    except InputError as error:
        raise error.renamed({"data": "x", "fit": "x"}.get(error.argument, name)) from error.__cause__
    except Exception as error:
        raise InputError(name, f"its score fails at the draws: {first_line(error)}") from error


def _try_out(model: Any, x: np.ndarray, name: str) -> None:
    """Code of the user's own can fail in any way. Better at once, and in one line."""
    import torch

    from steinscope.densities import as_density, model_of, placement
    from steinscope.points import check_rows, read_rows, rows_dtype
    from steinscope.supports import find_region

    model = model_of(None, model)
    rows, density = check_rows(np.array(x[:2]), "x"), as_density(model)
    dtype, device = placement(model, rows_dtype(rows), torch.device("cpu"))
    try:
        density.score(read_rows(rows, slice(None), dtype=dtype, device=device))
    except InputError:
        # What is wrong with its support says more than what its functions say about the points.
        find_region(None, model, x.shape[1:])
        raise
    except Exception as error:
        raise InputError(name, f"its score fails at the first points of x: {first_line(error)}") from error


def _find_object(source: str, name: str) -> Any:
    module_name, colon, path = source.partition(":")
    if module_name.endswith(".py"):
        given = module_name.removesuffix(".py")
        hint = "a file in the current directory" if os.sep in given else f"{given}:{path or 'OBJECT'}"
        raise InputError(name, f"expected the name of a module, not of its file: {hint}, got {source!r}")
    is_name = all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")])
    if not colon or not is_name:
        raise InputError(
            name, f"expected package.module:object or the directory of a run of steinscope train, got {source!r}"
        )
    value: Any = _import(module_name, source, name)
    for part in path.split("."):
        if not hasattr(value, part):
            raise InputError(name, f"{module_name} has no {path!r}")
        value = getattr(value, part)
    if isinstance(value, type):
        raise InputError(name, f"{source} is a class, expected an object: make one in {module_name} and name that")
    return value


def _import(module_name: str, source: str, name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InputError(name, f"there is no module {module_name} here or among the installed ones") from None
        raise InputError(name, f"{module_name} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:
        # A script that is no module ends the program when it is imported.
        raise InputError(name, f"{module_name} cannot be imported: {first_line(error)}") from error
