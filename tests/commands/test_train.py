"""`steinscope train`."""

import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from steinscope.training.directory import load_run

from helpers import SMALL_RUN, assert_one_line


def checkpoint(path, step):
    return (path / "checkpoints" / f"step-{step:09d}.safetensors").read_bytes()


def test_a_run_on_a_data_set(here, command):
    done = command("train", "moons", "--steps", 20, *SMALL_RUN)
    assert done.code == 0 and "EBM after 20 steps" in done.out
    assert "steinscope sample runs/moons -n 1000 --out samples.npy" in done.out
    html = (here / "runs/moons/report.html").read_text()
    assert "trained on moons by lsd" in html and html.count("<svg") == 7
    run = load_run("runs/moons")
    assert run.step == 20 and run.shape == (2,) and run.model.net.layers[0].out_features == 8


def test_a_run_on_an_array_is_a_model_for_the_other_commands(here, command):
    x = np.random.default_rng(0).standard_normal((200, 3)) * [1, 2, 3] + 1
    np.save("points.npy", x)
    options = ["--model", "gaussian", "--steps", 150, "--lr", 0.03, "--objective", "score-matching"]
    assert command("train", "points.npy", *options, "--quiet").out == ""
    model = load_run("runs/points").model
    np.testing.assert_allclose(model.mean.detach(), x.mean(0), atol=0.3)
    done = command("test", "points.npy", "--model", "runs/points", "--json")
    assert json.loads(done.out)["rejected"] is False
    done = command("compare", "points.npy", "--model", "runs/points", "--folds", 0, "--steps", 5)
    assert " points " in done.out
    np.save("other.npy", x[:, :2])
    message = r"model: runs/points was trained on points of shape \(3,\), those of x are \(2,\)"
    assert re.search(message, command("test", "other.npy", "--model", "runs/points").err)


def test_the_report_of_a_run_names_the_columns_of_its_file(here, command):
    rows = np.random.default_rng(0).standard_normal((100, 3))
    np.savetxt("points.csv", rows, delimiter=",", header="age,income,height", comments="")
    assert command("train", "points.csv", "--steps", 5, *SMALL_RUN).code == 0
    html = (here / "runs/points/report.html").read_text()
    assert "income" in html and "x[1]" not in html


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_same_bits(here):
    """Killed without warning after some checkpoint, and started again by the same command."""
    options = "train moons --steps 3000 --checkpoint-every 20 --average 0.9 --no-lr-decay --quiet".split() + SMALL_RUN
    arguments = [sys.executable, "-m", "steinscope", *options]
    killed = subprocess.Popen([*arguments, "--out", "killed"])
    deadline = time.monotonic() + 120
    while not list(here.glob("killed/checkpoints/step-*.json")):
        assert time.monotonic() < deadline and killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    step = load_run("killed").step
    assert 20 <= step < 3000
    # Both go on to a step a little later: the whole 3000 need not be made.
    last = str(step + 30)
    for out in ("killed", "whole"):
        options[options.index("--steps") + 1] = last
        subprocess.run([sys.executable, "-m", "steinscope", *options, "--out", out], check=True)
    assert checkpoint(here / "killed", int(last)) == checkpoint(here / "whole", int(last))


def torchrun(*arguments):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "steinscope"]
    return subprocess.run([*start, *arguments], capture_output=True, text=True, timeout=180)


@pytest.mark.slow
def test_two_processes_make_the_run_that_one_makes(here, command):
    options = ["train", "moons", "--steps", "10", *SMALL_RUN, "--average", "0.9", "--noise", "0.3", "--out"]
    one, two = command(*options, "one"), torchrun(*options, "two")
    assert two.returncode == 0, two.stderr
    # Only the first process prints.
    assert two.stdout == one.out.replace("one", "two")
    files = [{path.relative_to(name) for path in (here / name).rglob("*")} for name in (here / "one", here / "two")]
    assert files[0] == files[1] and len(files[0]) == 5
    assert (here / "one/run.json").read_bytes() == (here / "two/run.json").read_bytes()
    last = "checkpoints/step-000000010.safetensors"
    first, second = load_file(here / "one" / last), load_file(here / "two" / last)
    assert set(first) == set(second)
    # The last bias is a constant of the energy. It changes no density, and its gradient is nothing but rounding.
    constant = "net.layers.2.bias"
    assert sum(key.endswith(constant) for key in first) == 3
    for key in first:
        if not key.endswith(constant):
            torch.testing.assert_close(first[key], second[key], atol=1e-5, rtol=1e-5, msg=key)


@pytest.mark.slow
def test_an_error_of_two_processes_is_said_once(here):
    done = torchrun("train", "moons", "--batch-size", "15")
    assert done.returncode != 0 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("steinscope: ")]
    assert said == ["steinscope: batch_size: expected a multiple of the 2 processes, got 15"]
    assert not list(here.iterdir())


def test_a_process_that_fails_alone_says_so(here, command, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("steinscope.cli._PATIENCE_SECONDS", 0.0)
    assert "steinscope: data: there is no file nothing.npy" in command("train", "nothing.npy").err


def test_settings_come_from_a_file_and_options_take_precedence(here, command):
    (here / "run.toml").write_text('data = "rings"\nsteps = 10\nlr = 1\nwidth = 8\nlr_decay = true\naverage = 0.5\n')
    assert command("train", "--config", "run.toml", "--lr", 0.01, "--out", "run").code == 0
    settings = load_run("run").settings
    assert (settings.data, settings.steps, settings.lr, settings.lr_decay) == ("rings", 10, 0.01, True)
    saved = json.loads((here / "run/run.json").read_text())
    assert saved["settings"]["width"] == 8 and saved["shape"] == [2]


def test_a_run_is_not_mixed_with_another(here, command):
    np.save("x.npy", np.random.default_rng(0).standard_normal((100, 2)))
    base = ["train", "x.npy", *SMALL_RUN, "--no-lr-decay", "--out", "run"]
    assert command(*base, "--steps", 5).code == 0
    other = command(*base, "--steps", 10, "--lr", 0.5)
    assert (
        other.code == 2
        and "lr: the run in run was made with the default, got 0.5; use the same settings or" in other.err
    )
    assert "steps: expected at least the 5 that have been made, got 3" in command(*base, "--steps", 3).err
    np.save("x.npy", np.random.default_rng(1).standard_normal((100, 2)))
    assert (
        "data: the run in run/checkpoints was made with other points of shape (100, 2)"
        in command(*base, "--steps", 10).err
    )


def test_settings_that_failed_at_once_can_be_mended(here, command):
    base = ["train", "moons", *SMALL_RUN, "--steps", 5]
    assert command(*base, "--objective", "deep").code == 2
    assert command(*base, "--objective", "nce").code == 0


def test_a_run_that_fails_at_once_leaves_nothing(here, command):
    done = command("train", "moons", *SMALL_RUN, "--steps", 5, "--lr", 1e30)
    assert done.code == 1 and "turned non-finite at step" in done.err and not list(here.iterdir())


def test_a_disk_that_is_full_is_one_line(here, command, monkeypatch):
    def fail(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("steinscope.training.checkpoint.write_file", fail)
    done = command("train", "moons", *SMALL_RUN, "--steps", 5, "--out", "run")
    expected = "steinscope: run/checkpoints/step-000000005.safetensors: No space left on device"
    assert done.code == 1 and done.err.splitlines() == [expected]


@pytest.mark.slow
def test_a_warning_is_one_line(here):
    """In a process of its own, because warnings are errors in this one."""
    arguments = [sys.executable, "-m", "steinscope", "train", "moons", *SMALL_RUN, "--checkpoint-every", "5", "--quiet"]
    subprocess.run([*arguments, "--steps", "10"], check=True)
    (here / "runs/moons/checkpoints/step-000000010.safetensors").write_bytes(b"damaged")
    done = subprocess.run([*arguments, "--steps", "10"], check=True, capture_output=True, text=True)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("steinscope: warning: runs/moons/checkpoints/step-000000010.json: this checkpoint is")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("train", "data: expected the name of a data set .* or a file, got none"),
        ("train mooons", "data: expected one of swissroll.* got 'mooons'; did you mean 'moons'?"),
        ("train nothing.npy", "data: there is no file nothing.npy"),
        ("train broken.npy", "data: row 1 holds nan"),
        ("train moons --config nothing.toml", "config: there is no file nothing.toml"),
        ("train moons --out broken.npy", "out: broken.npy is a file, expected a directory"),
        ("train moons --config new", "config: new is a directory, expected a TOML file"),
        ("train moons --out broken.npy/run", "out: broken.npy is a file, expected a directory"),
        ("train moons --steps 99999999999", "steps: expected a whole number from 1 to 1000000000, got 99999999999"),
        ("train moons --steps 0", "steps: expected a whole number from 1 to 1000000000, got 0"),
        ("train moons --width 0", "width: expected a whole number from 1 to 8192, got 0"),
        ("train moons --width 1000000000", "width: expected a whole number from 1 to 8192, got 1000000000"),
        ("train moons --depth 1000", "depth: expected a whole number from 1 to 64, got 1000"),
        ("train moons --batch-size 2000000000", "batch_size: expected a whole number from 1 to 1048576, got 2000"),
        ("train numbers.csv", "data: the first line of numbers.csv, 0,1, can be names .* --header or --no-header"),
        ("train moons --weight-decay -1", "weight_decay: expected a number from 0 on, got -1"),
        ("train moons --batch-size 0", "batch_size: expected a whole number from 1 on, got 0"),
        ("train moons --objective deep", "objective: expected one of lsd, .* got 'deep'"),
        ("train moons --objective likelihood", "objective: likelihood is for normalised models, and an EBM is not"),
        ("train images.npy --model gaussian", r"model: gaussian takes points that are vectors, got .* \(2, 2\)"),
        ("train moons --out other", "out: other/run.json does not describe a run of steinscope train"),
    ],
)
def test_bad_input_is_one_line(runs, command, arguments, message):
    before = set(runs.rglob("*"))
    assert_one_line(command(*arguments.split()), message)
    assert set(runs.rglob("*")) == before


@pytest.mark.slow
def test_a_run_on_a_support(here, command):
    np.save("waits.npy", np.random.default_rng(0).exponential(size=(300, 2)).astype(np.float32))
    assert command("train", "waits.npy", "--support", "positive", "--steps", 20, *SMALL_RUN).code == 0
    assert load_run("runs/waits").model.support == "positive"
    tested = command("test", "waits.npy", "--model", "runs/waits", "--critics", "mean")
    assert "unconstrained coordinates (log x)" in tested.out
    assert command("sample", "runs/waits", "-n", 50, "--steps", 5, "--out", "samples.npy").code == 0
    assert np.load("samples.npy").min() > 0
    assert_one_line(command("train", "waits.npy", "--support", "unit", "--steps", 30, *SMALL_RUN), "support: ")
    other = command("train", "waits.npy", "--support", "positive", "--model", "gaussian", "--out", "runs/other")
    assert_one_line(other, "support: only an EBM can have one")
