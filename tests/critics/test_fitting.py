import inspect
import itertools
import json
import math

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, NonFiniteError, fit_critic, gof_test
from steinscope.critics import MLP, Features, Linear, Preconditioned
from steinscope.critics.fitting import default_batch_size, default_lr
from steinscope.maps import RandomCosines
from steinscope.models import Gaussian
from steinscope.stein import Power

from helpers import generator


def problem(n=400, dim=3, shift=0.7, seed=0):
    x = torch.randn(n, dim, generator=generator(seed))
    return x, shift - x


def test_the_critic_given_is_not_changed():
    critic, (x, score) = MLP(3, width=8), problem()
    before = critic.layers[0].weight.clone()
    fit = fit_critic(critic, x, score, settings=FitSettings(steps=3))
    assert torch.equal(critic.layers[0].weight, before)
    assert not torch.equal(fit.critic.layers[0].weight, before) and not fit.critic.training


@pytest.mark.parametrize("options", [{}, {"batch_size": 64}, {"dropout": 0.5}, {"trace": "hutchinson"}])
def test_the_same_seed_gives_the_same_bits(options):
    batch_size = options.pop("batch_size", None)
    x, score = problem()

    def run(seed):
        critic = MLP(3, width=16, **options)
        fit = fit_critic(
            critic,
            x,
            score,
            settings=FitSettings(steps=30, batch_size=batch_size),
            validation=problem(seed=1),
            seed=seed,
        )
        return torch.cat([p.flatten() for p in fit.critic.parameters()]), fit.history

    (ours, history), (same, same_history), (other, _) = run(3), run(3), run(4)
    assert torch.equal(ours, same) and history.to_dict() == same_history.to_dict()
    if options or batch_size:
        assert not torch.equal(ours, other)


def test_global_random_state_is_not_touched():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    x, score = problem()
    fit_critic(
        MLP(3, dropout=0.5, trace="hutchinson"),
        x,
        score,
        settings=FitSettings(steps=5, batch_size=10),
        validation=(x, score),
    )
    MLP(3, dropout=0.5, trace="hutchinson").train().value_and_divergence(x)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)


def test_the_best_validation_is_kept():
    x, score = problem(60)
    states = {}

    def remember(step, critic):
        states[step] = torch.cat([p.detach().flatten() for p in critic.parameters()]).clone()

    for rule, quality in (
        ("mu-sigma", lambda h: h.validation_mean - h.validation_std),
        ("mean", lambda h: h.validation_mean),
        ("power", lambda h: h.validation_mean / h.validation_std),
        ("objective", lambda h: h.validation_mean - 0.5 * h.validation_norm),
    ):
        fit = fit_critic(
            MLP(3),
            x,
            score,
            settings=FitSettings(steps=200, every=10, select=rule, patience=None),
            validation=problem(60, seed=2),
            callback=remember,
        )
        history = fit.history
        assert history.step.tolist() == list(range(10, 201, 10))
        assert history.selected == history.step[np.argmax(quality(history))]
        kept = torch.cat([p.detach().flatten() for p in fit.critic.parameters()])
        assert torch.equal(kept, states[history.selected])


def changes(**settings):
    """How far the weights of a critic move in each of 20 steps."""
    seen, (x, score) = [], problem(60)
    fit_critic(
        MLP(3, width=8),
        x,
        score,
        settings=FitSettings(steps=20, every=1, **settings),
        callback=lambda step, critic: seen.append(torch.cat([p.detach().flatten() for p in critic.parameters()])),
    )
    return [float((after - before).abs().max()) for before, after in itertools.pairwise(seen)], seen[-1]


def test_the_learning_rate_falls_to_zero_along_half_a_cosine():
    """No step of Adam is much longer than the learning rate, and some weight moves nearly as far."""
    falling, _ = changes(lr=0.01)
    level, _ = changes(lr=0.01, lr_decay=False)
    rates = [0.01 * 0.5 * (1 + math.cos(math.pi * step / 20)) for step in range(1, 20)]
    assert all(0.5 * rate < change < 2 * rate for rate, change in zip(rates, falling, strict=True))
    assert all(0.005 < change < 0.02 for change in level)


def test_weight_decay_keeps_weights_small():
    free, decayed = (changes(lr=0.05, weight_decay=decay)[1].norm() for decay in (0.0, 10.0))
    assert decayed < 0.7 * free


def test_batches_and_learning_rates_go_with_the_number_of_points():
    assert [default_batch_size(n) for n in (100, 1024, 1025, 16_384, 16_385)] == [100, 1024, 256, 256, 1024]
    assert [default_lr(n, None) for n in (100, 1024, 1025, 16_385)] == [1e-3, 1e-3, 2e-3, 3e-3]
    assert default_lr(500, 50) == 2e-3 and default_lr(5000, 1024) == 3e-3 and default_lr(50, 50) == 1e-3


def test_patience_stops_early():
    x, score = problem(60)
    fit = fit_critic(
        MLP(3), x, score, settings=FitSettings(steps=2000, every=10, patience=3), validation=problem(60, seed=2)
    )
    assert len(fit.history.step) < 200
    assert fit.history.step[-1] == fit.history.selected + 30


def test_power_makes_a_better_test_than_it_found():
    x, score = problem(2000, shift=0.2)
    test_x, test_score = problem(20_000, shift=0.2, seed=5)
    fit = fit_critic(MLP(3, width=32), x, score, objective=Power(), settings=FitSettings(steps=200))
    values = fit.critic.stein(test_x, test_score)[0].detach()
    # The best ratio is that of the constant critic: |shift| = 0.2 √3.
    assert 0.8 * 0.2 * 3**0.5 < float(values.mean() / values.std()) < 1.1 * 0.2 * 3**0.5


def test_solved_critics_choose_their_ridge_on_validation_points():
    data, model = Gaussian(torch.zeros(20)), Gaussian(torch.full((20,), 0.5))
    x, validation, test = (data.sample(n, seed) for n, seed in ((150, 0), (150, 1), (5000, 2)))
    with torch.no_grad():
        scores = [model.score(points) for points in (x, validation, test)]

    def held_out(fit):
        with torch.no_grad():
            values, norms = fit.critic.stein(test, scores[2])
        return float(values.mean() - 0.5 * norms.mean())

    chosen = fit_critic(
        Linear(20), x, scores[0], validation=(validation, scores[1]), settings=FitSettings(select="objective")
    )
    unchosen = fit_critic(Linear(20), x, scores[0])
    assert len(chosen.history.step) > 5 and chosen.history.selected > 1
    assert held_out(chosen) > held_out(unchosen)
    whitened = fit_critic(Preconditioned.from_data(Linear(20), x), x, scores[0], validation=(validation, scores[1]))
    assert held_out(whitened) > held_out(unchosen)


def test_a_memmap_is_fitted_like_an_array(tmp_path):
    x, score = problem(500)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "score.npy", score.numpy())
    on_disk = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "score.npy")]
    options = {"settings": FitSettings(steps=20, batch_size=64), "seed": 1}
    ours = fit_critic(MLP(3, width=8), *on_disk, **options).critic
    theirs = fit_critic(MLP(3, width=8), x, score, **options).critic
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_that_turns_non_finite_says_where():
    x, score = problem()
    seen = []

    def objective(values, norms):
        seen.append(1)
        return values.mean() * (float("nan") if len(seen) == 7 else 1.0)

    with pytest.raises(NonFiniteError, match="critic: the objective turned non-finite at step 7"):
        fit_critic(MLP(3, width=8), x, score, objective=objective, settings=FitSettings(steps=20, every=10))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps: expected a whole number from 1 to 1000000000, got 0"),
        ({"every": 0}, "every: expected a whole number from 1 on, got 0"),
        ({"lr": -1.0}, "lr: expected a positive number, got -1.0"),
        ({"batch_size": 0}, "batch_size: expected a whole number from 1 on, got 0"),
        ({"batch_size": 401}, "batch_size: expected a number from 1 to the 400 training points, got 401"),
        ({"select": "median"}, "select: expected 'mu-sigma', .* or a function, got 'median'"),
        ({"seed": -1}, "seed: expected a whole number"),
        (
            {"validation": (torch.ones(4, 3), torch.ones(4, 2))},
            r"validation\[1\]: expected the shape of validation\[0\]",
        ),
        (
            {"validation": (torch.ones(4, 2), torch.ones(4, 2))},
            r"validation\[0\]: expected points of the shape of those in x, \(3,\), got \(2,\)",
        ),
        ({"score": torch.ones(4, 3)}, r"score: expected the shape of x, \(400, 3\), got \(4, 3\)"),
    ],
)
def test_bad_input(options, message):
    x, score = problem()
    score = options.get("score", score)
    fit = {name: value for name, value in options.items() if name in FitSettings.__dataclass_fields__}
    others = {name: value for name, value in options.items() if name in ("seed", "validation")}
    with pytest.raises(InputError, match=message):
        fit_critic(MLP(3, width=8), x, score, settings=FitSettings(**fit), **others)


@pytest.mark.parametrize("critic", [Linear(3), MLP(3, width=8)])
def test_an_objective_without_a_penalty_gets_none(critic):
    """A penalty that the objective does not have must not be made up where a solution or a choice depends on it."""
    x, score = problem()
    with pytest.raises(InputError, match="objective: a critic in closed form and select='objective' need its penalty"):
        fit_critic(critic, x, score, objective=lambda values, norms: values.mean(), validation=(x, score))


@pytest.mark.parametrize(
    "critic", [MLP(2, width=8), Linear(2), Features(RandomCosines(2)), torch.nn.Linear(2, 2), torch.nn.Linear(3, 1)]
)
def test_a_critic_of_another_dimension_is_one_line(critic):
    x, score = problem()
    with pytest.raises(InputError) as caught:
        fit_critic(critic, x, score, settings=FitSettings(steps=2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n, batch_size", [(1, None), (4, 1)])
def test_the_spread_of_a_single_point_is_missing_and_json_says_so(n, batch_size):
    x, score = problem(n)
    history = fit_critic(MLP(3, width=4), x, score, settings=FitSettings(steps=2, batch_size=batch_size)).history
    assert np.isnan(history.train_std).all() and np.isfinite(history.train_mean).all()
    saved = json.loads(json.dumps(history.to_dict(), allow_nan=False))
    assert saved["train_std"] == [None] and saved["validation_mean"] == [None]


@pytest.mark.parametrize("net", [torch.nn.Sequential(), torch.nn.ReLU(), torch.nn.Linear(3, 3).requires_grad_(False)])
def test_a_network_without_parameters_cannot_be_trained(net):
    x, score = problem()
    with pytest.raises(InputError, match="critic: it has no parameters to train"):
        fit_critic(net, x, score)
    with pytest.raises(InputError, match="critic: it has no parameters to train"):
        gof_test(x, score, critics=net)


@pytest.mark.parametrize(
    "objective, message",
    [
        ("lsd", r"expected an objective such as PenalisedLSD\(\), got 'lsd'"),
        (lambda values: values.mean(), "failed at the Stein values: TypeError: "),
        (lambda values, norms: 3.0, "expected one number made of the values by torch operations, got float"),
        (lambda values, norms: values, r"expected one number made of the values .*got a tensor of shape \(400,\)"),
        (lambda values, norms: values.mean().detach(), r"expected one number .*got a tensor of shape \(\)"),
    ],
)
def test_an_objective_gives_one_number_that_can_be_trained(objective, message):
    x, score = problem()
    with pytest.raises(InputError, match=f"objective: {message}"):
        inspect.unwrap(fit_critic)(MLP(3, width=4), x, score, objective=objective)


@pytest.mark.parametrize("select", [lambda seen: "a", lambda seen: 1 / 0, lambda: 1.0])
def test_a_rule_of_ones_own_gives_a_number(select):
    x, score = problem()
    with pytest.raises(InputError, match=r"select: failed at Validation\(mean="):
        fit_critic(MLP(3, width=4), x, score, validation=(x, score), settings=FitSettings(steps=2, select=select))
