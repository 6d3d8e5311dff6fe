import math

import pytest
import torch

from steinscope import InputError
from steinscope.training.checkpoint import CheckpointWarning, load_checkpoint, newest_step, save_checkpoint

from helpers import generator


def state(seed=0):
    numbers = torch.randn(3, 4, generator=generator(seed))
    return {
        "model": {"weight": numbers, "transposed": numbers.T, "empty": torch.zeros(0), "flag": torch.tensor(True)},
        "optimiser": {"state": {0: {"step": torch.tensor(3.0)}, 1: {}}, "groups": [{"lr": 0.1, "betas": [0.5, 0.9]}]},
        "numbers": [1, 0.1 + 0.2, math.inf, None, True, "text"],
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_a_state_comes_back_bit_for_bit(tmp_path):
    save_checkpoint(tmp_path / "run", 7, state())
    step, loaded = load_checkpoint(tmp_path / "run")
    assert step == 7 and same(loaded, state())


def test_the_last_two_are_kept(tmp_path):
    for step in (10, 200, 3000):
        save_checkpoint(tmp_path, step, state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{step:09d}.{suffix}" for step in (200, 3000) for suffix in ("json", "safetensors")
    ]
    assert newest_step(tmp_path) == 3000
    assert same(load_checkpoint(tmp_path, 200)[1], state(200))
    save_checkpoint(tmp_path, 4000, state(), keep=None)
    assert len(list(tmp_path.iterdir())) == 6


def damage(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "gone":
        path.unlink()
    elif how == "one number":
        # The files can still be read: only the checksum tells.
        changed = (
            content.replace(b"0.5", b"0.6", 1) if path.suffix == ".json" else content[:-1] + bytes([content[-1] ^ 1])
        )
        assert changed != content
        path.write_bytes(changed)
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["truncated", "empty", "one bit", "one number"])
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(how, suffix, tmp_path):
    save_checkpoint(tmp_path, 1, state(1))
    newest = save_checkpoint(tmp_path, 2, state(2))
    damage(newest.with_suffix(suffix), how)
    with pytest.warns(CheckpointWarning, match="step-000000002.json: this checkpoint is damaged: .*; resuming from"):
        step, loaded = load_checkpoint(tmp_path)
    assert step == 1 and same(loaded, state(1))


def test_tensors_without_json_are_no_checkpoint(tmp_path):
    """What a run leaves that is killed between the two files."""
    save_checkpoint(tmp_path, 1, state(1))
    damage(save_checkpoint(tmp_path, 2, state(2)), "gone")
    assert load_checkpoint(tmp_path)[0] == 1
    # The next one to be saved removes them.
    save_checkpoint(tmp_path, 3, state(3), keep=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{step:09d}.{suffix}" for step in (1, 3) for suffix in ("json", "safetensors")
    ]


def test_only_damaged_checkpoints_are_an_error(tmp_path):
    damage(save_checkpoint(tmp_path, 1, state()), "truncated")
    with pytest.raises(InputError, match="checkpoint: .*step-000000001.json: this checkpoint is damaged"):
        load_checkpoint(tmp_path)


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "nothing") is None and newest_step(tmp_path) is None


def test_other_files_are_left_alone(tmp_path):
    """Digits that are none for int(), names that are too short, and directories."""
    for name in ("step-².json", "step-1.json", "step-.json", "step-00000000x.json"):
        (tmp_path / name).write_text("{}")
    assert load_checkpoint(tmp_path) is None
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, state())
    assert load_checkpoint(tmp_path)[0] == 3 and len(list(tmp_path.iterdir())) == 8


def test_some_checkpoint_is_kept(tmp_path):
    with pytest.raises(InputError, match="keep: expected a whole number from 1 on, got 0"):
        save_checkpoint(tmp_path / "run", 1, state(), keep=0)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_directory_for_checkpoints(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="checkpoint: .*file is a file, expected a directory"):
        save_checkpoint(tmp_path / "file", 1, state())


def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path):
    save_checkpoint(tmp_path, 1, state())
    with pytest.raises(TypeError, match="state/fn: cannot save function"):
        save_checkpoint(tmp_path, 2, {"fn": test_no_checkpoint_is_none})
    assert newest_step(tmp_path) == 1 and len(list(tmp_path.iterdir())) == 2
