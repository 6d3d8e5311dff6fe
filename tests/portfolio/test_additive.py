import torch

from steinscope.maps.divergence import exact
from steinscope.portfolio import AdditiveLearner

from helpers import generator, learner_data, taught


def test_the_additive_critic_entry_by_entry():
    learner, (x, score) = taught(AdditiveLearner()), learner_data()
    functions = [lambda u: u]
    for frequency in learner.frequencies:
        functions += [lambda u, w=frequency: torch.sin(w * u), lambda u, w=frequency: torch.cos(w * u)]
    centre, spread = x.mean(0), x.std(0)
    z, weights, sums, squares = (torch.zeros(4, 9, 4, dtype=torch.float64) for _ in range(4))
    for i in range(4):
        for m, function in enumerate(functions):
            for j in range(4):
                point = x[:, j].clone().requires_grad_()
                value = function((point - centre[j]) / spread[j])
                (slope,) = torch.autograd.grad(value.sum(), point)
                terms = (score[:, i] * value + (slope if i == j else 0)).detach()
                sums[i, m, j], squares[i, m, j] = terms.sum(), terms.square().sum()
                weights[i, m, j] = terms.mean() / terms.var(correction=0)
                z[i, m, j] = terms.mean() * (60 / terms.var(correction=0)) ** 0.5
    torch.testing.assert_close(learner.sums.view(4, 9, 4), sums)
    torch.testing.assert_close(learner.squares.view(4, 9, 4), squares)
    kept = z.abs() > (2 * torch.tensor(144.0).log()).sqrt()
    assert 3 < int(kept.sum()) < 144
    assert learner.kept.tolist() == kept.view(-1).nonzero().view(-1).tolist()
    torch.testing.assert_close(learner.coefficients, weights[kept])

    def field(x):
        u = (x - centre) / spread
        return torch.einsum("imj,mnj->ni", weights * kept, torch.stack([g(u) for g in functions]))

    test_x, test_score = learner_data(9, seed=1)
    expected = (test_score * field(test_x)).sum(1) + exact(field, test_x)
    torch.testing.assert_close(learner.values(test_x, test_score), expected.detach())


def test_the_additive_critic_falls_back_on_its_strongest_coordinates():
    learner = AdditiveLearner()
    x = torch.randn(500, 4, generator=generator(5))
    learner.begin(x, -x)
    learner.observe(x, -x)
    learner.refit()
    assert len(learner.kept) == 3
    assert learner.values(x, -x).isfinite().all()


def test_the_additive_critic_keeps_a_bounded_number_of_entries():
    learner = AdditiveLearner()
    x = torch.randn(500, 40, generator=generator(5)) + 5 * torch.randn(500, 1, generator=generator(6))
    learner.begin(x, -x)
    learner.observe(x, -x)
    learner.refit()
    assert len(learner.kept) == learner.most
    left_out = torch.ones(learner.ratio.numel(), dtype=torch.bool)
    left_out[learner.kept] = False
    ratio = learner.ratio.view(-1)
    assert float(ratio[learner.kept].min()) >= float(ratio[left_out].max())
