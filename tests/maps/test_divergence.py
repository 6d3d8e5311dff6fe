import pytest
import torch

from steinscope import InputError
from steinscope.maps.divergence import draw_probe, exact, hutchinson, value_and_exact

from helpers import brute_force_divergence, generator, network


@pytest.mark.parametrize("dim", [1, 3, 16, 17, 33])
def test_exact_equals_the_trace_of_the_jacobian(dim):
    net, x = network(dim).double(), torch.randn(7, dim, dtype=torch.float64, generator=generator())
    torch.testing.assert_close(exact(net, x), brute_force_divergence(net, x), rtol=1e-10, atol=1e-12)


def test_exact_takes_images():
    net = torch.nn.Conv2d(1, 1, 3, padding=1).double()
    x = torch.randn(4, 1, 5, 5, dtype=torch.float64, generator=generator())
    # The Jacobian of a convolution has the middle of its kernel on the diagonal.
    torch.testing.assert_close(exact(net, x), (25 * net.weight[0, 0, 1, 1]).expand(4))


@pytest.mark.parametrize("noise", ["gaussian", "rademacher"])
def test_hutchinson_is_unbiased(noise):
    net, x = network(5), torch.randn(3, 5, generator=generator())
    source = generator(1)
    draws = torch.stack([hutchinson(net, x, noise=noise, generator=source).detach() for _ in range(4000)])
    error = (draws.mean(0) - exact(net, x)).abs()
    assert (error < 4 * draws.std(0) / 4000**0.5).all()


@pytest.mark.parametrize("noise", ["gaussian", "rademacher"])
def test_probes_have_mean_zero_and_identity_covariance(noise):
    """100 000 directions: 5 standard errors of each mean and product."""
    probes = draw_probe(torch.empty(100_000, 3), noise, generator(1)).double()
    assert (probes.mean(0).abs() < 5 / 100_000**0.5).all()
    products = probes.T @ probes / 100_000
    assert ((products - torch.eye(3)).abs() < 5 * (2 / 100_000) ** 0.5).all()
    assert noise == "gaussian" or (probes.abs() == 1).all()


def test_probes_are_averaged():
    net, x = network(5), torch.randn(200, 5, generator=generator())
    with torch.no_grad():
        one = hutchinson(net, x, generator=generator(1)) - exact(net, x)
        many = hutchinson(net, x, probes=25, generator=generator(1)) - exact(net, x)
    assert 0.15 < float(many.std() / one.std()) < 0.27


@pytest.mark.parametrize("estimate", [exact, lambda fn, x: hutchinson(fn, x, probes=3, generator=generator(2))])
def test_gradients_reach_the_parameters(estimate):
    net, x = network(4).double(), torch.randn(6, 4, dtype=torch.float64, generator=generator())
    parameter = net[0].weight
    (gradient,) = torch.autograd.grad(estimate(net, x).sum(), parameter)
    step = 1e-6
    with torch.no_grad():
        parameter[1, 2] += step
        ahead = estimate(net, x).sum()
        parameter[1, 2] -= 2 * step
        behind = estimate(net, x).sum()
    assert float(gradient[1, 2]) == pytest.approx(float(ahead - behind) / (2 * step), rel=1e-6)


def test_a_constant_map_has_no_divergence():
    x = torch.ones(3, 2)
    assert exact(lambda x: torch.ones(3, 2), x).tolist() == [0, 0, 0]
    assert hutchinson(lambda x: torch.ones(3, 2), x).tolist() == [0, 0, 0]


def test_nothing_is_kept_without_gradients():
    with torch.no_grad():
        value, divergence = value_and_exact(network(3), torch.ones(2, 3))
    assert not value.requires_grad and not divergence.requires_grad


def test_bad_input():
    with pytest.raises(InputError, match=r"fn: expected values of the shape of x, \(2, 3\), got \(2, 1\)"):
        exact(lambda x: x[:, :1], torch.ones(2, 3))
    with pytest.raises(InputError, match="probes: expected at least 1, got 0"):
        hutchinson(lambda x: x, torch.ones(2, 3), probes=0)
