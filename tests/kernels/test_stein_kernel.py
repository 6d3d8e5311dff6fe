import pytest
import torch

from steinscope import InputError
from steinscope.kernels.stein_kernel import make_sample, stein_kernel, stein_tiles
from steinscope.maps.radial import median_distance, radial

from helpers import generator, stein_sample


def kernel_value(kernel, width, x, y):
    squared = ((x - y) ** 2).sum()
    return torch.exp(-squared / (2 * width**2)) if kernel == "gaussian" else (1 + squared / width**2) ** -0.5


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
def test_the_stein_kernel_equals_its_definition_by_autograd(kernel):
    data, width = stein_sample(6), 1.3
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            x, y = data.x[i].clone().requires_grad_(), data.x[j].clone().requires_grad_()
            k = kernel_value(kernel, width, x, y)
            by_x, by_y = torch.autograd.grad(k, (x, y), create_graph=True)
            trace = sum(torch.autograd.grad(by_x[m], y, retain_graph=True)[0][m] for m in range(3))
            a, b = data.score[i], data.score[j]
            expected[i, j] = ((a @ b) * k + a @ by_y + b @ by_x + trace).detach()
    torch.testing.assert_close(stein_kernel(radial(kernel, width), data, data), expected)


@pytest.mark.parametrize("rows", [7, 30, 100])
def test_tiles_make_up_the_matrix(rows):
    data, phi = stein_sample(), radial("gaussian", 0.8)
    whole = torch.zeros(30, 30, dtype=torch.float64)
    for a, b, tile in stein_tiles(phi, data, rows):
        whole[a, b], whole[b, a] = tile, tile.T
    torch.testing.assert_close(whole, stein_kernel(phi, data, data).fill_diagonal_(0.0))


def test_the_median_distance():
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    # Distances 1, 2, 3, 4, 6, 7; torch takes the lower one in the middle.
    assert median_distance(x) == 3.0


def test_a_sample_is_centred_and_flat():
    x = 5 + torch.randn(20, 2, 3, generator=generator())
    sample = make_sample(x, -x, "identity")
    assert sample.x.shape == sample.score.shape == (20, 6) and float(sample.x.mean(0).abs().max()) < 1e-5
    with pytest.raises(InputError, match="x: 2 rows are too few for this test, which needs 4"):
        make_sample(x[:2], -x[:2], "scores")


def test_bad_kernels():
    with pytest.raises(InputError, match="bandwidth: expected a positive number, got 0.0"):
        radial("imq", 0.0)
