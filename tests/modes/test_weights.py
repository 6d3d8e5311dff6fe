import numpy as np
import pytest
import torch
from scipy import stats

from steinscope import InputError, mode_weights

from helpers import gaussians, normal, sample

TWO = gaussians([0.25, 0.75], [[-4.0, 0.0], [4.0, 0.0]], [1.0, 1.0])
EVEN = gaussians([0.5, 0.5], [[-4.0, 0.0], [4.0, 0.0]], [1.0, 1.0])


def test_the_table_says_what_is_known():
    table = mode_weights(sample(EVEN, 1000), TWO)
    assert table.rejected and table.n == 1000 and table.count.sum() == 1000
    left = int(table.centres[:, 0].argmin())
    assert abs(table.share[left] - 0.5) < 4 * 0.5 / 1000**0.5
    assert abs(table.expected[left] - 0.25) < 4 * table.stderr[left] and table.stderr[left] < 0.01
    np.testing.assert_allclose(table.centres[left], [-4.0, 0.0], atol=0.01)
    text = str(table)
    assert "1000 points, 2 modes" in text and "divided in another way than the model says" in text
    finding = str(table.findings()[0])
    assert "of the points; the model gives it" in finding and "% ± " in finding


def test_the_model_that_the_points_come_from_is_not_rejected():
    table = mode_weights(sample(TWO, 1000), TWO)
    assert not table.rejected and table.findings() == ()
    assert "no other division than the model's was found" in str(table)


def test_a_model_of_another_library():
    """A kernel density has the mass of each cluster that it was made of."""
    x = np.random.default_rng(0).normal(size=1000) + np.where(np.arange(1000) < 500, -9, 9)
    table = mode_weights(x, stats.gaussian_kde(x[250:], bw_method=0.5))
    # Two thirds of these points are on the right.
    assert table.rejected and np.abs(np.sort(table.expected) - [1 / 3, 2 / 3]).max() < 4 * table.stderr.max() < 0.05


def test_shares_of_the_model_are_within_their_standard_errors():
    """Three modes of other widths in five dimensions: 30 tables, 90 shares, of which 95% should be covered.

    Neither how the points are divided nor a constant in the log-density matters.
    """
    places = torch.zeros(3, 5)
    places[0, 0], places[1, 0], places[2, 1] = -8.0, 8.0, 10.0
    weights = [0.2, 0.3, 0.5]
    model = gaussians(weights, places.tolist(), [1.0, 1.5, 0.7])
    data = gaussians([0.6, 0.1, 0.3], places.tolist(), [1.0, 1.5, 0.7])

    class Shifted:
        def log_prob(self, x):
            return model.log_prob(x) + 123.0

    covered, off = 0, []
    for seed in range(30):
        table = mode_weights(sample(data, 400, seed), Shifted(), seed=seed)
        which = [int(np.linalg.norm(places.numpy() - centre, axis=1).argmin()) for centre in table.centres]
        error = table.expected - np.array(weights)[which]
        covered += int((np.abs(error) < 1.96 * table.stderr).sum())
        off.append(error[np.argsort(which)])
    # 90 shares, two of three of which are free: four standard errors of a rate of .95 over 60.
    assert covered / 90 > 0.95 - 4 * (0.0475 / 60) ** 0.5
    mean, spread = np.mean(off, 0), np.std(off, 0) / 30**0.5
    assert (np.abs(mean) < 4 * spread).all()


def test_a_mode_without_points_gets_its_share_from_draws_alone():
    model = gaussians([0.3, 0.7], [[0.0] * 4, [8.0] + [0.0] * 3], [1.0, 1.0])
    table = mode_weights(normal(300, 4), model)
    assert table.count.tolist() == [300, 0] and table.rejected
    assert abs(table.expected[1] - 0.7) < 4 * table.stderr[1] and table.stderr[1] < 0.05


def test_one_mode_has_nothing_to_divide():
    table = mode_weights(normal(100, 2), gaussians([1.0], [[0.0, 0.0]], [1.0]))
    assert table.share.tolist() == table.expected.tolist() == [1.0] and not table.rejected
    assert "one mode was found" in str(table)


def test_units_offsets_and_shapes_do_not_matter():
    x = sample(EVEN, 400)
    scale, offset = torch.tensor([1e3, 1e-3]), torch.tensor([1e4, 5.0])

    class Moved:
        def log_prob(self, y):
            return TWO.log_prob((y.reshape(len(y), 2) - offset) / scale)

    table, moved = mode_weights(x, TWO), mode_weights((x * scale + offset).reshape(400, 2, 1), Moved())
    assert moved.count.tolist() == table.count.tolist() and moved.centres.shape == (2, 2, 1)
    np.testing.assert_allclose(moved.expected, table.expected, atol=0.02)


def test_it_draws_points_of_one_coordinate_and_of_many():
    line = gaussians([0.5, 0.5], [[0.0], [8.0]], [1.0, 1.0])
    assert len(mode_weights(sample(line, 100), line).plot().axes) == 2
    assert len(mode_weights(sample(TWO, 100), TWO).plot().axes) == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((normal(100, 2), -normal(100, 2)), r"model: expected a model with log_prob\(x\)"),
        ((normal(10, 2), TWO), "x: 10 rows are too few, at least 20 are needed"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        mode_weights(*arguments)


def test_starts_of_another_shape_are_named():
    with pytest.raises(InputError, match=r"starts: expected points of shape \(2,\) like those in x, got \(3,\)"):
        mode_weights(normal(100, 2), TWO, starts=[[0.0, 0.0, 0.0]])
