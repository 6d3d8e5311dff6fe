"""The learners against the formulas that they are meant to compute."""

import pytest
import torch

from steinscope.critics import MLP, Features, Preconditioned
from steinscope.maps import AnyFeatures
from steinscope.maps.divergence import exact
from steinscope.portfolio import (
    CosineLearner,
    CriticLearner,
    FeatureLearner,
    LinearLearner,
    MeanLearner,
    NetworkLearner,
    SparseLearner,
)

from helpers import generator, network

LEARNERS = {
    "mean": MeanLearner,
    "linear": LinearLearner,
    "sparse": SparseLearner,
    "features": CosineLearner,
    "any features": lambda: FeatureLearner(AnyFeatures(network(4).double())),
    "mlp": lambda: NetworkLearner(16, steps=3),
    "critic": lambda: CriticLearner(MLP(4, width=8), steps=3),
    "solved critic": lambda: CriticLearner(Features(network(4))),
    "whitened solved critic": lambda: CriticLearner(Preconditioned.from_data(Features(network(4)), data()[0])),
}


def data(n=60, dim=4, seed=0):
    x = 2 * torch.randn(n, dim, dtype=torch.float64, generator=generator(seed)) + 1
    return x, torch.tanh(x.roll(1, 1)) - 0.4 * x


def trained(name, batches=((0, 60),)):
    learner = LEARNERS[name]()
    x, score = data()
    learner.begin(x, score)
    for start, stop in batches:
        learner.observe(x[start:stop], score[start:stop])
    learner.refit()
    return learner


@pytest.mark.parametrize("name", LEARNERS)
def test_contract(name):
    """Every learner: one value a point, the critic stays while a block is taken in, and its values obey Stein."""
    learner, (x, score) = trained(name), data(20, seed=1)
    values = learner.values(x, score)
    assert values.shape == (20,) and values.isfinite().all()
    learner.observe(*data(30, seed=2))
    assert torch.equal(learner.values(x, score), values)
    # The values are affine in the score, and their mean under the right model is zero.
    z = torch.randn(50_000, 4, dtype=torch.float64, generator=generator(3))
    own = learner.values(z, -z)
    assert abs(float(own.mean())) < 4 * float(own.std()) / 50_000**0.5


@pytest.mark.parametrize("name", ["mean", "linear", "sparse", "features", "any features"])
def test_batches_do_not_matter(name):
    x, score = data(20, seed=1)
    whole, parts = trained(name), trained(name, ((0, 7), (7, 31), (31, 60)))
    torch.testing.assert_close(whole.values(x, score), parts.values(x, score), rtol=1e-8, atol=1e-8)


def test_the_linear_critic_is_the_plain_average():
    learner, (x, score) = trained("linear"), data()
    centred = x - x.mean(0)
    matrix = (score.T @ centred / 60 + torch.eye(4)) / centred.square().mean()
    test_x, test_score = data(9, seed=1)
    f = (test_x - x.mean(0)) @ matrix.T + score.mean(0)
    torch.testing.assert_close(learner.values(test_x, test_score), (test_score * f).sum(1) + matrix.trace())


def test_the_sparse_critic_entry_by_entry():
    learner, (x, score) = trained("sparse"), data()
    functions = [lambda u: u]
    for frequency in learner.frequencies:
        functions += [lambda u, w=frequency: torch.sin(w * u), lambda u, w=frequency: torch.cos(w * u)]
    centre, spread = x.mean(0), x.std(0)
    z, weights = (torch.zeros(4, 9, 4, dtype=torch.float64) for _ in range(2))
    for i in range(4):
        for m, function in enumerate(functions):
            for j in range(4):
                point = x[:, j].clone().requires_grad_()
                value = function((point - centre[j]) / spread[j])
                (slope,) = torch.autograd.grad(value.sum(), point)
                terms = (score[:, i] * value + (slope if i == j else 0)).detach()
                weights[i, m, j] = terms.mean() / terms.var(correction=0)
                z[i, m, j] = terms.mean() * (60 / terms.var(correction=0)) ** 0.5
    kept = z.abs() > (2 * torch.tensor(144.0).log()).sqrt()
    assert 3 < int(kept.sum()) < 144
    assert learner.kept.tolist() == kept.view(-1).nonzero().view(-1).tolist()
    torch.testing.assert_close(learner.coefficients, weights[kept])
    names = ["u", *(f"{name} {w:g}u" for w in learner.frequencies for name in ("sin", "cos"))]
    for finding in learner.findings():
        expected = z[finding.output, names.index(finding.function), finding.input]
        assert finding.z == pytest.approx(float(expected), rel=1e-8)
    assert len(learner.findings()) == int(kept.sum())

    def field(x):
        u = (x - centre) / spread
        return torch.einsum("imj,mnj->ni", weights * kept, torch.stack([g(u) for g in functions]))

    test_x, test_score = data(9, seed=1)
    expected = (test_score * field(test_x)).sum(1) + exact(field, test_x)
    torch.testing.assert_close(learner.values(test_x, test_score), expected.detach())


def test_the_sparse_critic_falls_back_on_its_strongest_coordinates():
    learner = SparseLearner()
    x = torch.randn(500, 4, generator=generator(5))
    learner.begin(x, -x)
    learner.observe(x, -x)
    learner.refit()
    assert len(learner.kept) == 3 and learner.findings() == ()
    assert learner.values(x, -x).isfinite().all()


def test_the_sparse_critic_keeps_a_bounded_number_of_entries():
    learner = SparseLearner()
    x = torch.randn(500, 40, generator=generator(5)) + 5 * torch.randn(500, 1, generator=generator(6))
    learner.begin(x, -x)
    learner.observe(x, -x)
    learner.refit()
    assert len(learner.kept) == learner.most
    left_out = torch.ones(learner.ratio.numel(), dtype=torch.bool)
    left_out[learner.kept] = False
    ratio = learner.ratio.view(-1)
    assert float(ratio[learner.kept].min()) >= float(ratio[left_out].max())


def test_a_solved_critic_on_features():
    learner, (x, score) = trained("any features"), data()
    feature_map = learner.feature_map
    features, jacobian = feature_map.sum_jacobian(x)
    gram = features.T @ features / 60
    ridge = gram.diagonal().mean() * torch.eye(len(gram))
    expected = (score.T @ features + jacobian) / 60 @ torch.linalg.inv(gram + ridge)
    torch.testing.assert_close(learner.weights, expected)
