"""`steinscope sample`."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from steinscope.data.tables import load_table
from steinscope.support.files import read_sealed, sealed_json
from steinscope.training import directory

from helpers import SMALL_RUN, assert_one_line


def test_points_of_any_shape(here, command):
    np.save("line.npy", np.random.default_rng(0).standard_normal(100))
    np.save("images.npy", np.random.default_rng(0).standard_normal((100, 2, 2)))
    for name, shape in (("line", (1,)), ("images", (2, 2))):
        assert command("train", f"{name}.npy", "--steps", 10, *SMALL_RUN).code == 0
        assert command("sample", f"runs/{name}", "-n", 7, "--steps", 5, "--out", f"{name}-samples.npy").code == 0
        assert np.load(f"{name}-samples.npy").shape == (7, *shape)


def test_samples_are_those_of_the_model(here, command):
    """Chains of an EBM agree with its density, as the test of fit sees it."""
    command("train", "moons", "--steps", 100, "--width", 32, "--lr", 0.003)
    done = command("sample", "runs/moons", "-n", 400, "--steps", 300, "--out", "new/samples.npy")
    assert done.code == 0 and "300 steps of MALA" in done.out
    accepted = int(re.search(r"(\d+)% accepted", done.out)[1])
    assert 45 <= accepted <= 75
    result = json.loads(command("test", "new/samples.npy", "--model", "runs/moons", "--alpha", 0.001, "--json").out)
    assert not result["rejected"]
    again = command("sample", "runs/moons", "-n", 400, "--steps", 300, "--out", "again.npy", "--quiet")
    assert again.out == ""
    np.testing.assert_array_equal(np.load("new/samples.npy"), np.load("again.npy"))


def test_samples_as_csv_and_by_hmc(here, command):
    command("train", "moons", "--steps", 5, *SMALL_RUN)
    options = ["--sampler", "hmc", "--steps", 20, "--step-size", 0.2]
    assert "20 steps of HMC, step size 0.2" in command("sample", "runs/moons", "-n", 9, *options, "--out", "s.csv").out
    assert np.loadtxt("s.csv", delimiter=",").shape == (9, 2)


def test_samples_as_csv_begin_with_the_names_of_the_columns(here, command, monkeypatch):
    command("train", "moons", "--steps", 5, *SMALL_RUN)
    real = directory.load_run

    def with_names(path):
        run = real(path)
        return SimpleNamespace(model=run.model, step=run.step, names=("height, in m", "weight"))

    monkeypatch.setattr(directory, "load_run", with_names)
    assert command("sample", "runs/moons", "-n", 9, "--steps", 5, "--out", "s.csv").code == 0
    table = load_table("s.csv", "x")
    assert table.names == ("height, in m", "weight") and table.array.shape == (9, 2)


def test_a_damaged_or_foreign_checkpoint_is_not_loaded(here, command):
    command("train", "moons", "--steps", 5, *SMALL_RUN)
    record = read_sealed((here / "runs/moons/run.json").read_bytes())
    record["settings"]["width"] = 9
    (here / "runs/moons/run.json").write_bytes(sealed_json(record))
    done = command("sample", "runs/moons", "--out", "a.npy")
    assert done.code == 2 and "the checkpoint in runs/moons belongs to another model than its run.json" in done.err
    for path in here.glob("runs/moons/checkpoints/*.safetensors"):
        path.write_bytes(b"damaged")
    done = command("sample", "runs/moons", "--out", "a.npy")
    assert done.code == 2 and "this checkpoint is damaged" in done.err and not (here / "a.npy").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("sample nowhere --out a.npy", "run: there is no directory nowhere"),
        ("sample . --out a.npy", "run: . holds no run of steinscope train: there is no run.json in it"),
        ("sample other --out a.npy", "run: other/run.json does not describe a run of steinscope train"),
        ("sample new --out a.npy", "run: new has no checkpoint yet; let steinscope train run longer"),
        ("sample other", "parameter --out requires an argument"),
        ("sample other --out a.txt", "out: expected a name that ends in .npy or .csv, got a.txt"),
        ("sample other -n 0 --out a.npy", "n: expected a whole number from 1 to 100000000, got 0"),
    ],
)
def test_bad_input_is_one_line(runs, command, arguments, message):
    before = set(runs.rglob("*"))
    assert_one_line(command(*arguments.split()), message)
    assert set(runs.rglob("*")) == before
