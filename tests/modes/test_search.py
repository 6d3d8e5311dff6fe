import math

import pytest
import torch
from torch.distributions import Categorical, Gamma, Independent, MixtureSameFamily, MultivariateNormal, Normal

from steinscope import InputError
from steinscope.metric import Metric
from steinscope.modes import find_modes
from steinscope.modes.search import starts_around

from helpers import gaussians, generator, normal, sample, surface


def search(model, x, starts=None, metric=None):
    return find_modes(surface(model, x.shape[1], metric), x.double(), generator(0), starts)


def test_modes_and_their_shapes_are_those_of_a_mixture():
    first, second = torch.tensor([[1.0, 0.6], [0.6, 2.0]]), torch.tensor([[0.3, 0.0], [0.0, 0.1]])
    parts = MultivariateNormal(torch.tensor([[-6.0, 0.0], [6.0, 2.0]]), torch.stack([first, second]))
    model = MixtureSameFamily(Categorical(torch.tensor([0.5, 0.5])), parts)
    modes = search(model, sample(model, 100))
    assert len(modes) == 2
    order = modes.centres[:, 0].argsort()
    torch.testing.assert_close(modes.centres[order].float(), parts.mean, atol=1e-3, rtol=0)
    covariances = (modes.roots @ modes.roots)[order].float()
    torch.testing.assert_close(covariances, torch.stack([first, second]), atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(modes.log_volumes, modes.roots.logdet())
    torch.testing.assert_close(modes.roots @ modes.inverse_roots, torch.eye(2).double().expand(2, 2, 2))


@pytest.mark.parametrize("apart, count", [(1.5, 1), (6.0, 2), (40.0, 2)])
def test_modes_are_apart_where_there_is_a_valley_between_them(apart, count):
    model = gaussians([0.5, 0.5], [[0.0, 0.0], [apart, 0.0]], [1.0, 1.0])
    assert len(search(model, sample(model, 100))) == count


def test_one_mode_is_found_in_many_dimensions_and_with_other_scales():
    scales = torch.logspace(-2, 2, 20)
    model = Independent(Normal(torch.zeros(20), scales), 1)
    x = sample(model, 100)
    metric = Metric.by_scores(x, -x / scales**2)
    assert len(find_modes(surface(model, 20, metric), metric.points(x).double(), generator(0))) == 1


def test_a_mode_that_no_point_is_in_is_found_around_the_points():
    model = gaussians([0.5, 0.5], [[0.0] * 20, [6.0] + [0.0] * 19], [1.0, 1.0])
    assert len(search(model, normal(20, 20))) == 2


def test_starts_of_the_user_reach_what_is_far_away():
    model = gaussians([0.5, 0.5], [[0.0, 0.0], [500.0, -300.0]], [1.0, 1.0])
    x = normal(50, 2)
    assert len(search(model, x)) == 1
    assert len(search(model, x, torch.tensor([[480.0, -310.0]], dtype=torch.float64))) == 2


def test_there_are_at_most_20():
    places = [[10.0 * i, 10.0 * j] for i in range(6) for j in range(6)]
    model = gaussians([1 / 36] * 36, places, [0.5] * 36)
    assert len(search(model, sample(model, 400))) == 20


def test_the_same_seed_gives_the_same_modes_and_no_global_state_is_touched():
    model = gaussians([0.5, 0.5], [[0.0, 0.0], [6.0, 0.0]], [1.0, 1.0])
    x, state = sample(model, 100), torch.get_rng_state()
    assert torch.equal(search(model, x).centres, search(model, x).centres)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(starts_around(x, generator(1)), starts_around(x, generator(1)))


def test_where_a_model_refuses_points_its_density_is_zero():
    model = Independent(Gamma(torch.full((2,), 3.0), torch.ones(2)), 1)
    places = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [3.0, 0.5]], dtype=torch.float64)
    log_prob = surface(model, 2).log_prob(places)
    expected = model.log_prob(places[[0, 2]].float()).double()
    torch.testing.assert_close(log_prob[[0, 2]], expected)
    assert log_prob[1] == -math.inf
    assert torch.equal(surface(model, 2).score(places)[1], torch.zeros(2, dtype=torch.float64))
    assert len(search(model, sample(model, 100))) == 1


@pytest.mark.parametrize("name", ["points", "starts"])
def test_places_must_be_finite(name):
    model = gaussians([1.0], [[0.0, 0.0]], [1.0])
    bad = torch.tensor([[0.0, 0.0], [0.0, math.inf]], dtype=torch.float64)
    places = {"points": torch.zeros(2, 2, dtype=torch.float64), name: bad}
    with pytest.raises(InputError, match=f"{name}: row 1 is not finite"):
        find_modes(surface(model, 2), generator=generator(), **places)


def test_there_are_no_modes_where_the_log_density_is_not_finite():
    far = torch.full((1, 2), 1e30, dtype=torch.float64)
    # Squares of such numbers are infinite in single precision.
    found = search(Independent(Normal(torch.zeros(2), torch.ones(2)), 1), far)
    assert len(found) == 0 and found.heights.shape == (0,)
