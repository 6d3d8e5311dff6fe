import pytest
import torch

from steinscope import InputError, from_log_prob, train
from steinscope.critics import MLP, Preconditioned
from steinscope.maps.divergence import value_and_exact
from steinscope.models import Gaussian
from steinscope.objectives import LearnedStein, ScoreMatching, score_matching

from helpers import generator


def begun(**options):
    objective = LearnedStein(MLP(2, width=8), **options)
    x = torch.tensor([10.0, -5.0]) + torch.randn(5000, 2, generator=generator()) @ torch.tensor(
        [[3.0, 0.0], [2.0, 1.0]]
    )
    objective.begin(Gaussian([0.0, 0.0]), x, generator(1))
    return objective.auxiliary, x


def test_full_whitening_makes_the_covariance_the_identity():
    critic, x = begun(shrinkage=0.0)
    assert isinstance(critic, Preconditioned)
    torch.testing.assert_close(torch.cov(critic.whiten(x, x)[0].T), torch.eye(2), atol=1e-4, rtol=0)


def test_full_shrinkage_centres_and_scales_by_one_number():
    critic, x = begun(shrinkage=1.0)
    scale = torch.cov(x.T).diagonal().mean().sqrt()
    torch.testing.assert_close(critic.whiten(x, x)[0], (x - x.mean(0)) / scale, atol=1e-4, rtol=0)


def test_the_model_needs_the_score_along_the_critic_alone():
    """A model with `score_along` is not asked for its score, and its loss is the same."""

    class Along(Gaussian):
        def score(self, x):
            raise AssertionError

        def score_along(self, x, v):
            return (super().score(x) * v).sum(1)

    objective = LearnedStein(MLP(2, width=8), precondition=False)
    x = torch.randn(50, 2, generator=generator())
    objective.begin(None, x, generator(1))
    plain, along = (objective.model_loss(model, x, generator(2)) for model in (Gaussian([0.0, 0.0]), Along([0.0, 0.0])))
    torch.testing.assert_close(plain, along)


def scores_of(model, x):
    return model.score(x).detach()


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.0}, {"precondition": False}])
def test_the_residual_critic_is_what_the_score_differs_by(options):
    """f = (s - g) / 2λ, and the model descends on the mean of s·f with f held fixed."""
    l2, model = 0.7, Gaussian(torch.tensor([1.0, -1.0]), std=2.0)
    x = torch.randn(400, 2, generator=generator()) @ torch.tensor([[3.0, 0.0], [2.0, 1.0]])
    objective = LearnedStein(MLP(2, width=8), l2=l2, residual=True, jumps=False, **options)
    objective.begin(model, x, generator(1))
    f = (scores_of(model, x) - objective.auxiliary(x)) / (2 * l2)
    loss = objective.model_loss(model, x, generator(2))
    expected = (model.score(x) * f.detach()).sum(1).mean()
    torch.testing.assert_close(loss, expected)
    for one, other in zip(
        torch.autograd.grad(loss, list(model.parameters())),
        torch.autograd.grad(expected, list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_loss_of_g_is_that_of_the_residual_critic_up_to_the_model():
    """The penalised discrepancy of (s - g) / 2λ is score matching of the model minus that of g, over 2λ."""
    l2, model = 0.7, Gaussian(torch.tensor([1.0, -1.0]), std=2.0)
    x = torch.randn(300, 2, generator=generator()).double()
    model = model.double()
    objective = LearnedStein(MLP(2, width=8).double(), l2=l2, precondition=False, residual=True)
    objective.begin(model, x, generator(1))
    g = objective.auxiliary.eval()

    def field(y):
        return (model.score(y) - g(y)) / (2 * l2)

    f, divergence = value_and_exact(field, x)
    discrepancy = float(((scores_of(model, x) * f).sum(1) + divergence - l2 * f.square().sum(1)).mean().detach())
    loss = float(objective.auxiliary_loss(model, x, generator(3)).detach())
    matched = score_matching(x, model).value
    torch.testing.assert_close(discrepancy, (matched - loss) / (2 * l2), atol=1e-9, rtol=1e-7)
    # With Rademacher directions the trace of this model is exact and that of g nearly so.
    found = objective.held_out_discrepancy(model, x, generator(4))
    assert abs(float(found.mean()) - discrepancy) < 4 * float(found.std()) / 300**0.5 + 0.05


def skewed(n, seed=0):
    """Points whose score is not linear: log of a Gamma variable, and one that depends on it."""
    draw = torch.randn(n, 2, generator=generator(seed), dtype=torch.float64)
    return torch.stack([draw[:, 0], draw[:, 0] ** 2 + draw[:, 1]], 1)


def test_the_network_begins_at_the_score_of_the_gaussian_of_the_points():
    x = skewed(2000)
    objective = LearnedStein(shrinkage=0.0)
    objective.begin(None, x, generator(1))
    expected = -(x - x.mean(0)) @ torch.linalg.inv(torch.cov(x.T))
    torch.testing.assert_close(objective.auxiliary(x).detach(), expected, atol=1e-8, rtol=1e-6)


def test_the_network_that_was_best_at_held_out_points_is_kept():
    x, held_out = skewed(500), skewed(500, seed=1)
    objective = LearnedStein()
    objective.begin(None, x, generator(1))
    g = objective.auxiliary
    objective.watch(Gaussian([0.0, 1.0]).double(), held_out, generator(2))
    before = g(held_out).detach()
    with torch.no_grad():
        for parameter in g.network.parameters():
            parameter.add_(3.0)
    objective.watch(Gaussian([0.0, 1.0]).double(), held_out, generator(3))
    torch.testing.assert_close(g(held_out).detach(), before)
    g.network.load_state_dict(g.kept.state_dict())
    for step in range(200):
        objective.critic_step(None, x, generator(4 + step), lr=0.01)
    objective.watch(Gaussian([0.0, 1.0]).double(), held_out, generator(3))
    assert not torch.equal(g(held_out).detach(), before)


def test_a_critic_that_is_blind_to_the_model_is_corrected_to_score_matching():
    """Of banana-shaped points the Gaussian's score knows nothing of the dependence that this model has."""
    x = skewed(4000)

    class Bent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def log_prob(self, x):
            return -0.5 * x[:, 0] ** 2 - 0.5 * (x[:, 1] - self.weight * x[:, 0] ** 2) ** 2

    model, objective = Bent(), LearnedStein(jumps=False)
    objective.begin(model, x, generator(1))
    objective.watch(model, x, generator(2))
    assert float(objective.auxiliary.correction) == 1.0
    slope = torch.autograd.grad(objective.model_loss(model, x, generator(3)), model.weight)[0]
    matched = ScoreMatching("sliced", noise="rademacher").model_loss(model, x, generator(3))
    torch.testing.assert_close(slope, torch.autograd.grad(matched, model.weight)[0])


def test_a_critic_that_is_right_is_seldom_corrected_in_full():
    """What the held-out points say is then noise: a standard normal number whose square reaches one in .32 of cases."""
    model, full = Gaussian([0.3, 0.0, 0.0]).double(), 0
    for seed in range(40):
        x = torch.randn(5000, 3, generator=generator(seed), dtype=torch.float64)
        objective = LearnedStein(shrinkage=0.0)
        objective.begin(model, x[:4500], generator(1))
        objective.watch(model, x[4500:], generator(2))
        full += float(objective.auxiliary.correction) == 1.0
    # Binomial with 40 tries and probability .34, the noise of g included: above 25 in one of a hundred thousand runs.
    assert full <= 25


def test_a_model_that_can_learn_nothing_by_heart_is_corrected_in_full():
    """However little held-out points say."""
    model, x = Gaussian([0.0, 0.0]).double(), torch.randn(2500, 2, generator=generator(1), dtype=torch.float64)
    objective = LearnedStein(shrinkage=0.0)
    objective.begin(model, x[:2000], generator(1))
    objective.watch(model, x[2000:], generator(2))
    assert float(objective.auxiliary.correction) < 0.9
    objective.watch(model, x[2000:], generator(2), is_first_pass=True)
    assert float(objective.auxiliary.correction) == 1.0


@pytest.mark.parametrize("is_fresh", [True, False])
def test_points_of_a_function_come_once_and_those_of_an_array_again(is_fresh):
    told = []

    class Told(LearnedStein):
        def watch(self, *arguments, is_first_pass):
            told.append(is_first_pass)

    x = torch.randn(1000, 2, generator=generator(0))
    fresh = lambda n, source: torch.randn(n, 2, generator=source)  # noqa: E731
    options = {"objective": Told(), "steps": 80, "batch_size": 10, "validation": 0.1, "progress": False}
    train(Gaussian([0.0, 0.0]), fresh if is_fresh else x, **options)
    # Three batches a step: the 90 batches of a pass are not enough for steps 26 to 50.
    assert told == [True, is_fresh, is_fresh, is_fresh]


def test_networks_without_a_second_derivative_are_not_corrected():
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).double()
    model = from_log_prob(lambda x: network(x)[:, 0])
    x, objective = skewed(300), LearnedStein()
    objective.begin(model, x, generator(1))
    objective.watch(model, x, generator(2))
    assert float(objective.auxiliary.correction) == 0.0


def test_a_loop_of_ones_own():
    """What docs/training.md shows: the loss is that of any loop of torch."""
    x = 2.0 + 0.5 * torch.randn(2000, 2, generator=generator())
    model, loss = Gaussian([0.0, 0.0]), LearnedStein()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    loss.begin(model, x, generator(1))
    for step in range(200):
        batch = x[torch.randint(len(x), (128,), generator=generator(step))]
        loss.critic_step(model, batch)
        optimiser.zero_grad()
        loss(model, batch).backward()
        optimiser.step()
    # Gradients of the model do not reach the critic, nor those of the critic the model.
    assert float((model.mean - 2.0).detach().abs().max()) < 0.1


def test_the_score_along_is_enough_for_the_residual_critic_to_train():
    class Along(Gaussian):
        def score_along(self, x, v):
            return (self.score(x) * v).sum(1)

    x = torch.randn(50, 2, generator=generator())
    losses = []
    for model in (Gaussian([0.5, 0.0]), Along([0.5, 0.0])):
        objective = LearnedStein()
        objective.begin(model, x, generator(1))
        losses.append(objective.model_loss(model, x, generator(2)))
    torch.testing.assert_close(*losses)


def test_the_defaults_are_those_of_the_form():
    assert LearnedStein().settings().items() >= {"residual": True, "critic_steps": 2, "shrinkage": None}.items()
    assert LearnedStein(MLP(2)).settings().items() >= {"residual": False, "critic_steps": 5, "shrinkage": 0.01}.items()


def test_bad_settings():
    with pytest.raises(InputError, match="shrinkage: expected a number from 0 to 1, got 2"):
        LearnedStein(shrinkage=2.0)
    with pytest.raises(InputError, match="l2: expected a positive number, got 0"):
        LearnedStein(l2=0.0)
    with pytest.raises(InputError, match="critic_steps: expected a whole number from 1 on, got 0"):
        LearnedStein(critic_steps=0)
