"""`steinscope train` and `steinscope sample`."""

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

SMALL = ["--width", "8", "--batch-size", "16", "--log-every", "5"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkpoint(path, step):
    return (path / "checkpoints" / f"step-{step:09d}.safetensors").read_bytes()


def test_a_run_on_a_data_set(here, command):
    done = command("train", "moons", "--steps", 20, *SMALL)
    assert done.code == 0 and "EBM after 20 steps" in done.out
    assert "steinscope sample runs/moons -n 1000 --out samples.npy" in done.out
    html = (here / "runs/moons/report.html").read_text()
    assert "trained on moons by lsd" in html and html.count("<svg") == 5
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


def test_points_of_any_shape(here, command):
    np.save("line.npy", np.random.default_rng(0).standard_normal(100))
    np.save("images.npy", np.random.default_rng(0).standard_normal((100, 2, 2)))
    for name, shape in (("line", (1,)), ("images", (2, 2))):
        assert command("train", f"{name}.npy", "--steps", 10, *SMALL).code == 0
        assert command("sample", f"runs/{name}", "-n", 7, "--steps", 5, "--out", f"{name}-samples.npy").code == 0
        assert np.load(f"{name}-samples.npy").shape == (7, *shape)


def test_a_killed_run_goes_on_to_the_same_bits(here):
    """Killed without warning after some checkpoint, and started again by the same command."""
    options = ["train", "moons", "--steps", "3000", "--checkpoint-every", "20", "--average", "0.9", *SMALL, "--quiet"]
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


def test_two_processes_make_the_run_that_one_makes(here, command):
    options = ["train", "moons", "--steps", "10", *SMALL, "--average", "0.9", "--noise", "0.3", "--out"]
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
    for key in first:
        torch.testing.assert_close(first[key], second[key], atol=1e-5, rtol=1e-5, msg=key)


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


def test_settings_come_from_a_file_and_options_go_first(here, command):
    (here / "run.toml").write_text('data = "rings"\nsteps = 10\nlr = 1\nwidth = 8\nlr_decay = true\naverage = 0.5\n')
    assert command("train", "--config", "run.toml", "--lr", 0.01, "--out", "run").code == 0
    settings = load_run("run").settings
    assert (settings.data, settings.steps, settings.lr, settings.lr_decay) == ("rings", 10, 0.01, True)
    saved = json.loads((here / "run/run.json").read_text())
    assert saved["settings"]["width"] == 8 and saved["shape"] == [2]


def test_a_run_is_not_mixed_with_another(here, command):
    np.save("x.npy", np.random.default_rng(0).standard_normal((100, 2)))
    base = ["train", "x.npy", *SMALL, "--out", "run"]
    assert command(*base, "--steps", 5).code == 0
    other = command(*base, "--steps", 10, "--lr", 0.5)
    assert other.code == 2 and "lr: the run in run was made with 0.001, got 0.5; use the same settings or" in other.err
    assert "steps: expected at least the 5 that have been made, got 3" in command(*base, "--steps", 3).err
    np.save("x.npy", np.random.default_rng(1).standard_normal((100, 2)))
    assert "data: the points have changed since the run in run began" in command(*base, "--steps", 10).err


def test_settings_that_failed_at_once_can_be_mended(here, command):
    base = ["train", "moons", *SMALL, "--steps", 5]
    assert command(*base, "--objective", "deep").code == 2
    assert command(*base, "--objective", "nce").code == 0


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
    command("train", "moons", "--steps", 5, *SMALL)
    options = ["--sampler", "hmc", "--steps", 20, "--step-size", 0.2]
    assert "20 steps of HMC, step size 0.2" in command("sample", "runs/moons", "-n", 9, *options, "--out", "s.csv").out
    assert np.loadtxt("s.csv", delimiter=",").shape == (9, 2)


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
def test_a_wrong_file_is_one_line(here, command, toml, message):
    (here / "run.toml").write_bytes(toml.encode("latin-1"))
    done = command("train", "moons", "--config", "run.toml")
    assert done.code == 2 and len(done.err.splitlines()) == 1 and message in done.err
    assert not (here / "runs").exists()


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
        ("train moons --steps 0", "steps: expected a whole number from 1 on, got 0"),
        ("train moons --width 0", "width: expected a whole number from 1 on, got 0"),
        ("train moons --weight-decay -1", "weight_decay: expected a number from 0 on, got -1"),
        ("train moons --batch-size 0", "batch_size: expected a whole number from 1 on, got 0"),
        ("train moons --objective deep", "objective: expected one of lsd, .* got 'deep'"),
        ("train moons --objective likelihood", "objective: likelihood is for normalised models, and an EBM is not"),
        ("train images.npy --model gaussian", r"model: gaussian takes points that are vectors, got .* \(2, 2\)"),
        ("train moons --out other", "out: other/run.json does not describe a run of steinscope train"),
        ("sample nowhere --out a.npy", "run: there is no directory nowhere"),
        ("sample . --out a.npy", "run: . holds no run of steinscope train: there is no run.json in it"),
        ("sample other --out a.npy", "run: other/run.json does not describe a run of steinscope train"),
        ("sample new --out a.npy", "run: new has no checkpoint yet; let steinscope train run longer"),
        ("sample other", "parameter --out requires an argument"),
        ("sample other --out a.txt", "out: expected a name that ends in .npy or .csv, got a.txt"),
        ("sample other -n 0 --out a.npy", "n: expected a whole number from 1 on, got 0"),
    ],
)
def test_bad_input_is_one_line(here, command, arguments, message):
    np.save("broken.npy", [[1.0], [np.nan]])
    np.save("images.npy", np.ones((100, 2, 2)))
    for name, content in (("other", "{}"), ("new", '{"settings": {"data": "moons"}, "shape": [2]}')):
        (here / name).mkdir()
        (here / name / "run.json").write_text(content)
    before = set(here.rglob("*"))
    done = command(*arguments.split())
    assert done.code == 2 and done.out == "" and len(done.err.splitlines()) == 1
    assert re.search(message, done.err), done.err
    assert set(here.rglob("*")) == before


def test_a_run_that_fails_at_once_leaves_nothing(here, command):
    done = command("train", "moons", *SMALL, "--steps", 5, "--lr", 1e30)
    assert done.code == 1 and "turned non-finite at step" in done.err and not list(here.iterdir())


def test_a_disk_that_is_full_is_one_line(here, command, monkeypatch):
    def fail(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("steinscope.training.checkpoint.write_file", fail)
    done = command("train", "moons", *SMALL, "--steps", 5, "--out", "run")
    expected = "steinscope: run/checkpoints/step-000000005.safetensors: No space left on device"
    assert done.code == 1 and done.err.splitlines() == [expected]


def test_a_warning_is_one_line(here):
    """In a process of its own, because warnings are errors in this one."""
    arguments = [sys.executable, "-m", "steinscope", "train", "moons", *SMALL, "--checkpoint-every", "5", "--quiet"]
    subprocess.run([*arguments, "--steps", "10"], check=True)
    (here / "runs/moons/checkpoints/step-000000010.safetensors").write_bytes(b"damaged")
    done = subprocess.run([*arguments, "--steps", "10"], check=True, capture_output=True, text=True)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("steinscope: warning: runs/moons/checkpoints/step-000000010.json: this checkpoint is")


def test_a_damaged_or_foreign_checkpoint_is_not_loaded(here, command):
    command("train", "moons", "--steps", 5, *SMALL)
    record = json.loads((here / "runs/moons/run.json").read_text())
    record["settings"]["width"] = 9
    (here / "runs/moons/run.json").write_text(json.dumps(record))
    done = command("sample", "runs/moons", "--out", "a.npy")
    assert done.code == 2 and "the checkpoint in runs/moons belongs to another model than its run.json" in done.err
    for path in here.glob("runs/moons/checkpoints/*.safetensors"):
        path.write_bytes(b"damaged")
    done = command("sample", "runs/moons", "--out", "a.npy")
    assert done.code == 2 and "this checkpoint is damaged" in done.err and not (here / "a.npy").exists()
