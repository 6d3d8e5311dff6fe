"""What every critic of the portfolio does."""

import copy

import pytest
import torch

from steinscope.critics import MLP, Features, Preconditioned
from steinscope.maps import AnyFeatures
from steinscope.metric import Metric
from steinscope.models import RBM
from steinscope.portfolio import CriticLearner, FeatureLearner, Learner, NetworkLearner
from steinscope.registries import CRITICS

from helpers import context, generator, learner_data, network, taught

# The registry, and learners that are made in other ways. Critics that are no fields have tests of their own.
LEARNERS = {
    **{
        name: lambda entry=entry: entry.load().for_test(context(RBM.random(4, 3).double()))
        for name, entry in CRITICS.items()
        if issubclass(entry.load(), Learner)
    },
    "any features": lambda: FeatureLearner(AnyFeatures(network(4).double())),
    "small network": lambda: NetworkLearner(16, steps=3),
    "critic": lambda: CriticLearner(MLP(4, width=8), steps=3),
    "solved critic": lambda: CriticLearner(Features(network(4))),
    "whitened solved critic": lambda: CriticLearner(Preconditioned.from_data(Features(network(4)), learner_data()[0])),
}
BY_SUMS = [*(name for name, entry in CRITICS.items() if entry.is_closed_form), "model", "any features"]


@pytest.mark.parametrize("name", LEARNERS)
def test_contract(name):
    """One value a point; the critic stays while a block is taken in; its values obey Stein's identity."""
    learner, (x, score) = taught(LEARNERS[name]()), learner_data(20, seed=1)
    before = x.clone(), score.clone()
    values = learner.values(x, score)
    assert values.shape == (20,) and values.isfinite().all() and not values.requires_grad
    torch.testing.assert_close(learner.values(x[:1], score[:1]), values[:1])
    learner.observe(*learner_data(30, seed=2))
    assert torch.equal(learner.values(x, score), values)
    assert torch.equal(x, before[0]) and torch.equal(score, before[1])
    # Where the model is right the mean is zero, within 4 standard errors.
    z = torch.randn(50_000, 4, dtype=torch.float64, generator=generator(3))
    own = learner.values(z, -z)
    assert abs(float(own.mean())) < 4 * float(own.std()) / 50_000**0.5
    learner.refit()
    assert not torch.equal(learner.values(x, score), values)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_field_is_the_critic_behind_the_values(name):
    """s · f + Σ ∂_i f_i is the Stein value, and ∂_i f_i is the slope of the field."""
    learner, (x, score) = taught(LEARNERS[name]()), learner_data(9, seed=1)
    f, diagonal = learner.field(x)
    assert f.shape == diagonal.shape == x.shape
    torch.testing.assert_close((score * f + diagonal).sum(1), learner.values(x, score))
    step = 1e-5 * torch.eye(4, dtype=torch.float64)
    slopes = [(learner.field(x + step[i])[0] - learner.field(x - step[i])[0])[:, i] / 2e-5 for i in range(4)]
    torch.testing.assert_close(diagonal, torch.stack(slopes, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_same_seed_gives_the_same_bits(name):
    x, score = learner_data(9, seed=1)
    state = torch.get_rng_state()
    ours, same = (taught(LEARNERS[name]()).values(x, score) for _ in range(2))
    assert torch.equal(ours, same) and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", BY_SUMS)
def test_batches_do_not_matter(name):
    x, score = learner_data(20, seed=1)
    whole, parts = taught(LEARNERS[name]()), taught(LEARNERS[name](), ((0, 7), (7, 31), (31, 60)))
    torch.testing.assert_close(whole.values(x, score), parts.values(x, score), rtol=1e-8, atol=1e-8)


def test_a_critic_that_is_given_is_not_changed():
    critic = MLP(4, width=8).double()
    before = copy.deepcopy(critic.state_dict())
    taught(CriticLearner(critic, steps=3))
    assert all(torch.equal(value, before[name]) for name, value in critic.state_dict().items())


# What an estimate makes of every critic that is solved, in the coordinates of x and in mixtures of them.
CONTEXTS = {"": context(), ", mixed": context(metric=Metric.whitened(learner_data()[0] @ learner_data(4, seed=3)[0]))}
SOLVED = {
    f"{name} {number}{words}": lambda entry=entry, number=number, where=where: entry.load().for_estimate(where)[number]
    for words, where in CONTEXTS.items()
    for name, entry in CRITICS.items()
    if entry.needs is None and name != "mlp"
    for number in range(len(entry.load().for_estimate(where)))
}


@pytest.mark.parametrize("name", SOLVED)
def test_the_path_of_an_estimate(name):
    """Every critic of the path is a field with its divergence, snapshots stay, and what was prepared agrees."""
    learner, (x, _) = taught(SOLVED[name]()), learner_data(9, seed=1)
    look, snapshots = None, []
    for _ in learner.path(0.5):
        look = look or learner.looking_at(x)
        f, divergence = learner.value_and_divergence(x)
        field, diagonal = learner.field(x)
        torch.testing.assert_close(field, f)
        torch.testing.assert_close(diagonal.sum(1), divergence)
        for ours, theirs in zip(learner.looking_at(x)(), (f, divergence), strict=True):
            torch.testing.assert_close(ours, theirs)
        snapshots.append((learner.snapshot(), f))
    # What was prepared at the first critic serves the last.
    torch.testing.assert_close(look()[0], f)
    for snapshot, f in snapshots:
        assert torch.equal(snapshot.value_and_divergence(x)[0], f)
    step = 1e-5 * torch.eye(4, dtype=torch.float64)
    slopes = [(learner.field(x + step[i])[0] - learner.field(x - step[i])[0])[:, i] / 2e-5 for i in range(4)]
    torch.testing.assert_close(diagonal, torch.stack(slopes, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SOLVED)
def test_solutions_are_as_long_as_the_penalty_lets_them(name):
    """The best critic is proportional to 1 / 2λ, and so is every one of the path."""
    x, _ = learner_data(9, seed=1)
    fields = []
    for l2 in (0.5, 2.0):
        learner = taught(SOLVED[name]())
        fields.append([learner.value_and_divergence(x)[0] for _ in learner.path(l2)])
    if not name.startswith("mean 0"):
        for small, large in zip(*fields, strict=True):
            torch.testing.assert_close(small, 4 * large, rtol=1e-6, atol=1e-9)
