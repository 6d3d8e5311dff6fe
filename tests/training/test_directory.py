import json
from pathlib import Path

import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.models import EBM, Gaussian
from steinscope.settings import RunSettings
from steinscope.training import Run, load_run, train_run
from steinscope.training.directory import read_settings, run_points

SMALL = {"width": 8, "batch_size": 16, "log_every": 5}


def test_what_is_given_takes_precedence_over_the_file(tmp_path):
    (tmp_path / "run.toml").write_text('data = "rings"\nsteps = 10\nlr = 1\nbetas = [0, 0.5]\nlr_decay = true\n')
    settings = read_settings(tmp_path / "run.toml", {"lr": 0.01, "steps": None})
    assert settings == RunSettings(data="rings", steps=10, lr=0.01, betas=(0.0, 0.5), lr_decay=True)
    assert type(settings.betas[0]) is float


@pytest.mark.parametrize(
    "toml, message",
    [
        ("learning_rate = 3", "config: run.toml has an unknown key 'learning_rate'; did you mean 'lr'"),
        ("stepz = 3", "config: run.toml has an unknown key 'stepz'; did you mean 'steps'"),
        ("quux = 3", "config: run.toml has an unknown key 'quux'; expected some of steps, batch_size, lr"),
        ('steps = "many"', "config: steps in run.toml: expected a whole number, got 'many'"),
        ("steps = 1.5", "config: steps in run.toml: expected a whole number, got 1.5"),
        ("steps = true", "config: steps in run.toml: expected a whole number, got True"),
        ("lr_decay = 1", "config: lr_decay in run.toml: expected true or false, got 1"),
        ("steps = ", "config: run.toml is not a TOML file: Invalid value"),
        ('model = "tree"', 'model: expected "ebm" or "gaussian", got \'tree\''),
        ('objective = "nce"\nl2 = 1', "l2: this is a setting of the objective lsd, got objective 'nce'"),
        ("critic_steps = 0", "critic_steps: expected a whole number from 1 on, got 0"),
        ("seed = -1", "seed: expected a whole number from 0 to 2^63 - 1, got -1"),
        ("\xff", "config: run.toml is not a text file in UTF-8"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, monkeypatch, toml, message):
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_bytes(toml.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_settings(Path("run.toml"), {"data": "moons"})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_is_what_was_asked_for(tmp_path):
    settings = RunSettings(data="moons", steps=7, average=0.5, seed=3, **SMALL)
    result = train_run(settings, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert isinstance(run, Run) and (run.path, run.settings, run.shape, run.step) == (
        tmp_path / "run",
        settings,
        (2,),
        7,
    )
    assert isinstance(run.model, EBM) and not run.model.training
    # The averaged parameters are those of the model.
    x = torch.ones(3, 2)
    assert torch.equal(run.model.score(x), result.averaged.score(x))
    assert not torch.equal(run.model.score(x), result.model.score(x))


def test_a_run_is_resumed_to_the_same_bits(tmp_path):
    for path, lengths in (("whole", [12]), ("parts", [5, 9, 12])):
        for steps in lengths:
            train_run(RunSettings(data="moons", steps=steps, lr_decay=False, **SMALL), tmp_path / path)
    last = "checkpoints/step-000000012.safetensors"
    assert (tmp_path / "whole" / last).read_bytes() == (tmp_path / "parts" / last).read_bytes()


def test_points_of_a_file_are_told_from_others(tmp_path):
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(100, 2))
    np.save(tmp_path / "x.npy", x)
    settings = RunSettings(
        data=str(tmp_path / "x.npy"), model="gaussian", objective="likelihood", steps=3, batch_size=20
    )
    train_run(settings, tmp_path / "run")
    model = load_run(tmp_path / "run").model
    # A Gaussian starts at the mean of the points and at one and a half times their spread; three steps change little.
    assert isinstance(model, Gaussian)
    np.testing.assert_allclose(model.mean.detach(), x.mean(0), atol=0.01)
    np.testing.assert_allclose(model.covariance.detach().diagonal().sqrt(), 1.5 * x.std(0, ddof=1), atol=0.02)
    x[50, 1] += 1.0
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InputError, match=r"data: the run in .* was made with other points of shape \(100, 2\)"):
        train_run(settings, tmp_path / "run")


def test_a_record_that_was_changed_is_refused(tmp_path):
    settings = RunSettings(data="moons", steps=3, **SMALL)
    train_run(settings, tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["settings"]["width"] = 9
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="run: .*run.json does not describe a run .* changed: its checksum is wrong"):
        load_run(tmp_path)
    with pytest.raises(InputError, match="out: .*run.json does not describe a run"):
        train_run(settings, tmp_path)


def test_checkpoints_without_a_record_are_not_resumed(tmp_path):
    settings = RunSettings(data="moons", steps=3, **SMALL)
    train_run(settings, tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(InputError, match="out: .* holds checkpoints without a run.json; take another directory"):
        train_run(settings, tmp_path)


def test_points_are_a_name_or_rows(tmp_path):
    assert run_points("moons") == "moons"
    np.save(tmp_path / "line.npy", np.arange(5.0))
    assert run_points(str(tmp_path / "line.npy")).shape == (5, 1)
    with pytest.raises(InputError, match="data: expected one of .* or a file, got 'mooons'; did you mean 'moons'"):
        run_points("mooons")


def test_points_of_a_run_are_not_read_from_the_standard_input(tmp_path):
    with pytest.raises(InputError, match="^data: a run that is resumed reads its points again: save them to a file"):
        train_run(RunSettings(data="-", **SMALL), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_knows_the_names_of_its_columns(tmp_path):
    rows = "\n".join(f"{i % 7},{i % 5}" for i in range(60))
    (tmp_path / "x.csv").write_text(f"mass,size\n{rows}\n")
    train_run(RunSettings(data=str(tmp_path / "x.csv"), steps=2, **SMALL), tmp_path / "run")
    assert load_run(tmp_path / "run").names == ("mass", "size")
    train_run(RunSettings(data="moons", steps=2, **SMALL), tmp_path / "moons")
    assert load_run(tmp_path / "moons").names is None


def test_constant_coordinates_are_refused_by_name(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 6))
    x[:, [1, 4]] = 3.0
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="a,b,c,d,e,f", comments="")
    with pytest.raises(InputError, match=r"data: 2 of 6 coordinates are constant \(b, e\)"):
        train_run(RunSettings(data=str(tmp_path / "x.csv"), steps=3), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    np.save(tmp_path / "x.npy", np.ones((50, 2, 2)))
    with pytest.raises(InputError, match=r"data: 4 of 4 coordinates are constant \(x\[0\], x\[1\], x\[2\] …\)"):
        train_run(RunSettings(data=str(tmp_path / "x.npy"), steps=3), tmp_path / "run")
