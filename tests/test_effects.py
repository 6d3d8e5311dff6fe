import math
import re

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Gumbel

import steinscope.effects as effects_module
from steinscope import gof_test
from steinscope.bayes import from_arrays
from steinscope.chains import measure_chains
from steinscope.effects import find_effects
from steinscope.maps.angles import FREQUENCIES
from steinscope.scoring import make_points

from helpers import generator, normal

ROOT = torch.linalg.cholesky(0.6 * torch.ones(4, 4) + 0.4 * torch.eye(4)).double()
PRECISION = torch.linalg.inv(ROOT @ ROOT.T)
SEEDS = 200
# Four standard errors of a share of .95 in 200.
LEAST_COVERED = 0.95 - 4 * math.sqrt(0.95 * 0.05 / SEEDS)


def effects(x, score):
    return find_effects(make_points(x, score))


def related(n, seed):
    """Points of a normal distribution whose coordinates have variance 1 and correlation .6, and its score."""
    return normal(n, 4, seed).double() @ ROOT.T


def shifted(x):
    x[:, 2] += 0.3
    return "mean", (2,), 0.3


def stretched(x):
    x[:, 2] *= 0.8
    return "scale", (2,), 0.8


def mixed(x):
    # The correlation of the first two is 0.6 in the model.
    x[:, 1] = (x[:, 1] - 0.6 * x[:, 0]) / 0.8 * math.sqrt(1 - 0.3**2) + 0.3 * x[:, 0]
    return "correlation", (0, 1), -0.3


@pytest.mark.slow
@pytest.mark.parametrize("change", [shifted, stretched, mixed])
def test_sizes_of_gaussians_are_exact_and_intervals_cover(change):
    covered, sizes = [], []
    for seed in range(SEEDS):
        x = related(600, seed)
        kind, coordinates, truth = change(x)
        found = {(one.kind, one.coordinates): one for one in effects(x, -x @ PRECISION)}
        assert (kind, coordinates) in found, seed
        one = found[kind, coordinates]
        covered.append(one.low < truth < one.high)
        sizes.append(one.size)
    assert np.mean(covered) > LEAST_COVERED
    assert abs(np.mean(sizes) - truth) < 4 * np.std(sizes) / math.sqrt(SEEDS) + 0.005


def test_a_wrong_mean_is_said_once_and_as_nothing_else():
    others = 0
    for seed in range(40):
        x = normal(1000, 5, seed)
        x[:, 1] += 0.2
        found = [(one.kind, one.coordinates) for one in effects(x, -x)]
        assert ("mean", (1,)) in found, seed
        others += len(found) > 1
    # 5% of 40, and three standard errors of that.
    assert others <= 6


@pytest.mark.parametrize("shift, factor, kind", [(0.4, 1.0, "mean"), (0.0, 1.25, "scale")])
def test_in_a_skewed_model_a_shift_is_a_shift_and_a_stretch_a_stretch(shift, factor, kind):
    torch.manual_seed(0)
    y = Gumbel(0.0, 1.0).sample((2000, 3))
    x = y.clone()
    x[:, 1] = 0.5772 + factor * (x[:, 1] - 0.5772) + shift
    found = effects(x, torch.exp(-x) - 1)
    assert (found[0].kind, found[0].coordinates) == (kind, (1,)) and {"mean", "scale"} & {o.kind for o in found} == {
        kind
    }


def test_where_the_model_is_right_little_is_listed():
    listed = 0
    for seed in range(100):
        torch.manual_seed(seed)
        x = Gumbel(0.0, 1.0).sample((1000, 4))
        listed += bool(effects(x, torch.exp(-x) - 1))
    # 5% at most, and three standard errors of that.
    assert listed <= 12


def test_the_shape_of_a_marginal_has_the_size_of_the_total_variation():
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn(5000, generator=generator).sign()
    x = normal(5000, 4, 1)
    x[:, 3] = 0.8 * signs + 0.6 * x[:, 3]
    (one,) = effects(x, -x)
    grid = np.linspace(-8, 8, 20_001)
    humps = (stats.norm.pdf(grid, 0.8, 0.6) + stats.norm.pdf(grid, -0.8, 0.6)) / 2
    truth = np.trapezoid(np.abs(humps - stats.norm.pdf(grid)), grid) / 2
    assert (one.kind, one.coordinates) == ("shape", (3,)) and one.low < truth < one.high and one.high - one.low < 0.05


def test_what_depends_on_another_coordinate_has_the_size_of_its_conditional_mean():
    x = normal(5000, 3, 2)
    x[:, 1] += torch.cos(2 * x[:, 0]) - math.exp(-2)
    found = {one.coordinates: one for one in effects(x, -x) if one.kind == "dependence"}
    # The variance of cos 2u is (1 + e⁻⁸) / 2 - e⁻⁴, and the model's standard deviation is 1.
    assert found[1, 0].low < math.sqrt((1 + math.exp(-8)) / 2 - math.exp(-4)) < found[1, 0].high


def test_the_interval_of_a_size_that_cannot_be_negative_ends_at_zero():
    """A few far points make the size of a dependence uncertain."""
    x = normal(200, 3, 8)
    x[:, 1] = x[:, 1] ** 3 / 4
    x[:, 2] = 0.3 * x[:, 2] ** 3 * (1 + x[:, 1] ** 2)
    (one,) = [one for one in effects(x, -x) if one.kind == "dependence"]
    assert one.low == 0.0 and "(0 to " in str(one)


def test_no_gaussian_is_described_by_constant_scores():
    """As of an exponential distribution, whose slopes are nothing but rounding."""
    for seed in range(20):
        x = np.random.default_rng(seed).exponential(size=(300, 2))
        assert effects(x, -np.ones_like(x)) == ()
        one = np.stack([-np.ones(300), 1 - x[:, 1]], 1)
        assert all(0 not in found.coordinates for found in effects(x, one))


def test_scores_of_the_energy_are_recognised():
    x = related(500, 0)
    (one,) = effects(x, x @ PRECISION)
    assert one.kind == "sign"
    assert "were gradients of the potential energy, minus the log-density, given" in str(gof_test(x, x @ PRECISION))


def test_scores_that_are_all_too_large_are_one_finding():
    x = related(2000, 0)
    (one,) = effects(x, -2 * x @ PRECISION)
    assert one.kind == "factor" and one.low < math.sqrt(2) < one.high
    assert str(one).startswith("every coordinate spreads 4") and str(one).endswith("had been multiplied by 2")


def test_scores_that_push_outwards_describe_no_spread():
    x = normal(1000, 2)
    score = -x
    score[:, 1] = x[:, 1] - x[:, 1] ** 3 / 10
    kinds = {(one.kind, one.coordinates) for one in effects(x, score)}
    assert ("outward", (1,)) in kinds and not kinds & {("scale", (1,)), ("mean", (1,))}


def test_few_points_for_many_coordinates_are_looked_at_one_by_one():
    x = normal(300, 100)
    x[:, 7] += 0.6
    x[:, 8] *= 1.5
    assert [(one.kind, one.coordinates) for one in effects(x, -x)] == [("mean", (7,)), ("scale", (8,))]


def test_a_coordinate_that_comes_again_is_looked_at_by_itself():
    """The slopes of the scores then have no inverse, and whether rounding leaves them one is chance."""
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(300, 1)) * np.ones(3)
        assert {one.kind for one in effects(x, -x)} <= {"mean", "scale", "shape"}, seed
        assert all(1.3 < one.size < 1.7 for one in effects(1.5 * x, -1.5 * x) if one.kind in ("scale", "factor"))


def test_sizes_do_not_depend_on_units_or_on_how_coordinates_depend_on_each_other():
    x = related(1000, 3)
    x[:, 1] += 0.5
    unit = torch.tensor([1.0, 1e-6, 1e5, 3.0]).double()
    ours, theirs = effects(x, -x @ PRECISION), effects(x * unit + 7, -x @ PRECISION / unit)
    assert [str(one) for one in ours] == [str(one) for one in theirs] and len(ours) >= 1
    # A fifth coordinate that is a sum of two others has no density; nothing must break.
    effects(torch.cat([x, x[:, :1] + x[:, 1:2]], 1), torch.cat([-x @ PRECISION, 0 * x[:, :1]], 1))


def test_a_tiny_shift_reads_as_one():
    x = normal(400_000, 2, 1)
    x[:, 0] += 0.02
    (one,) = effects(x, -x)
    assert one.is_small and str(one).startswith("x[0] lies 0.0") and one.z > 10


def test_findings_speak_of_the_posterior_where_points_are_draws():
    x = normal(1000, 2).numpy().reshape(2, 500, 2) + [0.0, 0.5]
    draws = from_arrays(x, -x, names=["mu", "theta[Choate]"])
    result = gof_test(draws, critics="closed form")
    assert result.about == "posterior" and "theta[Choate] lies 0.5" in str(result)
    assert "sd above the posterior (" in str(result) and "the posterior is rejected" in str(result)


def test_nothing_is_listed_where_nothing_was_found():
    x = normal(500, 2, 4)
    assert gof_test(x, -x, critics="closed form").findings == ()


@pytest.mark.slow
def test_intervals_of_chains_cover():
    covered = []
    for seed in range(SEEDS):
        noise = np.random.default_rng(seed).normal(size=(4, 1000, 2))
        x = noise.copy()
        for t in range(1, 1000):
            x[:, t] = 0.8 * x[:, t - 1] + 0.6 * noise[:, t]
        x[:, :, 1] += 0.5
        points = make_points(x.reshape(-1, 2), -x.reshape(-1, 2))
        found = find_effects(points, measure_chains(points, (4, 1000)))
        (one,) = [one for one in found if (one.kind, one.coordinates) == ("mean", (1,))]
        covered.append(one.low < 0.5 < one.high)
    assert np.mean(covered) > LEAST_COVERED


def test_scores_that_push_every_coordinate_outwards_describe_no_gaussian():
    """Scores so small that they are not those of a wrong sign, either."""
    x = normal(150, 1).double()
    (found,) = effects(x, 1e-6 * x)
    assert found.kind == "outward" and found.coordinates == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_coordinate_with_two_values_is_said_without_needless_digits(dtype):
    x = torch.arange(400).remainder(2)[:, None].to(dtype)
    said = [str(one) for one in gof_test(x, -x, critics="closed form").findings]
    assert any(
        re.fullmatch(r"x\[0\] spreads (0.50{2,3}) times as much as the model says \(\1 to \1\)", one) for one in said
    )
    # Functions of two values are all linear: how much of the mass lies elsewhere cannot be told.
    assert "x[0] has another shape than the model says" in said


def test_shapes_of_many_coordinates_take_work_in_proportion_to_their_number(monkeypatch):
    """Each coordinate is looked at by itself: the numbers that are computed for shapes do not grow with its square."""
    seen = []
    original = effects_module._Shapes._residual

    def counted(self, number, columns=slice(None)):
        found = original(self, number, columns)
        seen.append(found[0].numel())
        return found

    monkeypatch.setattr(effects_module._Shapes, "_residual", counted)
    n, d = 200, 150
    x = torch.randn(n, d, generator=generator()).double().exp()
    x = (x - x.mean(0)) / x.std(0)
    shapes = [one for one in effects(x, -x) if one.kind == "shape"]
    functions = 2 * len(FREQUENCIES)
    assert len(shapes) > d / 2 and sum(seen) <= 2 * functions * n * d


@pytest.mark.parametrize("n", [60, 400])
def test_a_coordinate_by_itself_is_as_among_all(n):
    """60 points of 20 coordinates are too few for correlations, 400 are enough."""
    x = torch.randn(n, 20, generator=generator()).double() @ torch.randn(20, 20, generator=generator(1)).double()
    view = effects_module._Comparison.of(x, -x, lambda values: values.std(0) / math.sqrt(n), n - 1)
    shapes = effects_module._Shapes(effects_module._Described.by(view))
    assert view.is_joint == (n == 400)
    for number in (0, 3):
        every, own, slopes = shapes._residual(number)
        torch.testing.assert_close(slopes.diagonal(), own)
        for i in (0, 19):
            alone, slope, _ = shapes._residual(number, slice(i, i + 1))
            torch.testing.assert_close(alone[:, 0], every[:, i])
            torch.testing.assert_close(slope[0], own[i])
