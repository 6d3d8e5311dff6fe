"""Noise that falls to zero, and that keeps few points from being learned by heart."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from steinscope import train
from steinscope.models import EBM, Gaussian
from steinscope.objectives import LearnedStein, score_matching
from steinscope.training.jitter import Jitter, noise_left

from helpers import generator


def test_noise_falls_to_zero_over_four_fifths_of_the_steps():
    left = [noise_left(step, 100) for step in range(1, 101)]
    assert left[0] == 1 and all(a >= b for a, b in zip(left, left[1:], strict=False))
    assert left[39] > 0 and left[80:] == [0] * 20


@pytest.mark.parametrize("n, share", [(40, 0.25), (80, 0.25), (200, 0.1), (2000, 0.01)])
def test_the_noise_has_the_covariance_of_the_points(n, share):
    """20 / n of it, and a quarter at most. With 200 000 draws each entry is within five standard errors, 5 √(2 / n)."""
    x = (
        torch.randn(n, 3, generator=generator()).double()
        @ torch.tensor([[1.0, 0.9, 0], [0, 0.1, 0], [0, 0, 50]]).double()
    )
    places = torch.zeros(200_000, 3).double()
    noise = Jitter(x).added_to(places, 0.5, n, generator(1))
    scale = x.std(0, correction=0) * 0.5
    found, expected = (torch.cov(part.T, correction=0) / scale.outer(scale) for part in (noise, 0.5 * x))
    torch.testing.assert_close(found, share * expected, atol=5 * share * (2 / 200_000) ** 0.5, rtol=0)


@pytest.mark.parametrize("x", [torch.arange(30.0), torch.arange(60.0).view(30, 1, 2), torch.ones(30, 2)])
def test_points_of_any_shape(x):
    moved = Jitter(x).added_to(x, 1.0, 30, generator())
    assert moved.shape == x.shape and moved.dtype == x.dtype
    assert bool((moved == x).all()) == bool((x == x[0]).all())


def spread_of_batches(x, **options):
    """How far the points of all batches are from the nearest of these points."""
    seen = []

    class Watched(Gaussian):
        def score(self, points):
            seen.append(points.detach().clone())
            return super().score(points)

    train(Watched(torch.zeros(2)), x, validation=0, batch_size=20, progress=False, **options)
    known = torch.randn(200, 2, generator=generator()) if callable(x) else x
    return torch.cat(seen).unique(dim=0), torch.cdist(
        torch.cat(seen), known, compute_mode="donot_use_mm_for_euclid_dist"
    ).amin(1)


def test_points_move_from_the_second_time_on_unless_the_user_says_otherwise():
    x = torch.randn(200, 2, generator=generator())
    assert float(spread_of_batches(x, steps=3)[1].max()) == 0
    assert float(spread_of_batches(x, steps=60)[1].max()) > 0.01
    assert float(spread_of_batches(x, steps=60, noise=0)[1].max()) == 0
    assert float(spread_of_batches(x, steps=60, objective=LearnedStein(residual=False))[1].max()) == 0


def test_jitter_ends_where_learning_rates_do_not_fall(monkeypatch):
    monkeypatch.setattr("steinscope.training.loop.OPEN_STEPS", 40)
    x = torch.randn(200, 2, generator=generator())
    early, *_, late = spread_of_batches(x, steps=60, lr_decay=False)[1].chunk(3)
    assert float(early.max()) > 0.01 and float(late.max()) == 0


def test_fresh_points_stay_where_they_are():
    def draw(n, source):
        return torch.randn(n, 2, generator=source).round(decimals=1)

    places, _ = spread_of_batches(draw, steps=60)
    torch.testing.assert_close(places, places.round(decimals=1))


def test_the_result_says_that_few_points_moved():
    def notes(n, **options):
        return train(Gaussian(torch.zeros(2)), torch.randn(n, 2, generator=generator()), steps=20, **options).notes

    assert notes(100)[-1].startswith("There are few points: those that came again were moved by noise of up to 0.5 st")
    assert notes(100, noise=0) == notes(2000) == ()


def test_points_of_a_loader_move_by_how_many_there_are():
    """Only the first 64 batches are looked at before training."""
    x = torch.randn(3000, 2, generator=generator())

    def notes(n, steps):
        loader = DataLoader(TensorDataset(x[:n]), batch_size=4)
        return train(Gaussian(torch.zeros(2)), loader, steps=steps, progress=False).notes

    # Twenty steps take 60 batches of 4 points.
    assert notes(3000, 20) == notes(400, 20) == ()
    assert notes(100, 20)[0].startswith("There are few points: those that came again were moved by noise of up to 0.45")


@pytest.mark.slow
def test_few_points_are_not_learned_by_heart():
    """Score matching at fresh points after many passes over 100 points in four dimensions: without noise there are
    peaks on single points, whose score matching is far above that of the right model, -2."""
    x, fresh = (torch.randn(n, 4, generator=generator(seed)) for n, seed in ((100, 0), (5000, 1)))
    found = {}
    for noise in (None, 0.0):
        model = EBM.perceptron(4, 128, mean=torch.zeros(4), std=torch.ones(4))
        last = []
        train(
            model, x, steps=600, noise=noise, validation=fresh[:100], progress=False,
            callbacks=[lambda step, trained, row, last=last: last.append(score_matching(fresh, trained).value)],
        )  # fmt: skip
        found[noise] = max(last)
    assert found[None] < 0.5 * found[0.0]
