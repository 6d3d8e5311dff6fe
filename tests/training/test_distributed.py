import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from steinscope import InputError
from steinscope.training.distributed import Processes

SCRIPT = """
import os
import sys
import torch
from steinscope.models import Gaussian
from steinscope.critics import MLP
from steinscope.objectives import LearnedStein, NoiseContrast, ScoreMatching
from steinscope.training import train
from steinscope.training.distributed import processes

torch.set_num_threads(1)

def network():
    # As by default, each process has other random numbers, and so a critic of its own to begin with.
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.SiLU(), torch.nn.Linear(16, 3))

objectives = {
    "lsd": lambda: LearnedStein(MLP(3, width=16), critic_steps=2),
    "estimated": lambda: LearnedStein(MLP(3, width=16, trace="hutchinson"), critic_steps=2),
    "network": lambda: LearnedStein(network(), critic_steps=2),
    "sliced": lambda: ScoreMatching("sliced"),
    "nce": NoiseContrast,
}
x = 1.0 + Gaussian(torch.zeros(3), std=0.7).sample(400)

def run(name):
    result = train(Gaussian(torch.zeros(3)), x, objective=objectives[name](), steps=25, batch_size=40, lr=0.01,
                   checkpoint=f"{sys.argv[1]}/{name}", average=0.9, noise=0.3, seed=4)
    # One write, so that the lines of two processes cannot mix.
    print(f"{name} {result.history.model_loss[-1]}\\n", end="", flush=True)

# Some runs share a group of processes, others make their own, one after the other.
with processes():
    run("lsd")
    run("estimated")
run("network")
run("sliced")
run("nce")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All objectives trained by one process and by two: the directory, and the last losses."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "script.py").write_text(SCRIPT)
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    losses = {}
    for count, command in {"one": [sys.executable], "two": two}.items():
        done = subprocess.run(
            [*command, str(folder / "script.py"), str(folder / count)],
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        )
        for line in done.stdout.splitlines():
            name, loss = line.split()
            losses.setdefault((count, name), []).append(float(loss))
    return folder, losses


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["lsd", "estimated", "network", "sliced", "nce"])
def test_two_processes_give_what_one_gives(objective, runs):
    folder, losses = runs
    assert len(losses["one", objective]) == 1
    assert losses["two", objective] == pytest.approx(losses["one", objective] * 2, abs=1e-5)
    last = f"{objective}/step-000000025.safetensors"
    one, two = (load_file(folder / count / last) for count in ("one", "two"))
    assert set(one) == set(two)
    for key in one:
        torch.testing.assert_close(one[key], two[key], atol=1e-5, rtol=1e-5, msg=key)


def test_batches_must_be_shared_evenly():
    with pytest.raises(InputError, match="batch_size: expected a multiple of the 3 processes, got 10"):
        Processes(0, 3).check_batch(10)
    rows = torch.arange(6)
    assert torch.equal(torch.cat([Processes(rank, 3).take_part(rows) for rank in range(3)]).sort().values, rows)
