"""Save what a run needs to resume, so that it is either there as a whole or not at all.

A checkpoint is two files: tensors as safetensors, and everything else as JSON with a checksum over both. The JSON is
written last, so that it stands for the whole. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from steinscope.errors import InputError
from steinscope.support.checks import check_count
from steinscope.support.files import check_directory, write_file

__all__ = ["CheckpointWarning", "load_checkpoint", "newest_step", "save_checkpoint"]

KEPT = 2
_TENSOR = "$tensor"
_PAIRS = "$pairs"
_NAME = re.compile(r"step-([0-9]{9,})\.json")


class CheckpointWarning(UserWarning):
    """A checkpoint that cannot be used, so that an older one is."""


def save_checkpoint(directory: str | Path, step: int, state: Any, *, keep: int | None = KEPT) -> Path:
    """Save a state: nested dictionaries and lists of tensors, numbers, strings, booleans and None.

    Arguments:
        directory: The directory of the run. It is made if it is not there.
        step: Names the checkpoint.
        state: What to save.
        keep: How many of the newest checkpoints stay; None for all.

    Returns:
        The path of the JSON file.
    """
    directory = Path(directory)
    if keep is not None:
        check_count("keep", keep)
    check_directory(directory, "checkpoint")
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    body = json.dumps({"step": step, "state": _encode(state, "", tensors)})
    content = safetensors.torch.save(tensors)
    path = _path(directory, step)
    write_file(path.with_suffix(".safetensors"), content)
    write_file(path, json.dumps({"checksum": _checksum(body, content), "body": body}).encode())
    for old in _steps(directory)[keep:] if keep is not None else ():
        # The JSON is removed first: without it the tensors are not a checkpoint.
        _path(directory, old).unlink(missing_ok=True)
    _remove_lone_tensors(directory)
    return path


def _remove_lone_tensors(directory: Path) -> None:
    """Remove the tensors of checkpoints that are no more, and of those that a killed process has not finished."""
    kept = {_path(directory, step).stem for step in _steps(directory)}
    for tensors in directory.glob("step-*.safetensors"):
        if tensors.stem not in kept and _NAME.fullmatch(f"{tensors.stem}.json"):
            tensors.unlink(missing_ok=True)


def load_checkpoint(directory: str | Path, step: int | None = None) -> tuple[int, Any] | None:
    """The newest checkpoint that is whole, as step and state; None where there is none.

    A damaged checkpoint is passed over with a warning. Where all are damaged this is an error, not a fresh start.

    Arguments:
        directory: The directory of the run.
        step: Load this one, and no other.
    """
    directory = Path(directory)
    steps = [found for found in _steps(directory) if step is None or found == step]
    for candidate in steps:
        path = _path(directory, candidate)
        try:
            record = json.loads(path.read_text())
            content = path.with_suffix(".safetensors").read_bytes()
            if record["checksum"] != _checksum(record["body"], content):
                raise ValueError("its checksum is wrong")
            body = json.loads(record["body"])
            return body["step"], _decode(body["state"], safetensors.torch.load(content))
        except (OSError, ValueError, LookupError, TypeError, RecursionError, SafetensorError) as error:
            reason = f"{path}: this checkpoint is damaged: {error}"
            if candidate == steps[-1]:
                raise InputError("checkpoint", f"{reason}") from None
            warnings.warn(f"{reason}; resuming from the one before", CheckpointWarning, stacklevel=2)
    return None


def newest_step(directory: str | Path) -> int | None:
    """The step of the newest checkpoint, whole or not; None where there is none."""
    steps = _steps(Path(directory))
    return steps[0] if steps else None


def _path(directory: Path, step: int) -> Path:
    return directory / f"step-{step:09d}.json"


def _steps(directory: Path) -> list[int]:
    """The steps of all checkpoints, newest first."""
    found = (_NAME.fullmatch(path.name) for path in directory.glob("step-*.json"))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def _checksum(body: str, content: bytes) -> str:
    return hashlib.sha256(body.encode() + b"\0" + content).hexdigest()


def _encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON, with its tensors put aside under their path."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: path}
    if isinstance(value, dict):
        # Keys that are whole numbers, as optimisers have them, must not come back as strings.
        return {_PAIRS: [[key, _encode(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_encode(item, f"{path}/{number}", tensors) for number, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state{path}: cannot save {type(value).__name__}")


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _decode(item, tensors) for key, item in value[_PAIRS]}
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    return value
