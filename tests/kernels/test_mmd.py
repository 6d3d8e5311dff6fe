import pytest
import torch

from steinscope import InputError
from steinscope.kernels import mmd, mmd_test
from steinscope.models import Gaussian

from helpers import normal


def test_mmd_against_brute_force():
    data, other = Gaussian(torch.zeros(2)), Gaussian(torch.full((2,), 0.6))
    x, y = data.sample(9, seed=1).double(), other.sample(7, seed=2).double()

    def mean_kernel(a, b, same):
        k = torch.exp(-torch.cdist(a, b).square() / 2)
        return (k.sum() - len(a)) / (len(a) * (len(a) - 1)) if same else k.mean()

    expected = mean_kernel(x, x, True) + mean_kernel(y, y, True) - 2 * mean_kernel(x, y, False)
    assert mmd_test(x, y, bandwidth=1.0, metric="identity").statistic == pytest.approx(float(expected), rel=1e-9)


def test_tiles_do_not_matter(monkeypatch):
    x, samples = normal(50, 2), 0.3 + normal(40, 2, seed=1)
    whole = mmd_test(x, samples, draws=99)
    monkeypatch.setattr(mmd, "_TILE_ROWS", 7)
    parts = mmd_test(x, samples, draws=99)
    assert parts.statistic == pytest.approx(whole.statistic, rel=1e-4) and parts.pvalue == whole.pvalue


def test_bad_input():
    x = normal(30, 2)
    with pytest.raises(InputError, match="samples: expected 2 coordinates, as x has, got 1"):
        mmd_test(x, x[:, :1])
    with pytest.raises(InputError, match="samples: x and samples need at least 2 rows each"):
        mmd_test(x, x[:1])
    with pytest.raises(InputError, match="bandwidth: expected \"median\", got 'wide'"):
        mmd_test(x, x, bandwidth="wide")
