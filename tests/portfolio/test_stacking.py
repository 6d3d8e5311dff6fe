import pytest
import torch

from steinscope import FitSettings, discrepancy
from steinscope.critics import MLP
from steinscope.portfolio import stacking

from helpers import generator


def test_a_second_network_learns_what_the_first_leaves_over():
    """Of few points solved critics have been seen at all, and networks at the validation points alone."""
    x = 0.5 + torch.randn(300, 2, generator=generator(1))
    settings = FitSettings(steps=60, every=10)
    estimate = discrepancy(x, -x, critics=["linear", MLP(2, width=8), MLP(2, width=8, seed=1)], settings=settings)
    assert [critic.name for critic in estimate.critics] == ["linear", "MLP"]
    assert abs(estimate.value - 0.5) < 4 * estimate.stderr


def test_critics_alone_have_errors_of_whole_batches_of_draws(monkeypatch):
    """A critic alone is looked at at some of many held-out points, which need not be whole batches by themselves."""
    noise = torch.randn(2, 1500, 2, generator=generator(1), dtype=torch.float64)
    x = noise.clone()
    for t in range(1, x.shape[1]):
        x[:, t] += 0.5 * x[:, t - 1]
    whole = discrepancy(x, -x, chains=True, critics="linear", folds=2)
    assert whole.batch > 1 and 512 % whole.batch
    monkeypatch.setattr(stacking, "batch_rows", lambda dim: 256)
    monkeypatch.setattr(stacking, "_ALONE_POINTS", 512)
    some = discrepancy(x, -x, chains=True, critics="linear", folds=2)
    assert some.value == pytest.approx(whole.value)
    # A third of the points has an error that is larger by the root of three, give or take.
    assert whole.critics[0].stderr < some.critics[0].stderr < 3 * whole.critics[0].stderr
