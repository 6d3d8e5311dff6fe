"""Unconstrained coordinates: the bijections, their Jacobians, and models and tests in them."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import (
    Beta,
    Categorical,
    Dirichlet,
    Exponential,
    Gamma,
    HalfNormal,
    Independent,
    LogNormal,
    MixtureSameFamily,
    Normal,
    Pareto,
    Uniform,
)

from steinscope import InputError, compare, discrepancy, fit_critic, from_log_prob, from_score, gof_test
from steinscope.critics import Linear
from steinscope.kernels import fssd_test, ksd_estimate, ksd_test, ksdagg_test, linear_ksd_test
from steinscope.models import EBM
from steinscope.modes import mode_weights
from steinscope.objectives import score_matching
from steinscope.scoring import make_points
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained, UnconstrainedModel

from helpers import generator


def uniform(shape, low=0.05, high=0.95):
    return low + (high - low) * torch.rand(shape, generator=generator(), dtype=torch.float64)


SHARES = uniform((6, 4)) / uniform((6, 4)).sum(1, keepdim=True)
STACKED = torch.stack([SHARES, SHARES.roll(1, 1)], 1)
# A support, and points inside of it.
REGIONS = {
    "positive": ("positive", uniform((6, 2))),
    "unit": ("unit", uniform((6, 2, 2))),
    "above": ((2.0, None), 2 + uniform((6, 1))),
    "below": ((None, 2.0), 2 - uniform((6, 1))),
    "between": ((-1.0, 3.0), uniform((6, 2), -0.9, 2.9)),
    "each": (["real", "positive", (None, 1.0), (0.0, 2.0)], uniform((6, 4))),
    "simplex": ("simplex", SHARES),
    "two simplices": ("simplex", STACKED),
}


def coordinates_of(name):
    support, x = REGIONS[name]
    return Unconstrained(find_region(support, None, x.shape[1:])), x


def log_prob(x):
    """A density that treats no two coordinates alike."""
    flat = x.flatten(1)
    return (torch.arange(1, flat.shape[1] + 1).to(x) * flat).sin().sum(1) - flat[:, 0] * flat[:, -1]


@pytest.mark.parametrize("name", REGIONS)
def test_points_go_there_and_back(name):
    coordinates, x = coordinates_of(name)
    u = coordinates.points(x)
    assert u.shape == (len(x), *coordinates.shape) and len(coordinates.owner) == coordinates.dim == u[0].numel()
    torch.testing.assert_close(coordinates.original(u), x)
    anywhere = 60 * torch.randn(100, *coordinates.shape, generator=generator())
    coordinates.region.check(coordinates.original(anywhere), "x")


@pytest.mark.parametrize("name", REGIONS)
def test_determinants_scores_and_fields_are_those_of_the_jacobian(name):
    coordinates, x = coordinates_of(name)
    u = coordinates.points(x)
    f = torch.randn(u.shape, generator=generator(1), dtype=torch.float64)
    score = torch.autograd.functional.jacobian(lambda y: log_prob(y).sum(), x)
    scores, fields = coordinates.scores(u, score), coordinates.field(u.flatten(1), f.flatten(1))
    kept = torch.ones(coordinates.outer_dim, dtype=torch.bool)
    for groups in coordinates.region.simplices:
        kept[groups[:, -1]] = False

    def outer(point):
        return coordinates.original(point.reshape(1, *coordinates.shape)).flatten()

    def log_det(point):
        return torch.autograd.functional.jacobian(outer, point, create_graph=True)[kept].slogdet()[1]

    for i, point in enumerate(u.flatten(1)):
        jacobian = torch.autograd.functional.jacobian(outer, point)
        torch.testing.assert_close(coordinates.log_det(u[i : i + 1])[0], log_det(point))
        expected = jacobian.T @ score[i].flatten() + torch.autograd.functional.jacobian(log_det, point)
        torch.testing.assert_close(scores[i].flatten(), expected)
        torch.testing.assert_close(fields[i], jacobian @ f[i].flatten())


@pytest.mark.parametrize("name", REGIONS)
def test_a_model_is_the_same_by_its_log_density_by_its_score_and_by_an_array(name):
    support, x = REGIONS[name]
    coordinates, _ = coordinates_of(name)
    score = torch.autograd.functional.jacobian(lambda y: log_prob(y).sum(), x)
    numbers = from_score(lambda y: score.numpy(), numpy=True)
    models = [from_log_prob(log_prob), from_score(lambda y: score), score, numbers, score.numpy()]
    first, *others = (make_points(x, model, support=support) for model in models)
    for other in others:
        torch.testing.assert_close(other.x, first.x)
        torch.testing.assert_close(other.score, first.score, rtol=1e-5, atol=1e-7)
    moved = UnconstrainedModel(models[0], coordinates)
    torch.testing.assert_close(moved.score(first.x), first.score)
    slopes = torch.autograd.functional.jacobian(lambda u: moved.log_prob(u).sum(), first.x)
    torch.testing.assert_close(slopes, first.score)
    assert not hasattr(UnconstrainedModel(models[1], coordinates), "log_prob")


def test_coordinates_rise_with_those_of_the_user():
    for name in REGIONS:
        coordinates, x = coordinates_of(name)
        step = 1e-3 * torch.eye(coordinates.dim, dtype=torch.float64)
        u = coordinates.points(x[:1]).flatten(1)
        moved = (coordinates.original((u + step).reshape(-1, *coordinates.shape)) - x[:1]).flatten(1)
        assert (moved[torch.arange(coordinates.dim), coordinates.owner] > 0).all()


def test_on_a_simplex_only_slopes_along_it_count():
    """Whatever is added to all coordinates of a score, and also a gradient in all of them but the last."""
    alpha = torch.tensor([0.7, 1.0, 2.0, 3.0], dtype=torch.float64)
    score = (alpha - 1) / SHARES
    expected = make_points(SHARES, Dirichlet(alpha)).score
    for same in (
        score,
        score + torch.arange(6.0)[:, None],
        torch.where(torch.arange(4) < 3, score - score[:, 3:], 0.0),
    ):
        torch.testing.assert_close(make_points(SHARES, same, support="simplex").score, expected)


def test_close_to_an_edge_float32_is_enough():
    """The score of a Beta in the logit of x is a (1 - x) - b x. The last float32 number before 1 is 1 - 2⁻²⁴."""
    x = torch.tensor([[1e-30], [1e-8], [0.3], [1 - 2**-24]])
    points = make_points(x, Beta(0.7, 0.4))
    torch.testing.assert_close(points.score, 0.7 * (1 - x) - 0.4 * x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(points.x[:, 0], torch.logit(x.double())[:, 0].float())
    # The rest of a stick is summed, not taken from 1.
    rows = torch.tensor([[0.5, 0.5 - 2**-25, 1e-12]])
    u = make_points(rows, Dirichlet(torch.ones(3))).x
    assert u[0, 1] == pytest.approx(np.log((0.5 - 2**-25) / 1e-12), rel=1e-6)


@pytest.mark.parametrize(
    "model", [Exponential(torch.ones(2)), -np.ones((500, 2), dtype=np.float32)], ids=["model", "array"]
)
def test_points_on_the_disk_give_the_same(tmp_path, model):
    torch.manual_seed(0)
    x = Exponential(torch.ones(2)).sample((500,)).numpy()
    rows = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=x.shape)
    rows[:] = x
    model = Independent(model, 1) if isinstance(model, Exponential) else model
    results = [gof_test(points, model, support="positive", critics="closed form") for points in (x, rows)]
    assert results[0].pvalue == results[1].pvalue and isinstance(
        make_points(rows, model, support="positive").x, np.memmap
    )


def test_a_test_is_that_of_the_unconstrained_points():
    """A log-normal in x is a normal in log x."""
    torch.manual_seed(0)
    x = LogNormal(torch.zeros(2), 1.0).sample((400,))
    model = Independent(LogNormal(torch.zeros(2), 1.2), 1)
    same = Independent(Normal(torch.zeros(2), 1.2), 1)
    learned = partial(gof_test, critics="closed form")
    for test in (learned, ksd_test, linear_ksd_test, fssd_test, ksdagg_test):
        ours, theirs = test(x, model), test(x.double().log().float(), same)
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-2)
        assert "computed in unconstrained coordinates (log x)" in ours.notes
    value, expected = discrepancy(x, model, critics="closed form"), discrepancy(x.log(), same, critics="closed form")
    assert value.value == pytest.approx(expected.value, rel=1e-2)
    assert ksd_estimate(x, model).value == pytest.approx(ksd_estimate(x.log(), same).value, rel=1e-2)
    assert score_matching(x, model).value == pytest.approx(score_matching(x.log(), same).value, rel=1e-4)
    ranking = compare(
        {"right": LogNormal(torch.zeros(1), 1.0), "wrong": -1 / x[:, :1]}, x[:, :1], critics="closed form"
    )
    assert ranking.names == ("right", "wrong")
    assert "log x" in ranking.estimates["wrong"].notes[0]


@pytest.mark.parametrize("name", ["exponential", "truncated normal", "dirichlet"])
def test_everything_works_in_inference_mode(name):
    model, draw = BOUNDED[name]
    torch.manual_seed(0)
    x = draw(200)
    expected = gof_test(x, model, critics="closed form").pvalue
    with torch.inference_mode():
        assert gof_test(x.clone(), model, critics="closed form").pvalue == expected


def test_a_critic_is_fitted_in_unconstrained_coordinates():
    torch.manual_seed(0)
    x = LogNormal(torch.zeros(2), 1.0).sample((2000,))
    fit = fit_critic(Linear(2), x, -1 / x - x.log() / (4 * x), support="positive")
    u = fit.coordinates.points(x)
    # In log x the scores of model and data are -u / 4 and -u, and the best critic is their difference.
    assert (fit.critic(u) - 0.75 * u).abs().mean() < 0.1


def test_findings_and_explanations_are_about_the_coordinates_of_the_user():
    torch.manual_seed(0)
    x = torch.stack([Dirichlet(torch.tensor([1.0, 1.0, 1.0])).sample((1000,)) for _ in range(2)], 1)
    alpha = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0]])
    result = gof_test(x, Independent(Dirichlet(alpha), 1), critics=["additive"], names=list("abcdef"))
    assert result.dim == 6 and result.rejected
    strongest = result.findings[0]
    # x[1, 1] is flat coordinate 4 of six, and the fourth of the four unconstrained ones.
    assert strongest.coordinates == (4,) and strongest.names == ("e",)
    explanation = result.explain(worst=3)
    assert len(explanation.coordinates) == 6 and explanation.order[0] == 4 and explanation.coordinates[5] == 0
    assert explanation.coordinates.sum() == pytest.approx(explanation.total)
    for point in explanation.worst:
        np.testing.assert_allclose(point.x, x[point.index].flatten(), rtol=1e-4)
    assert explanation.critic_at(explanation.sample[:5]).shape == (5, 6)


def test_the_features_of_a_model_are_those_of_its_points():
    torch.manual_seed(0)
    x = Exponential(torch.ones(2)).sample((300,))
    model = EBM.perceptron(2, 8)
    result = gof_test(x, model, support="positive", critics=["mean", "model"])
    assert [critic.name for critic in result.critics] == ["mean", "model"] and np.isfinite(result.statistic)
    coordinates = Unconstrained(find_region("positive", None, [2]))
    moved = UnconstrainedModel(model, coordinates)
    torch.testing.assert_close(moved.features(x.log()), model.features(x), rtol=1e-4, atol=1e-5)


def truncated(low, high):
    """Draws of a standard normal between two values."""
    ends = torch.special.ndtr(torch.tensor([low, high]).double())
    return lambda n: torch.special.ndtri(ends[0] + (ends[1] - ends[0]) * torch.rand(n, 1).double()).float()


ALPHA = torch.tensor([0.7, 1.0, 2.0, 3.0])
GAMMAS = MixtureSameFamily(
    Categorical(torch.tensor([0.3, 0.7])), Gamma(torch.tensor([1.0, 6.0]), torch.tensor([1.0, 2.0]))
)
# A model, and draws from it.
BOUNDED = {
    "exponential": (Exponential(1.0), lambda n: Exponential(1.0).sample((n, 1))),
    "half-normal": (HalfNormal(2.0), lambda n: HalfNormal(2.0).sample((n, 1))),
    "uniform": (Uniform(0.0, 1.0), lambda n: Uniform(0.0, 1.0).sample((n, 1))),
    "beta": (Beta(0.7, 0.7), lambda n: Beta(0.7, 0.7).sample((n, 1))),
    "pareto": (Pareto(1.0, 2.0), lambda n: Pareto(1.0, 2.0).sample((n, 1))),
    "dirichlet": (Dirichlet(ALPHA), lambda n: Dirichlet(ALPHA).sample((n,))),
    "truncated normal": (from_log_prob(lambda x: -0.5 * x[:, 0] ** 2, support=(-0.5, 1.5)), truncated(-0.5, 1.5)),
    "mixture of gammas": (GAMMAS, lambda n: GAMMAS.sample((n, 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDED)
def test_level_on_bounded_models(name):
    """25 tests at 20%: 5 rejections are expected; none, or more than 12, have a probability of 0.4%."""
    model, draw = BOUNDED[name]
    rejections = 0
    for seed in range(25):
        torch.manual_seed(seed)
        rejections += gof_test(draw(300), model, critics="closed form", alpha=0.2, seed=seed).rejected
    assert 1 <= rejections <= 12


@pytest.mark.parametrize("name", ["exponential", "half-normal", "pareto"])
def test_without_coordinates_the_right_model_is_rejected(name):
    model, draw = BOUNDED[name]
    torch.manual_seed(0)
    x = draw(1000)
    assert gof_test(x, model, support="real", critics="closed form").pvalue < 1e-6
    assert gof_test(x, model, critics="closed form").pvalue > 0.01


def test_power_on_bounded_models():
    """A Gamma(1.3, 1.3) has the mean of the exponential. Over 500 tests at n = 1000 the largest z is 4 on average."""
    torch.manual_seed(0)
    x = Exponential(1.0).sample((1000, 1))
    assert gof_test(x, Gamma(1.3, 1.3), critics="closed form").rejected
    assert not gof_test(x, Gamma(1.0, 1.0), critics="closed form").rejected


def test_modes_are_shown_where_the_user_knows_them():
    """Two log-normals that lie apart in log x, at e^-4 and e^4."""
    centres = torch.tensor([[-4.0], [4.0]])
    weights = Categorical(torch.tensor([0.25, 0.75]))
    model = MixtureSameFamily(weights, Independent(LogNormal(centres, 0.5), 1))
    torch.manual_seed(0)
    x = (centres[torch.arange(600) % 2] + 0.5 * torch.randn(600, 1)).exp()
    table = mode_weights(x, model, starts=torch.ones(1, 1))
    assert table.rejected and table.share.tolist() == [0.5, 0.5]
    # The mode of a log-normal in log x is its median in x.
    np.testing.assert_allclose(np.sort(table.centres[:, 0]), np.exp([-4.0, 4.0]), rtol=0.02)
    np.testing.assert_allclose(np.sort(table.expected), [0.25, 0.75], atol=0.03)
    tested = gof_test(x, model, critics=["modes", "mean"])
    np.testing.assert_allclose(tested.modes.centres, table.centres, rtol=0.05)
    with pytest.raises(InputError, match=r"starts: row 0 holds -1, outside of the support \(0, inf\)"):
        mode_weights(x, model, starts=[[-1.0]])


def test_bounds_below_zero_are_added():
    for support, text in (
        ((-1.0, 2.0), "log((x + 1) / (2 - x))"),
        ((-3.0, None), "log(x + 3)"),
        ((3.0, None), "log(x - 3)"),
    ):
        assert str(Unconstrained(find_region(support, None, (1,)))) == text
