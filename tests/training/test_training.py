import inspect
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from steinscope import InputError, NonFiniteError
from steinscope.critics import MLP
from steinscope.models import RBM, Gaussian
from steinscope.objectives import (
    ConditionalNoiseContrast,
    ContrastiveDivergence,
    DenoisingScoreMatching,
    LearnedStein,
    MaximumLikelihood,
    NoiseContrast,
    ScoreMatching,
    TrainingObjective,
)
from steinscope.training import train
from steinscope.training.driver import OBJECTIVES

from helpers import generator

MEAN, COVARIANCE = torch.tensor([1.0, -0.5]), torch.tensor([[1.0, 0.4], [0.4, 0.8]])


def truth():
    return Gaussian(MEAN, COVARIANCE)


def points(n=4000, seed=0):
    return truth().sample(n, seed=seed)


# Denoising and Langevin chains have a known bias, which these settings keep below the tolerance.
SETTINGS = {
    "lsd": lambda: LearnedStein(MLP(2, width=32), critic_steps=2),
    "lsd, plain critic": lambda: LearnedStein(MLP(2, width=32), critic_steps=2, precondition=False),
    "score matching": ScoreMatching,
    "sliced score matching": lambda: ScoreMatching("sliced", probes=4, noise="rademacher"),
    "denoising": lambda: DenoisingScoreMatching(0.3),
    "nce": lambda: NoiseContrast(ratio=2),
    "cnce": ConditionalNoiseContrast,
    "likelihood": MaximumLikelihood,
    "contrastive divergence": lambda: ContrastiveDivergence(steps=5, epsilon=0.01),
    "short chains from noise": lambda: ContrastiveDivergence(steps=25, epsilon=0.1, start="noise"),
    "persistent chains": lambda: ContrastiveDivergence(steps=5, epsilon=0.02, start="persistent", chains=2000),
}


@pytest.mark.parametrize("start", ["truth", "elsewhere"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_truth_is_where_training_ends(name, start):
    """With 4000 points the estimates have standard errors near .03; the tolerance is .15."""
    model = truth() if start == "truth" else Gaussian(torch.zeros(2), std=1.5)
    result = train(
        model, points(), objective=SETTINGS[name](), steps=700, batch_size=256, lr=0.02, lr_decay=True, seed=1
    )
    assert result.model is model and isinstance(result.objective, TrainingObjective)
    assert (model.mean.detach() - MEAN).abs().max() < 0.15
    assert (model.covariance.detach() - COVARIANCE).abs().max() < 0.15


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_trains(name):
    model = Gaussian(torch.zeros(2), std=1.5)
    before = model.mean.detach().clone()
    result = train(model, points(500), objective=name, steps=3, batch_size=50)
    assert not torch.equal(model.mean, before) and result.state.step == 3
    assert list(result.history.step) == [3] and "after 3 steps" in str(result)


def runs(model, **options):
    settings = {"steps": 12, "batch_size": 32, "seed": 3, "log_every": 5, "average": 0.9, **options}
    return train(model, points(200), **settings)


def bits(result):
    parts = [result.state.model, result.state.auxiliary or {}, result.state.average or {}]
    return [value.numpy().tobytes() for part in parts for value in part.values()]


@pytest.mark.parametrize("objective", ["lsd", "nce", "sliced-score-matching", "contrastive-divergence"])
def test_a_seed_fixes_every_bit_and_the_global_state_is_left_alone(objective):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = runs(Gaussian(torch.zeros(2)), objective=objective)
    assert torch.equal(torch.rand(3), expected)
    assert bits(first) == bits(runs(Gaussian(torch.zeros(2)), objective=objective))
    assert bits(first) != bits(runs(Gaussian(torch.zeros(2)), objective=objective, seed=4))


@pytest.mark.parametrize("through", ["state", "checkpoint"])
@pytest.mark.parametrize(
    "objective",
    ["lsd", "nce", "sliced-score-matching", lambda: ContrastiveDivergence(start="persistent", chains=64, steps=2)],
)
def test_going_on_gives_the_same_bits(objective, through, tmp_path):
    make = objective if callable(objective) else lambda: objective
    whole = runs(Gaussian(torch.zeros(2)), objective=make())
    model = Gaussian(torch.zeros(2))
    if through == "state":
        half = runs(model, objective=make(), steps=5)
        rest = runs(Gaussian(torch.ones(2)), objective=make(), start=half.state)
    else:
        runs(model, objective=make(), steps=5, checkpoint=tmp_path)
        rest = runs(Gaussian(torch.ones(2)), objective=make(), checkpoint=tmp_path)
    assert bits(rest) == bits(whole)
    assert np.array_equal(rest.history.step, whole.history.step)
    assert np.array_equal(rest.history.model_loss, whole.history.model_loss)


KILLED = """
import os, random, signal, sys, time, torch
from steinscope.training.checkpoint import newest_step
from steinscope.critics import MLP
from steinscope.models import RBM
from steinscope.objectives import LearnedStein
from steinscope.training import train

torch.set_num_threads(1)
directory, kills = sys.argv[1], int(sys.argv[2])
x = RBM.random(6, 3, seed=1).sample(300)

def run():
    train(RBM.random(6, 3, seed=2), x, objective=LearnedStein(MLP(6, width=16), critic_steps=2), steps=150,
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


def test_a_run_killed_twenty_times_ends_with_the_same_bits(tmp_path):
    """Every step is saved, so that many of the kills come while a checkpoint is being written."""
    for name, kills in {"killed": 20, "whole": 0}.items():
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name), str(kills)], check=True, timeout=300)
    for suffix in ("json", "safetensors"):
        assert len({(tmp_path / name / f"step-000000150.{suffix}").read_bytes() for name in ("killed", "whole")}) == 1


MEMORY = """
import gc, resource, torch
from steinscope.critics import MLP
from steinscope.models import EBM
from steinscope.objectives import LearnedStein
from steinscope.training import train

def tensors():
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

def watch(step, model, row):
    gc.collect()
    seen.append((tensors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))

seen = []
objective = LearnedStein(MLP(5, width=16), critic_steps=1)
train(EBM.perceptron(5, width=16), torch.randn(500, 5), objective=objective, steps=1200, batch_size=250, average=0.9,
      noise=0.1, log_every=200, callbacks=[watch])
print(*(number for row in seen for number in row))
"""


def test_memory_does_not_grow_over_a_thousand_steps():
    done = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True, timeout=300)
    seen = np.array(done.stdout.split(), dtype=int).reshape(6, 2)
    assert (seen[1:, 0] == seen[1, 0]).all()
    # The batches of 800 steps alone, 250 by 5 numbers twice a step, would be 8 MiB.
    assert seen[-1, 1] - seen[1, 1] < 4 * 1024


def test_noise_falls_to_zero():
    seen = {}

    class Look(MaximumLikelihood):
        def model_loss(self, model, x, generator):
            seen[len(seen)] = float(x.std())
            return super().model_loss(model, x, generator)

    train(Gaussian(torch.zeros(2)), torch.full((4000, 2), 3.0), objective=Look(), steps=20, batch_size=2000, noise=2.0)
    # 4000 numbers: the relative standard error of a standard deviation is 1.1%.
    expected = [2.0 * max(0.0, 1 - step / 16) ** 2 for step in range(20)]
    assert list(seen.values()) == pytest.approx(expected, rel=0.05)
    assert seen[16] == seen[19] == 0.0


class Drawn(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


def test_arrays_memmaps_and_datasets_are_the_same_data(tmp_path):
    x = points(300)
    np.save(tmp_path / "x.npy", x.numpy())
    sources = [x, x.numpy(), np.load(tmp_path / "x.npy", mmap_mode="r"), TensorDataset(x, torch.zeros(300)), Drawn(x)]
    means = [train(Gaussian(torch.zeros(2)), source, steps=5, batch_size=40).model.mean for source in sources]
    assert all(torch.equal(mean, means[0]) for mean in means)


def test_each_pass_shows_every_point_once_in_a_new_order():
    seen = []

    class Spy(MaximumLikelihood):
        def model_loss(self, model, x, generator):
            seen.append(x.detach().clone())
            return super().model_loss(model, x, generator)

    x = points(40)
    train(Gaussian(torch.zeros(2)), x, objective=Spy(), steps=8, batch_size=10)
    first, second = torch.cat(seen[:4]), torch.cat(seen[4:])
    assert not torch.equal(first, second)
    for one_pass in (first, second):
        assert torch.equal(one_pass.sort(0).values, x.sort(0).values)


def test_a_function_draws_fresh_points():
    calls = []

    def draw(n, generator):
        calls.append(n)
        return MEAN + torch.randn(n, 2, generator=generator)

    result = train(Gaussian(torch.zeros(2)), draw, objective="likelihood", steps=400, batch_size=100, lr=0.02)
    assert calls[1:] == [100] * 400 and (result.model.mean - MEAN).abs().max() < 0.2


def test_the_average_follows_the_parameters():
    means, shown = [], []
    trained = Gaussian(torch.zeros(2))

    def look(step, model, row):
        means.append(trained.mean.detach().clone())
        shown.append(model.mean.detach())

    result = train(
        trained,
        points(100),
        steps=6,
        batch_size=50,
        average=0.3,
        log_every=1,
        objective="likelihood",
        callbacks=[look],
    )
    expected = torch.zeros(2)
    for step, (mean, average) in enumerate(zip(means, shown, strict=True), 1):
        share = max(1 - 0.3, 9 / (10 + step))
        expected = (1 - share) * expected + share * mean
        torch.testing.assert_close(average, expected)
    torch.testing.assert_close(result.averaged.mean.detach(), expected)
    assert torch.equal(result.model.mean, means[-1])


def test_images_need_no_flattening():
    class Shaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Gaussian(torch.zeros(4))

        def log_prob(self, x):
            return self.inner.log_prob(x.flatten(1))

    x = 1.0 + torch.randn(200, 2, 2, generator=generator(1))
    for objective in OBJECTIVES:
        model, flat = Shaped(), Gaussian(torch.zeros(4))
        train(model, x, objective=objective, steps=3, batch_size=50, lr=0.02)
        train(flat, x.flatten(1), objective=objective, steps=3, batch_size=50, lr=0.02)
        torch.testing.assert_close(model.inner.mean, flat.mean, atol=1e-4, rtol=1e-4, msg=objective)


class Exploding(nn.Module):
    """A loss that turns to NaN when its parameter passes 0.2, which it does after some steps."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))

    def log_prob(self, x):
        return -0.5 * (x - self.mean).square().sum(1) + 0.0 * torch.sqrt(0.2 - self.mean)


def test_a_run_that_turns_non_finite_stops_and_keeps_its_checkpoint(tmp_path):
    options = {"objective": "likelihood", "steps": 100, "batch_size": 20, "lr": 0.03, "log_every": 10}
    with pytest.raises(NonFiniteError, match=r"the model's \w+ turned non-finite at step \d+; .*no checkpoint"):
        train(Exploding(), 3.0 + points(100), **options)
    with pytest.raises(NonFiniteError, match=r"at step \d+; the last good checkpoint is step \d+ in ") as error:
        train(Exploding(), 3.0 + points(100), **options, checkpoint=tmp_path, checkpoint_every=2)
    words = str(error.value).split()
    numbers = [int(word.strip(";")) for before, word in itertools.pairwise(words) if before == "step"]
    assert 0 < numbers[1] <= numbers[0]


def test_history_and_figure():
    result = train(Gaussian(torch.zeros(2)), points(200), steps=10, batch_size=20, log_every=4)
    assert list(result.history.step) == [4, 8, 10] and set(result.history.to_dict()) == {
        "step",
        "model_loss",
        "auxiliary_loss",
        "gradient_norm",
    }
    assert np.isfinite(result.history.auxiliary_loss).all()
    without = train(Gaussian(torch.zeros(2)), points(200), steps=5, batch_size=20, objective="likelihood")
    assert math.isnan(without.history.auxiliary_loss[0])
    assert len(result.plot().axes) == 2 and len(without.plot().axes) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps: expected a whole number from 1 on, got 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number from 1 on, got 0"),
        ({"batch_size": 201}, "batch_size: expected at most the 200 points of x, got 201"),
        ({"lr": -1.0}, "lr: expected a positive number, got -1.0"),
        ({"average": 1.0}, "average: expected a number between 0 and 1, got 1.0"),
        ({"noise": 0.0}, "noise: expected a positive number, got 0.0"),
        ({"seed": -1}, r"seed: expected a whole number from 0 to 2\^63 - 1, got -1"),
        ({"objective": "magic"}, "objective: expected one of lsd, .*, got 'magic'"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(InputError, match=message):
        runs(Gaussian(torch.zeros(2)), **options)


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.zeros(0, 2), "x: expected at least one row"),
        (TensorDataset(torch.zeros(0, 2)), "x: expected at least one point, got an empty Dataset"),
        (torch.full((50, 2), math.nan), "x: row 0 holds nan"),
        (lambda n, generator: torch.zeros(3, 2), "x: the function was asked for .* points and returned 3"),
    ],
)
def test_bad_data(x, message):
    with pytest.raises(InputError, match=message):
        train(Gaussian(torch.zeros(2)), x, steps=1, batch_size=10)


def test_bad_models():
    bare = inspect.unwrap(train)
    with pytest.raises(InputError, match="model: expected a torch.nn.Module .*, got str"):
        bare("model", points(), steps=1)
    with pytest.raises(InputError, match=r"model: expected log_prob\(x\) or score\(x\), and Linear has neither"):
        train(nn.Linear(2, 2), points(), steps=1)
    with pytest.raises(InputError, match="model: it has no parameters to train"):
        train(truth().requires_grad_(False), points(), steps=1)


def test_checkpoints_of_something_else(tmp_path):
    runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path)
    with pytest.raises(InputError, match="checkpoint: .* holds a run at step 12; use resume=True"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, resume=False)
    with pytest.raises(InputError, match="lr: the run to resume was made with 0.001, got 0.01"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, lr=0.01)
    with pytest.raises(InputError, match="steps: expected at least the 12 that have been made, got 5"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, steps=5)
    with pytest.raises(InputError, match="checkpoint: it belongs to another model: weights is missing there"):
        train(RBM.random(2, 3), points(200), steps=12, batch_size=32, seed=3, average=0.9, checkpoint=tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path)
    assert files == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
