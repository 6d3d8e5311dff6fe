import subprocess
import sys

import pytest

from steinscope.support import progress
from steinscope.support.progress import progress_bar


def lines(capsys, show, seconds, monkeypatch):
    """What is written to a pipe by four steps of so many seconds each."""
    clock = iter(range(0, 10_000, seconds))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    now = next(clock)
    with progress_bar("training", 4, show) as advance:
        for step in range(1, 5):
            now = next(clock)
            advance(step, f"loss {step}")
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.splitlines()


@pytest.mark.parametrize("show", [None, False])
def test_a_pipe_is_silent_unless_lines_are_asked_for(capsys, monkeypatch, show):
    assert lines(capsys, show, 60, monkeypatch) == []


def test_long_work_writes_plain_lines_to_a_pipe(capsys, monkeypatch):
    assert lines(capsys, True, 6, monkeypatch) == ["training: 2 of 4, loss 2", "training: 4 of 4, loss 4"]


def test_short_work_is_silent(capsys, monkeypatch):
    assert lines(capsys, True, 2, monkeypatch) == []


FIRST_TRAINING = """
import random
import torch
from steinscope import train
from steinscope.models import Gaussian
random.seed(0)
before = random.getstate()
train(Gaussian(torch.zeros(2)), torch.arange(80.0).reshape(40, 2).sin(), steps=1, batch_size=20)
assert random.getstate() == before
"""


def test_the_first_training_of_a_process_leaves_the_random_state_of_python_alone():
    # rich draws a number when it is first imported, so that only the first call of a process can tell.
    subprocess.run([sys.executable, "-c", FIRST_TRAINING], check=True)
