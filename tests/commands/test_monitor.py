"""`steinscope monitor`."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from steinscope.commands.rows import arriving_rows
from steinscope.errors import InputError

from helpers import assert_one_line


@pytest.fixture
def stream(arrays, here):
    """Points that fit, and then do not."""
    x = np.random.default_rng(0).standard_normal((600, 3))
    x[300:] += 0.7
    np.savetxt(here / "x.csv", x, delimiter=",", header="a,b,c", comments="")
    return x


MODEL = ("--model", "standard_models:normal")


def test_one_line_for_each_batch(stream, command):
    done = command("monitor", *MODEL, "x.csv", "--batch", "200")
    lines = done.out.splitlines()
    assert done.code == 0 and len(lines) == 3
    assert lines[0].startswith("200 points: p = ") and lines[0].endswith("no misfit was found at level 0.05")
    assert "the model was rejected at point" in lines[2]


def test_it_stops_at_a_rejection_if_asked(stream, command, here):
    done = command("monitor", *MODEL, "x.csv", "--batch", "100", "--json", "--fail-on-reject")
    states = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1 and [state["rejected"] for state in states] == [False] * (len(states) - 1) + [True]
    assert 300 < states[-1]["rejected_at"] <= states[-1]["n"] < 600
    np.save("good.npy", stream[:300])
    done = command("monitor", *MODEL, "good.npy", "--fail-on-reject", "--quiet")
    assert done.code == 0 and done.out == done.err == ""


def test_rows_of_the_standard_input(stream, command, monkeypatch, here):
    np.savetxt(here / "rows.txt", stream)
    with (here / "rows.txt").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        done = command("monitor", *MODEL, "-", "--batch", "250")
    assert [line.split()[0] for line in done.out.splitlines()] == ["250", "500", "600"]


def test_rows_with_scores(stream, command):
    np.save("scored.npy", np.concatenate([stream, -stream], 1))
    done = command("monitor", "--scored", "scored.npy", "--batch", "600", "--json")
    state = json.loads(done.out)
    assert state["rejected"] and not state["is_exact"]


def test_a_saved_test_goes_on(stream, command, here):
    whole = command("monitor", *MODEL, "x.csv", "--json").out.splitlines()
    lines = (here / "x.csv").read_text().splitlines()
    (here / "grows.csv").write_text("\n".join(lines[:301]) + "\n")
    first = command("monitor", *MODEL, "grows.csv", "--json", "--state", "kept").out.splitlines()
    (here / "grows.csv").write_text("\n".join(lines) + "\n")
    second = command("monitor", *MODEL, "grows.csv", "--json", "--state", "kept").out.splitlines()
    assert first + second == whole and len(first) == len(second) == 3
    # Nothing new: the test is rejected still.
    done = command("monitor", *MODEL, "grows.csv", "--state", "kept", "--fail-on-reject")
    assert done.code == 1 and done.out == done.err == ""
    for option, value, problem in (
        ("--alpha", "0.01", "alpha: the test in kept was made with 0.05, got 0.01"),
        ("--seed", "3", "seed: the test in kept was made with 0, got 3"),
        ("--critics", "mean", "critics: the test in kept was made with mean, linear, additive, kernel, got mean"),
    ):
        assert_one_line(command("monitor", *MODEL, "x.csv", "--state", "kept", option, value), problem)
    # Another file of the same name.
    (here / "grows.csv").write_text("\n".join(lines[:301]) + "\n")
    problem = "x: grows.csv has 300 rows, and the test has seen 600 of it: it is another file now"
    assert_one_line(command("monitor", *MODEL, "grows.csv", "--state", "kept"), problem)


def test_rows_of_the_standard_input_are_always_new(stream, command, monkeypatch, here):
    ends = []
    for part in (stream[:300], stream[300:]):
        np.savetxt(here / "rows.txt", part)
        with (here / "rows.txt").open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            ends.append(command("monitor", *MODEL, "-", "--state", "kept", "--batch", "300").out)
    assert ends[0].startswith("300 points: ") and ends[1].startswith("600 points: ") and "was rejected" in ends[1]


def test_a_file_that_grows_is_followed(stream, here):
    """Lines that are added, the last one in two parts, are a batch as soon as it is full."""
    lines = (here / "x.csv").read_text().splitlines(keepends=True)
    (here / "grows.csv").write_text("".join(lines[:150]) + lines[150][:5])
    command = [sys.executable, "-m", "steinscope", "monitor", *MODEL, "grows.csv", "--follow", "--interval", "0.05"]
    with subprocess.Popen([*command, "--fail-on-reject"], cwd=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("100 points: ")
        with (here / "grows.csv").open("a") as file:
            file.write(lines[150][5:] + "".join(lines[151:]))
        rest = process.stdout.read().splitlines()
        assert process.wait() == 1
    assert rest[0].startswith("200 points: ") and "was rejected" in rest[-1]


def test_a_test_that_waits_can_be_stopped(stream, here):
    command = [sys.executable, "-m", "steinscope", "monitor", *MODEL, "x.csv", "--follow", "--batch", "600"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        cwd=here,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background has them ignore the signal, and so their children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(b"600 points")
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=60)[1] == b"steinscope: stopped\n" and process.returncode == 130
        finally:
            process.kill()


def test_rows_are_waited_for(tmp_path, monkeypatch):
    """Two files that grow: each batch is of one of them, and unfinished lines wait."""
    paths = [tmp_path / name for name in ("a.csv", "b.csv")]
    for path in paths:
        path.write_text("1,2\n3,4\n5")
    added = iter(["", ",6\n7,8\n"])

    def wait(_):
        text = next(added)
        for path in paths:
            path.write_text(path.read_text() + text)

    monkeypatch.setattr(time, "sleep", wait)
    with closing(arriving_rows([str(path) for path in paths], 4, follow=True)) as batches:
        for path in paths:
            source, rows = next(batches)
            assert source == str(path) and rows.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_a_file_that_becomes_shorter_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    # The first look sees how long it is.
    added = iter(["1,2\n3,4\n5,6\n7,8\n", "1,2\n"])
    monkeypatch.setattr(time, "sleep", lambda _: path.write_text(next(added)))
    with (
        closing(arriving_rows([str(path)], 9, follow=True)) as batches,
        pytest.raises(InputError, match="a.csv has become shorter, expected a file that grows"),
    ):
        next(batches)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ([*MODEL, "names.csv"], "files: expected at least one point, got none in names.csv"),
        (["x.csv"], "model: give a model as --model NAME, or --scored"),
        ([*MODEL], "files: expected at least one file, or - for the standard input"),
        ([*MODEL, "nothing.csv"], "x: cannot read nothing.csv: No such file or directory"),
        ([*MODEL, "x.csv", "--batch", "0"], "batch: expected a whole number from 1 on, got 0"),
        ([*MODEL, "bad.csv"], "x: bad.csv, line 2, column 2 holds 'b', expected a number"),
        ([*MODEL, "short.csv"], "x: short.csv, line 2 has 2 columns, expected 3 as before"),
        ([*MODEL, "-", "x.csv"], "files: the standard input is read alone"),
        (["--model", "standard_models:nothing", "x.csv"], "model: standard_models has no 'nothing'"),
        (["--scored", "x.csv"], "scored: expected as many scores as coordinates in each row, got 3 columns"),
        ([*MODEL, "x.csv", "--state", "x.csv"], "state: x.csv is a file, expected a directory"),
        ([*MODEL, "x.csv", "--interval", "0"], "interval: expected a positive number, got 0"),
    ],
)
def test_what_cannot_be_used_is_one_line(stream, command, here, arguments, problem):
    (here / "bad.csv").write_text("1,2,3\n1,b,3\n")
    (here / "names.csv").write_text("a,b,c\n")
    (here / "short.csv").write_text("1,2,3\n1,3\n")
    assert_one_line(command("monitor", *arguments), problem)
