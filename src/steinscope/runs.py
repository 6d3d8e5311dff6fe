"""Training runs in a directory: what was asked for, the checkpoints, and the model that comes of them.

`run.json` says what was asked for and how to build the model again; `checkpoints/` holds its parameters. Both are
written as a whole or not at all, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from steinscope.arrays import Rows, check_rows, read_rows
from steinscope.checkpoint import load_checkpoint, newest_step
from steinscope.data.tables import SUFFIXES, read_table
from steinscope.data.toy import TOY, draw_toy
from steinscope.errors import InputError
from steinscope.files import write_file
from steinscope.models.ebm import EBM
from steinscope.models.gaussian import Gaussian
from steinscope.objectives.stein import LearnedStein
from steinscope.training import TrainResult, train

__all__ = ["Run", "Settings", "load_run", "read_settings", "run_points", "train_run"]

MODELS = ("ebm", "gaussian")
_LOOK_ROWS = 5000
_FINGERPRINT_ROWS = 1000
# What may differ between a run and its continuation.
_FREE = ("steps", "checkpoint_every", "log_every")


@dataclass(frozen=True)
class Settings:
    """What a training run is asked for.

    Arguments:
        data: The name of a two-dimensional data set, or a file with points.
        model: `"ebm"` or `"gaussian"`.
        width: Units in each hidden layer of the EBM.
        depth: Its hidden layers.
        objective: One of the objectives of `train`.
        l2: The penalty λ of the critic, for the objective lsd.
        critic_steps: Steps of the critic for each step of the model, for the objective lsd.
        steps: Steps of the model in all.
        batch_size: Points in each batch.
        lr: The learning rate of the model.
        auxiliary_lr: That of the critic or log-normaliser; by default the same.
        lr_decay: Whether both fall to zero along half a cosine.
        weight_decay: Added to the gradient as weight_decay times the weights.
        average: Keep an exponential average of the parameters with this coefficient; it is then the model of the run.
        noise: Add noise of this standard deviation to the points at first; it falls to zero. It helps where modes lie
            apart.
        seed: The source of all that is random.
        checkpoint_every: Steps between two checkpoints.
        log_every: Steps between two log points.
    """

    data: str
    model: str = "ebm"
    width: int = 128
    depth: int = 2
    objective: str = "lsd"
    l2: float | None = None
    critic_steps: int | None = None
    steps: int = 2000
    batch_size: int = 128
    lr: float = 1e-3
    auxiliary_lr: float | None = None
    lr_decay: bool = False
    weight_decay: float = 0.0
    average: float | None = None
    noise: float | None = None
    seed: int = 0
    checkpoint_every: int = 500
    log_every: int = 50

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise InputError(f"model: expected one of {', '.join(MODELS)}, got {self.model!r}")
        if self.model == "ebm" and self.objective == "likelihood":
            raise InputError(
                "objective: likelihood is for normalised models, and an EBM is not one; "
                "take another objective, such as contrastive-divergence, or the model gaussian"
            )
        for name in ("width", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise InputError(f"seed: expected a whole number from 0 on, got {self.seed}")
        for name in ("l2", "critic_steps"):
            value = getattr(self, name)
            if value is not None and self.objective != "lsd":
                raise InputError(f"{name}: this is a setting of the objective lsd, got objective {self.objective!r}")
            if value is not None and not value > 0:
                raise InputError(f"{name}: expected a positive number, got {value}")


def read_settings(path: Path | None, given: Mapping[str, Any]) -> Settings:
    """Settings from a TOML file and from what was given beside it, which goes first.

    Arguments:
        path: The file, or None.
        given: Settings by name; those that are None were not given.
    """
    found = {} if path is None else _read_toml(path)
    found |= {name: value for name, value in given.items() if value is not None}
    if "data" not in found:
        raise InputError(f"data: expected the name of a data set ({', '.join(TOY)}) or a file, got none")
    return Settings(**found)


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        came = f"{path} is a directory, expected a TOML file" if path.is_dir() else f"there is no file {path}"
        raise InputError(f"config: {came}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"config: {path} is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"config: {path} is not a TOML file: {error}") from None
    types = {field.name: str(field.type) for field in fields(Settings)}
    for key, value in table.items():
        if key not in types:
            initials = "".join(part[:1] for part in key.lower().split("_"))
            near = [initials] if initials in types else difflib.get_close_matches(key, types, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(types)}"
            raise InputError(f"config: {path} has an unknown key {key!r}; {hint}")
        table[key] = _checked(value, types[key], f"config: {key} in {path}")
    return table


def _checked(value: Any, kind: str, name: str) -> Any:
    """A value of a TOML file of the type that it should have. A whole number is a number."""
    kind = kind.split(" | ")[0]
    expected, words = {
        "str": (str, "text"),
        "int": (int, "a whole number"),
        "float": ((int, float), "a number"),
        "bool": (bool, "true or false"),
    }[kind]
    if not isinstance(value, expected) or (kind != "bool" and isinstance(value, bool)):
        raise InputError(f"{name}: expected {words}, got {value!r}")
    return float(value) if kind == "float" else value


@dataclass(frozen=True)
class Run:
    """A run and its model as it stands.

    Arguments:
        path: The directory.
        settings: What was asked for.
        shape: The shape of a point.
        step: How many steps have been made.
        model: The model; the averaged one where averaging was asked for.
    """

    path: Path
    settings: Settings
    shape: tuple[int, ...]
    step: int
    model: nn.Module


def load_run(path: str | Path, name: str = "run") -> Run:
    """The run in a directory.

    Arguments:
        path: The directory that `steinscope train` wrote.
        name: What the user calls it, for messages.
    """
    path = Path(path)
    record = _read_record(path, name)
    if record is None:
        raise InputError(f"{name}: {path} holds no run of steinscope train: there is no run.json in it")
    settings, shape = Settings(**record["settings"]), tuple(record["shape"])
    found = load_checkpoint(path / "checkpoints")
    if found is None:
        raise InputError(f"{name}: {path} has no checkpoint yet; let steinscope train run longer")
    step, state = found
    model = _build(settings, shape)
    try:
        model.load_state_dict({**state["model"], **(state["average"] or {})})
    except (KeyError, RuntimeError, TypeError):
        raise InputError(f"{name}: the checkpoint in {path} belongs to another model than its run.json") from None
    return Run(path, settings, shape, step, model.eval())


def train_run(settings: Settings, path: Path, *, progress: bool | None = None) -> TrainResult:
    """Train in a directory, or go on with what is there. The same settings give the same bits, however often it stops.

    Nothing is written before the first log point, so that settings that cannot work leave nothing behind.

    Arguments:
        settings: What is asked for.
        path: The directory.
        progress: As in `train`.
    """
    points = run_points(settings.data)
    look = _look(points, settings.seed)
    record = {
        "settings": asdict(settings),
        "shape": list(look.shape[1:]),
        "fingerprint": None if isinstance(points, str) else _fingerprint(points),
    }
    _check_record(path, record)
    model = _build(settings, tuple(look.shape[1:]), look)
    objective: Any = settings.objective
    if settings.l2 is not None or settings.critic_steps is not None:
        given = {"l2": settings.l2, "critic_steps": settings.critic_steps}
        objective = LearnedStein(**{name: value for name, value in given.items() if value is not None})
    return train(
        model,
        (lambda n, generator: draw_toy(points, n, generator)) if isinstance(points, str) else points,
        objective=objective,
        steps=settings.steps,
        batch_size=settings.batch_size,
        lr=settings.lr,
        auxiliary_lr=settings.auxiliary_lr,
        lr_decay=settings.lr_decay,
        weight_decay=settings.weight_decay,
        average=settings.average,
        noise=settings.noise,
        seed=settings.seed,
        checkpoint=path / "checkpoints",
        checkpoint_every=settings.checkpoint_every,
        log_every=settings.log_every,
        callbacks=[_RecordWriter(path, record)],
        progress=progress,
    )


class _RecordWriter:
    """A callback that writes down at the first log point, before any checkpoint, what is asked for."""

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        self.path, self.record, self.is_written = path, record, False

    def __call__(self, step: int, model: nn.Module, row: dict[str, float]) -> None:
        if not self.is_written:
            self.path.mkdir(parents=True, exist_ok=True)
            write_file(self.path / "run.json", json.dumps(self.record, indent=2).encode())
            self.is_written = True


def run_points(data: str) -> str | np.ndarray:
    """The name of a data set that is drawn afresh, or the points in a file, each a vector or an array."""
    if data in TOY:
        return data
    if not Path(data.rpartition(":")[0] or data).exists() and not data.lower().endswith(SUFFIXES):
        near = difflib.get_close_matches(data, TOY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"data: expected one of {', '.join(TOY)} or a file, got {data!r}{hint}")
    points = read_table(data, "data")
    points = points[:, None] if points.ndim == 1 else points
    check_rows(points, "data")
    return points


def _look(points: str | np.ndarray, seed: int) -> torch.Tensor:
    """Points to take scales from: fresh ones, or rows from all over the file."""
    if isinstance(points, str):
        return draw_toy(points, _LOOK_ROWS, seed)
    return _spread_rows(points, _LOOK_ROWS).float()


def _spread_rows(points: np.ndarray, count: int) -> torch.Tensor:
    rows: Rows = points if isinstance(points, np.memmap) else torch.from_numpy(np.ascontiguousarray(points))
    index = torch.linspace(0, len(points) - 1, min(count, len(points)), dtype=torch.float64).round().long()
    return read_rows(rows, index)


def _fingerprint(points: np.ndarray) -> str:
    """Tells one file of points from another: the shape, and rows from all over it."""
    content = _spread_rows(points, _FINGERPRINT_ROWS).contiguous().numpy().tobytes()
    return hashlib.sha256(f"{points.shape}".encode() + content).hexdigest()


def _build(settings: Settings, shape: tuple[int, ...], look: torch.Tensor | None = None) -> nn.Module:
    """The model, which starts at the mean and spread of the data where it is to be trained."""
    mean = torch.zeros(shape) if look is None else look.mean(0)
    std = torch.ones(shape) if look is None else 1.5 * look.std(0).clamp_min(1e-6)
    if settings.model == "gaussian":
        if len(shape) != 1:
            raise InputError(f"model: gaussian takes points that are vectors, got points of shape {shape}")
        return Gaussian(mean, std=std)
    return EBM.perceptron(shape, settings.width, settings.depth, mean=mean, std=std, seed=settings.seed)


def _read_record(path: Path, name: str) -> dict[str, Any] | None:
    file = path / "run.json"
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text())
        Settings(**record["settings"])
        return record
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{name}: {file} does not describe a run of steinscope train") from None


def _check_record(path: Path, record: dict[str, Any]) -> None:
    """Refuse what does not agree with a run that is there."""
    before = _read_record(path, "out")
    if before is None:
        if newest_step(path / "checkpoints") is not None:
            raise InputError(f"out: {path} holds checkpoints without a run.json; take another directory")
    elif newest_step(path / "checkpoints") is not None:
        for key, value in record["settings"].items():
            if key not in _FREE and before["settings"].get(key) != value:
                raise InputError(
                    f"{key}: the run in {path} was made with {before['settings'].get(key)!r}, got {value!r}; "
                    "use the same settings or another --out"
                )
        if before["fingerprint"] != record["fingerprint"]:
            raise InputError(f"data: the points have changed since the run in {path} began; use another --out")
