import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from steinscope import InputError
from steinscope.training.distributed import Processes

SCRIPT = """
import sys
import torch
from steinscope.models import Gaussian
from steinscope.critics import MLP
from steinscope.objectives import LearnedStein
from steinscope.objectives import ScoreMatching
from steinscope.objectives import NoiseContrast
from steinscope.training import train

torch.set_num_threads(1)
objective = {
    "lsd": lambda: LearnedStein(MLP(3, width=16), critic_steps=2),
    "lsd, estimated": lambda: LearnedStein(MLP(3, width=16, trace="hutchinson"), critic_steps=2),
    "sliced": lambda: ScoreMatching("sliced"),
    "nce": NoiseContrast,
}[sys.argv[1]]()
x = 1.0 + Gaussian(torch.zeros(3), std=0.7).sample(400)
result = train(Gaussian(torch.zeros(3)), x, objective=objective, steps=25, batch_size=40, lr=0.01,
               checkpoint=sys.argv[2], average=0.9, noise=0.3, seed=4)
# One write, so that the lines of two processes cannot mix.
print(f"{result.history.model_loss[-1]}\\n", end="")
"""


@pytest.mark.parametrize("objective", ["lsd", "lsd, estimated", "sliced", "nce"])
def test_two_processes_give_what_one_gives(objective, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    losses = []
    for name, command in {"one": [sys.executable], "two": start}.items():
        done = subprocess.run(
            [*command, str(script), objective, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
        )
        losses.append([float(line) for line in done.stdout.split()])
    assert len(losses[0]) == 1 and len(losses[1]) == 2
    assert losses[1] == pytest.approx([losses[0][0]] * 2, abs=1e-5)
    one, two = (load_file(tmp_path / name / "step-000000025.safetensors") for name in ("one", "two"))
    assert set(one) == set(two)
    for key in one:
        torch.testing.assert_close(one[key], two[key], atol=1e-5, rtol=1e-5, msg=key)


def test_batches_must_be_shared_evenly():
    with pytest.raises(InputError, match="batch_size: expected a multiple of the 3 processes, got 10"):
        Processes(0, 3).check_batch(10)
    rows = torch.arange(6)
    assert torch.equal(torch.cat([Processes(rank, 3).take_part(rows) for rank in range(3)]).sort().values, rows)
