"""A run that is killed again and again ends with the same bits as one that is not."""

import subprocess
import sys

import pytest

from helpers import CAMPAIGN

KILLS = 100 if CAMPAIGN == "soak" else 20

SCRIPT = """
import os, random, signal, sys, time, torch
from steinscope.training.checkpoint import newest_step
from steinscope.critics import MLP
from steinscope.models import RBM
from steinscope.objectives import LearnedStein
from steinscope.training import train

torch.set_num_threads(1)
directory, kills, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = RBM.random(6, 3, seed=1).sample(300)

def run():
    train(RBM.random(6, 3, seed=2), x, objective=LearnedStein(MLP(6, width=16), critic_steps=2), steps=steps,
          batch_size=50, checkpoint=directory, checkpoint_every=1, log_every=1, seed=9, average=0.95, noise=0.5)

import torch._dynamo  # optimisers import it at their first step; here once for all children
chance = random.Random(5)
for _ in range(kills):
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    goal = (newest_step(directory) or 0) + chance.randint(1, 3)
    while (newest_step(directory) or 0) < goal:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.005))
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
run()
"""


@pytest.mark.slow
def test_a_run_killed_many_times_ends_with_the_same_bits(tmp_path):
    """Every step is saved, so that many of the kills come while a checkpoint is being written."""
    steps = 8 * KILLS if CAMPAIGN == "soak" else 150
    for name, kills in {"killed": KILLS, "whole": 0}.items():
        arguments = [str(tmp_path / name), str(kills), str(steps)]
        subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, timeout=30 * KILLS)
    names = ("killed", "whole")
    killed, whole = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in names)
    # The same bits, and nothing that a killed process has left.
    assert killed == whole and len(whole) == 4
