import functools
import inspect
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from steinscope import InputError, from_energy
from steinscope.critics import MLP
from steinscope.models import EBM, RBM, Gaussian
from steinscope.objectives import ContrastiveDivergence, LearnedStein, MaximumLikelihood
from steinscope.registries import OBJECTIVES
from steinscope.training import train

from helpers import gaussian_points, network


def runs(model, **options):
    settings = {"steps": 12, "batch_size": 32, "seed": 3, "log_every": 5, "average": 0.9, **options}
    return train(model, gaussian_points(200), **settings)


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


def test_a_history_without_an_auxiliary_loss_is_json():
    result = runs(Gaussian(torch.zeros(2)), objective="score-matching")
    saved = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert set(saved["history"]["auxiliary_loss"]) == {None} and None not in saved["history"]["model_loss"]


@pytest.mark.parametrize("through", ["state", "checkpoint"])
@pytest.mark.parametrize(
    "objective",
    ["lsd", "nce", "sliced-score-matching", lambda: ContrastiveDivergence(start="persistent", chains=64, steps=2)],
)
def test_going_on_gives_the_same_bits(objective, through, tmp_path):
    make = objective if callable(objective) else lambda: objective
    options = {"lr_decay": False, "log_every": 4}
    whole = runs(Gaussian(torch.zeros(2)), objective=make(), **options)
    model = Gaussian(torch.zeros(2))
    if through == "state":
        half = runs(model, objective=make(), steps=4, **options)
        rest = runs(Gaussian(torch.ones(2)), objective=make(), start=half.state, **options)
    else:
        runs(model, objective=make(), steps=4, checkpoint=tmp_path, **options)
        rest = runs(Gaussian(torch.ones(2)), objective=make(), checkpoint=tmp_path, **options)
    assert bits(rest) == bits(whole)
    assert np.array_equal(rest.history.step, whole.history.step)
    assert np.array_equal(rest.history.model_loss, whole.history.model_loss)


MEMORY = """
import gc, resource, torch
from steinscope.critics import MLP
from steinscope.models import EBM
from steinscope.objectives import LearnedStein
from steinscope.registries import OBJECTIVES
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


@pytest.mark.slow
def test_memory_does_not_grow_over_a_thousand_steps():
    done = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True, timeout=300)
    seen = np.array(done.stdout.split(), dtype=int).reshape(6, 2)
    assert (seen[1:, 0] == seen[1, 0]).all()
    # The batches of 800 steps alone, 250 by 5 numbers twice a step, would be 8 MiB.
    assert seen[-1, 1] - seen[1, 1] < 4 * 1024


class Gammas(nn.Module):
    """Independent gammas, by their log-density."""

    support = "positive"

    def __init__(self):
        super().__init__()
        self.logs = nn.Parameter(torch.zeros(2, 2))

    def log_prob(self, x):
        shape, rate = self.logs.exp()
        return ((shape - 1) * x.log() - rate * x + shape * rate.log() - shape.lgamma()).sum(1)


class GammaScores(Gammas):
    """The same, by their score; the support is left to the caller."""

    support = None
    log_prob = None

    def score(self, x):
        shape, rate = self.logs.exp()
        return (shape - 1) / x - rate


def gamma_points(n, generator=None):
    torch.manual_seed(0) if generator is None else None
    return torch.distributions.Gamma(torch.tensor([3.0, 0.7]), torch.tensor([2.0, 1.0])).sample((n,))


@pytest.mark.slow
@pytest.mark.parametrize("objective", [LearnedStein(MLP(2, width=16), critic_steps=2), "score-matching"])
@pytest.mark.parametrize("model, options", [(Gammas, {}), (GammaScores, {"support": "positive"})])
def test_a_model_with_a_support_is_trained_in_unconstrained_coordinates(model, options, objective):
    """Without coordinates both objectives drift away: the second gamma has an infinite density at zero."""
    result = train(model(), gamma_points(4000), objective=objective, steps=400, lr=0.02, **options)
    expected = torch.tensor([[3.0, 0.7], [2.0, 1.0]])
    assert (result.model.logs.detach().exp() / expected - 1).abs().max() < 0.12


def test_points_that_are_drawn_have_a_support_too():
    result = train(Gammas(), gamma_points, objective="likelihood", steps=5)
    assert result.state.settings["support"] == "log x"
    with pytest.raises(InputError, match=r"x \(a batch\): row 0 holds -1 in coordinate 0, outside of the support"):
        train(Gammas(), lambda n, generator: -torch.ones(n, 2), steps=2)


def test_a_run_resumes_on_the_same_support_only():
    x = gamma_points(200)
    state = train(GammaScores(), x, steps=2, support="positive").state
    for other in ("real", (0, 1000)):
        with pytest.raises(InputError, match="support: the run to resume was made with 'log x', got"):
            train(GammaScores(), x, steps=3, support=other, start=state)


def test_history_and_figure():
    result = train(Gaussian(torch.zeros(2)), gaussian_points(200), steps=10, batch_size=20, log_every=4)
    assert list(result.history.step) == [4, 8, 10] and set(result.history.to_dict()) == {
        "step",
        "model_loss",
        "auxiliary_loss",
        "gradient_norm",
        "held_out",
        "held_out_error",
        "discrepancy",
        "discrepancy_error",
    }
    assert np.isfinite(result.history.auxiliary_loss).all()
    without = train(Gaussian(torch.zeros(2)), gaussian_points(200), steps=5, batch_size=20, objective="likelihood")
    assert math.isnan(without.history.auxiliary_loss[0])
    assert len(result.plot().axes) == 2 and len(without.plot().axes) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"keep": 0}, "keep: expected a whole number from 1 on, got 0"),
        ({"steps": 0}, "steps: expected a whole number from 1 to 1000000000, got 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number from 1 on, got 0"),
        ({"lr": -1.0}, "lr: expected a positive number, got -1.0"),
        ({"average": 1.0}, "average: expected a number between 0 and 1, got 1.0"),
        ({"noise": -1.0}, "noise: expected a number from 0 on, got -1.0"),
        ({"seed": -1}, r"seed: expected a whole number from 0 to 2\^63 - 1, got -1"),
        ({"resume": "no"}, "resume: expected True or False, got 'no'"),
        ({"start": {"step": 1}}, "start: expected an object of type TrainState, got dict"),
        (
            {"objective": LearnedStein},
            "objective: expected an object of .*, got the class LearnedStein",
        ),
        ({"checkpoint": 3}, "checkpoint: expected a path, got 3"),
        ({"callbacks": "a"}, "callbacks: expected a list of functions, got 'a'"),
        ({"callbacks": print}, "callbacks: expected a list of functions, got <built-in function print>"),
        ({"device": np.zeros(2)}, r"device: array\(\[0., 0.\]\) cannot be used here"),
        ({"dtype": "float32"}, "dtype: expected torch.float32 or torch.float64, got 'float32'"),
        (
            {"optimiser": torch.optim.LBFGS},
            "optimiser: expected one whose step.. needs no function of the loss",
        ),
        (
            {"scheduler": functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=5)},
            "scheduler: it cannot make a step: Tried to step 6 times",
        ),
        ({"objective": "magic"}, "objective: expected one of lsd, .*, got 'magic'"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(InputError, match=message):
        inspect.unwrap(train)(Gaussian(torch.zeros(2)), gaussian_points(200), **{"steps": 12, **options})


class Idle(nn.Module):
    """A model whose parameter changes nothing."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def log_prob(self, x):
        return -0.5 * x.square().sum(1)


@pytest.mark.parametrize("stops", [True, np.True_, torch.tensor(True)])
def test_a_callback_stops_a_run(stops):
    result = train(Gaussian(torch.zeros(2)), gaussian_points(200), steps=20, log_every=5, callbacks=[lambda *_: stops])
    assert result.state.step == 5 and result.notes[0] == "The run was stopped by a callback at step 5."


@pytest.mark.parametrize("goes_on", [None, 1, "yes", np.ones(2), torch.ones(2) > 0])
def test_other_answers_of_a_callback_do_not(goes_on):
    result = train(Gaussian(torch.zeros(2)), gaussian_points(200), steps=9, log_every=5, callbacks=[lambda *_: goes_on])
    assert result.state.step == 9


def test_bad_models():
    bare = inspect.unwrap(train)
    with pytest.raises(
        InputError, match="model: expected a torch.nn.Module .*, got what from_log_prob, .* are not known"
    ):
        bare(from_energy(lambda x: x.square().sum(1)), gaussian_points(20), steps=2)
    with pytest.raises(InputError, match="model: expected a torch.nn.Module .*, got str"):
        bare("model", gaussian_points(), steps=1)
    with pytest.raises(
        InputError, match=r"model: expected log_prob\(x\), energy\(x\) or score\(x\), and Linear has none"
    ):
        train(nn.Linear(2, 2), gaussian_points(), steps=1)
    with pytest.raises(InputError, match="model: expected a torch.nn.Module .*, got the class Gaussian"):
        bare(Gaussian, gaussian_points(), steps=1)
    with pytest.raises(InputError, match="model: the loss does not depend on its parameters"):
        train(Idle(), gaussian_points(200), steps=1)
    with pytest.raises(InputError, match="model: it has no parameters to train"):
        train(Gaussian(torch.zeros(2)).requires_grad_(False), gaussian_points(), steps=1)


def on_disk(x, path):
    np.save(path, x.numpy())
    return np.load(path, mmap_mode="r")


class Squares(torch.utils.data.Dataset):
    """Points that are computed when they are asked for, from a seed or from the global random state."""

    def __init__(self, offset=0.0, n=200, is_random=False):
        self.offset, self.n, self.is_random = offset, n, is_random

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.is_random:
            return self.offset + torch.from_numpy(np.random.default_rng().standard_normal(2))
        return self.offset + torch.tensor([index / self.n, (index / self.n) ** 2])


def normals(shift):
    return lambda n, generator: shift + torch.randn(n, 2, generator=generator)


X = gaussian_points(200)


def changed_in_one_number():
    x = X.clone()
    x[117, 1] = torch.nextafter(x[117, 1], torch.tensor(9.0))
    return x


@pytest.mark.parametrize(
    "other, message",
    [
        (
            X + 100,
            r"was made with other points of shape \(200, 2\), whose digest begins with \w{8}, got \w{8}; use the",
        ),
        (changed_in_one_number(), r"was made with other points of shape \(200, 2\)"),
        (X.flip(0), r"was made with other points of shape \(200, 2\)"),
        (X[:150], r"was made with points of shape \(200, 2\), got points of shape \(150, 2\); use the same"),
        (Squares(), r"was made with points of shape \(200, 2\), got points from a Squares of length 200"),
        (normals(0.0), r"was made with points of shape \(200, 2\), got points drawn by a function"),
    ],
)
def test_a_run_is_not_resumed_with_other_points(other, message, tmp_path):
    options = {"batch_size": 32, "checkpoint": tmp_path, "objective": "likelihood"}
    train(Gaussian(torch.zeros(2)), X, steps=3, **options)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=f"^x: the run in .* {message}"):
        train(Gaussian(torch.zeros(2)), other, steps=5, **options)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_the_same_points_may_come_in_another_form(tmp_path):
    options = {"batch_size": 32, "checkpoint": tmp_path / "run", "objective": "likelihood"}
    files = [on_disk(X, tmp_path / "single.npy"), on_disk(X.double(), tmp_path / "double.npy")]
    forms = [X, X.double(), X.numpy().tolist(), *files, TensorDataset(X)]
    for steps, form in enumerate(forms, start=1):
        assert inspect.unwrap(train)(Gaussian(torch.zeros(2)), form, steps=steps, **options).state.step == steps


@pytest.mark.parametrize(
    "first, other", [(normals(0.0), normals(1.0)), (Squares(), Squares(1.0)), (Squares(), Squares(n=201))]
)
def test_functions_and_datasets_are_told_apart_by_some_of_their_points(first, other, tmp_path):
    options = {"batch_size": 32, "checkpoint": tmp_path, "objective": "likelihood"}
    train(Gaussian(torch.zeros(2)), first, steps=3, **options)
    with pytest.raises(InputError, match="x: the run in .* was made with (other )?points (drawn by a|from a Squares)"):
        train(Gaussian(torch.zeros(2)), other, steps=5, **options)
    assert train(Gaussian(torch.zeros(2)), first, steps=5, **options).state.step == 5


def test_points_that_are_random_at_each_reading_cannot_be_told_apart(tmp_path):
    options = {"batch_size": 32, "checkpoint": tmp_path, "objective": "likelihood"}
    for steps in (3, 5):
        result = train(Gaussian(torch.zeros(2)), Squares(is_random=True), steps=steps, **options)
    assert result.state.step == 5 and result.state.data["digest"] is None


@pytest.mark.parametrize(
    "objective, message",
    [
        (
            LearnedStein(MLP(2, width=8), l2=99.0),
            r"objective.l2: the run to resume was made with 0.5, got 99.0; use the",
        ),
        (LearnedStein(MLP(2, width=8), critic_steps=2), "objective.critic_steps: .* made with 5, got 2"),
        (LearnedStein(MLP(2, width=8), precondition=False), "objective.precondition: .* made with True, got False"),
        (LearnedStein(MLP(2, width=8), shrinkage=0.5), "objective.shrinkage: .* made with 0.01, got 0.5"),
        (LearnedStein(MLP(2, width=8, trace="hutchinson")), "objective.critic.trace: .* with 'auto', got 'hutchinson'"),
        (LearnedStein(MLP(2, width=8, dropout=0.5)), "objective.critic.dropout: .* made with 0.0, got 0.5"),
        (LearnedStein(MLP(2, width=9)), "objective.critic.layers.0.out_features: .* made with 8, got 9"),
        (LearnedStein(network(2)), "objective.critic: .* made with 'MLP', got 'Sequential'"),
        (LearnedStein(residual=False), "objective.critic: .* made with 'MLP', got None"),
        (LearnedStein(), "objective.critic: .* made with 'MLP', got None"),
    ],
)
def test_a_run_is_not_resumed_with_another_objective(objective, message, tmp_path):
    options = {"batch_size": 32, "checkpoint": tmp_path}
    train(Gaussian(torch.zeros(2)), X, steps=2, objective=LearnedStein(MLP(2, width=8)), **options)
    with pytest.raises(InputError, match=message):
        train(Gaussian(torch.zeros(2)), X, steps=3, objective=objective, **options)


def test_checkpoints_of_something_else(tmp_path):
    runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path)
    with pytest.raises(InputError, match="checkpoint: .* holds a run at step 12; use resume=True"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, resume=False)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="checkpoint: .*file is a file, expected a directory"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path / "file")
    (tmp_path / "file").unlink()
    with pytest.raises(InputError, match="lr: the run to resume was made with 0.005, got 0.01"):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, lr=0.01)
    with pytest.raises(
        InputError, match="steps: the rates of the run to resume fall to zero over 12 steps, got 5; use"
    ):
        runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path, steps=5)
    with pytest.raises(InputError, match="checkpoint: it belongs to another model: weights is missing there"):
        runs(RBM.random(2, 3), checkpoint=tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    runs(Gaussian(torch.zeros(2)), checkpoint=tmp_path)
    assert files == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_points_that_are_single_numbers(objective):
    x = 3.0 + Gaussian([0.0]).sample(200)[:, 0]
    model = Gaussian([0.0])
    result = train(model, x, objective=objective, steps=5, batch_size=50, lr=0.1, progress=False)
    assert bool(model.mean > 0) and np.isfinite(result.history.model_loss).all()


class EnergyAlone(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def energy(self, x):
        return self.weight * x.square().sum(1)


@pytest.mark.parametrize("objective", ["likelihood", MaximumLikelihood()])
@pytest.mark.parametrize("model", [EnergyAlone(), EBM.perceptron(2, width=4)])
def test_likelihood_of_an_unnormalised_model_is_refused(objective, model):
    """It falls for ever: with minus the mean of x² as its loss the weight goes to minus infinity."""
    with pytest.raises(
        InputError, match=f"objective: .* is for normalised models, and {type(model).__name__} is not one"
    ):
        train(model, gaussian_points(50), objective=objective, steps=5)
