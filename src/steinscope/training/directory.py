"""Training runs in a directory: what was asked for, the checkpoints, and the model that comes of them.

`run.json` says what was asked for and how to build the model again; `checkpoints/` holds its parameters. Both are
written as a whole or not at all, so that a run that was killed resumes where it was.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import nn

from steinscope.data.tables import SUFFIXES, load_table
from steinscope.data.toy import TOY, draw_toy
from steinscope.errors import InputError
from steinscope.frames import Names, coordinate_label
from steinscope.models.ebm import EBM
from steinscope.models.gaussian import Gaussian
from steinscope.objectives.learned_stein import LearnedStein
from steinscope.points import Rows, check_rows, read_rows
from steinscope.settings import RunSettings, TrainSettings, read_support
from steinscope.support.checks import check_path
from steinscope.support.files import read_sealed, sealed_json, write_file
from steinscope.training.checkpoint import load_checkpoint, newest_step
from steinscope.training.driver import train
from steinscope.training.results import TrainResult
from steinscope.training.watchman import best_of

__all__ = ["Run", "load_run", "read_settings", "run_points", "train_run"]

_LOOK_ROWS = 5000
# What may differ between a run and its continuation.
_FREE = ("steps", "checkpoint_every", "log_every")


def read_settings(path: Path | None, given: Mapping[str, Any]) -> RunSettings:
    """Settings from a TOML file, and from what was given beside it, which takes precedence.

    Arguments:
        path: The file, or None.
        given: Settings by name; those that are None were not given.
    """
    found = {} if path is None else _read_toml(path)
    found |= {name: value for name, value in given.items() if value is not None}
    if "data" not in found:
        raise InputError("data", f"expected the name of a data set ({', '.join(TOY)}) or a file, got none")
    return RunSettings(**found)


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        came = f"{path} is a directory, expected a TOML file" if path.is_dir() else f"there is no file {path}"
        raise InputError("config", f"{came}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError("config", f"{path} is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError("config", f"{path} is not a TOML file: {error}") from None
    kinds = get_type_hints(RunSettings)
    for key, value in table.items():
        if key not in kinds:
            initials = "".join(part[:1] for part in key.lower().split("_"))
            near = [initials] if initials in kinds else difflib.get_close_matches(key, kinds, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(kinds)}"
            raise InputError("config", f"{path} has an unknown key {key!r}; {hint}")
        table[key] = _checked(value, kinds[key], f"{key} in {path}")
    return table


def _checked(value: Any, kind: Any, name: str) -> Any:
    """A value of a TOML file of the type that it should have. A whole number is a number."""
    kinds = [part for part in get_args(kind) if part is not NoneType] if isinstance(kind, UnionType) else [kind]
    if get_origin(kinds[0]) is tuple:
        parts = get_args(kinds[0])
        if not isinstance(value, list) or len(value) != len(parts):
            raise InputError("config", f"{name}: expected a list of {len(parts)}, got {value!r}")
        return tuple(_checked(item, part, name) for item, part in zip(value, parts, strict=True))
    expected, words = {
        str: (str, "text"),
        int: (int, "a whole number"),
        float: ((int, float), "a number"),
        bool: (bool, "true or false"),
    }[kinds[0]]
    if not isinstance(value, expected) or (kinds[0] is not bool and isinstance(value, bool)):
        raise InputError("config", f"{name}: expected {words}, got {value!r}")
    return float(value) if kinds[0] is float else value


@dataclass(frozen=True)
class Run:
    """A run and its model as it stands.

    Arguments:
        path: The directory.
        settings: What was asked for.
        shape: The shape of a point.
        step: How many steps have been made.
        model: The model; the averaged one where averaging was asked for, and the best at held-out points where there
            are any.
        names: What the coordinates of its points are called, if anything.
    """

    path: Path
    settings: RunSettings
    shape: tuple[int, ...]
    step: int
    model: nn.Module
    names: Names = None


def load_run(path: str | Path, name: str = "run") -> Run:
    """The run in a directory.

    Arguments:
        path: The directory that `steinscope train` wrote.
        name: What the user calls it, for messages.
    """
    path = check_path("path", path)
    record = _read_record(path, name)
    if record is None:
        raise InputError(name, f"{path} holds no run of steinscope train: there is no run.json in it")
    settings, shape = _recorded(record), tuple(record["shape"])
    found = load_checkpoint(path / "checkpoints")
    if found is None:
        raise InputError(name, f"{path} has no checkpoint yet; let steinscope train run longer")
    step, state = found
    model = _build(settings, shape)
    try:
        best = best_of(state.get("watched"), state["history"])[1]
        model.load_state_dict({**state["model"], **(state["average"] or {}), **best})
    except (KeyError, RuntimeError, TypeError):
        raise InputError(name, f"the checkpoint in {path} belongs to another model than its run.json") from None
    names = tuple(record["names"]) if record.get("names") else None
    return Run(path, settings, shape, step, model.eval(), names)


def train_run(settings: RunSettings, path: Path, *, progress: bool | None = None) -> TrainResult:
    """Train in a directory, or resume what is there. The same settings give the same bits, however often it stops.

    Nothing is written before the first log point, so that settings that cannot work leave nothing behind.

    Arguments:
        settings: What is asked for.
        path: The directory.
        progress: As in `train`.
    """
    path = check_path("path", path)
    points, names = _named_points(settings.data, settings.header)
    look = _look(points, settings.seed)
    record = {
        "settings": {**asdict(settings), "betas": list(settings.betas)},
        "shape": list(look.shape[1:]),
        "names": None if names is None else list(names),
    }
    _check_record(path, record)
    model = _build(settings, tuple(look.shape[1:]), look)
    _check_varied(look, names)
    objective: Any = settings.objective
    if settings.l2 is not None or settings.critic_steps is not None:
        given = {"l2": settings.l2, "critic_steps": settings.critic_steps}
        objective = LearnedStein(**{name: value for name, value in given.items() if value is not None})
    try:
        return train(
            model,
            (lambda n, generator: draw_toy(points, n, generator)) if isinstance(points, str) else points,
            objective=objective,
            **{field.name: getattr(settings, field.name) for field in fields(TrainSettings)},
            checkpoint=path / "checkpoints",
            checkpoint_every=settings.checkpoint_every,
            log_every=settings.log_every,
            callbacks=[_RecordWriter(path, record)],
            progress=progress,
        )
    except InputError as error:
        # What the library calls x is the data of a run.
        raise (error.renamed("data") if error.argument == "x" else error) from error.__cause__


class _RecordWriter:
    """A callback that writes down at the first log point, before any checkpoint, what is asked for."""

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        self.path, self.record, self.is_written = path, record, False

    def __call__(self, step: int, model: nn.Module, row: dict[str, float]) -> None:
        if not self.is_written:
            self.path.mkdir(parents=True, exist_ok=True)
            write_file(self.path / "run.json", sealed_json(self.record))
            self.is_written = True


def run_points(data: str, header: bool | None = None) -> str | np.ndarray:
    """The name of a data set that is drawn afresh, or the points in a file, each a vector or an array."""
    return _named_points(data, header)[0]


def _named_points(data: str, header: bool | None) -> tuple[str | np.ndarray, Names]:
    if data in TOY:
        return data, None
    if data == "-":
        raise InputError("data", "a run that is resumed reads its points again: save them to a file first, got -")
    if not Path(data.rpartition(":")[0] or data).exists() and not data.lower().endswith(SUFFIXES):
        near = difflib.get_close_matches(data, TOY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError("data", f"expected one of {', '.join(TOY)} or a file, got {data!r}{hint}")
    table = load_table(data, "data", header=header)
    points = table.array[:, None] if table.array.ndim == 1 else table.array
    check_rows(points, "data")
    return points, table.names


def _look(points: str | np.ndarray, seed: int) -> torch.Tensor:
    """Points to take scales from: fresh ones, or rows from all over the file."""
    if isinstance(points, str):
        return draw_toy(points, _LOOK_ROWS, seed)
    rows: Rows = points if isinstance(points, np.memmap) else torch.from_numpy(np.ascontiguousarray(points))
    index = torch.linspace(0, len(points) - 1, min(_LOOK_ROWS, len(points)), dtype=torch.float64).round().long()
    return read_rows(rows, index).float()


def _check_varied(look: torch.Tensor, names: Names) -> None:
    """Refuse coordinates that are constant, on which every density grows without end."""
    flat = look.reshape(len(look), -1)
    constant = (flat == flat[0]).all(0).nonzero()[:, 0].tolist()
    if len(look) > 1 and constant:
        shown = ", ".join(coordinate_label(names, place) for place in constant[:3]) + (
            " …" if len(constant) > 3 else ""
        )
        raise InputError(
            "data",
            f"{len(constant)} of {flat.shape[1]} coordinates are constant ({shown}), which no density says: leave them "
            "out, or add a little noise",
        )


def _build(settings: RunSettings, shape: tuple[int, ...], look: torch.Tensor | None = None) -> nn.Module:
    """The model, which starts at the mean and spread of the data where it is to be trained."""
    mean = torch.zeros(shape, dtype=torch.float32) if look is None else look.mean(0)
    std = torch.ones(shape, dtype=torch.float32) if look is None else 1.5 * look.std(0).clamp_min(1e-6)
    if settings.model == "gaussian":
        if len(shape) != 1:
            raise InputError("model", f"gaussian takes points that are vectors, got points of shape {shape}")
        return Gaussian(mean, std=std)
    model = EBM.perceptron(shape, settings.width, settings.depth, mean=mean, std=std, seed=settings.seed)
    if settings.support is not None:
        # Whoever uses the model of the run reads it there.
        setattr(model, "support", read_support(settings.support))  # noqa: B010
    return model


def _read_record(path: Path, name: str) -> dict[str, Any] | None:
    file = path / "run.json"
    if not file.is_file():
        return None
    try:
        record = read_sealed(file.read_bytes())
        _recorded(record)
        tuple(record["shape"])
        return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            name, f"{file} does not describe a run of steinscope train, or has been changed: {error}"
        ) from None


def _recorded(record: dict[str, Any]) -> RunSettings:
    """The settings in a record, where JSON knows no tuples."""
    return RunSettings(**{**record["settings"], "betas": tuple(record["settings"].get("betas", TrainSettings.betas))})


def _check_record(path: Path, record: dict[str, Any]) -> None:
    """Refuse what does not agree with a run that is there."""
    before = _read_record(path, "out")
    if before is None:
        if newest_step(path / "checkpoints") is not None:
            raise InputError("out", f"{path} holds checkpoints without a run.json; take another directory")
    elif newest_step(path / "checkpoints") is not None:
        for key, value in record["settings"].items():
            if key not in _FREE and before["settings"].get(key) != value:
                came, made = (
                    "the default" if one is None else repr(one) for one in (value, before["settings"].get(key))
                )
                raise InputError(
                    key, f"the run in {path} was made with {made}, got {came}; use the same settings or another --out"
                )
