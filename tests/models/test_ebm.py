import inspect

import pytest
import torch
from torch import nn

from steinscope import InputError
from steinscope.maps import AnyFeatures
from steinscope.models import EBM
from steinscope.models.ebm import HiddenFeatures

from helpers import generator


def model(depth=2, shape=3):
    ebm = EBM.perceptron(shape, width=7, depth=depth, mean=0.5, std=2.0).double()
    with torch.no_grad():
        for parameter in ebm.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator(1)))
    return ebm


def points(n=6, shape=(3,)):
    return torch.randn(n, *shape, dtype=torch.float64, generator=generator(2))


def by_autograd(ebm, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(ebm.log_prob(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_through_the_score(depth):
    ebm, x, f = model(depth), points(), points().flip(0)
    losses = [(ebm.score(x) * f).sum(), ebm.score_along(x, f).sum(), (by_autograd(ebm, x) * f).sum()]
    # The bias of the last layer does not reach the score.
    parameters = [parameter for name, parameter in ebm.named_parameters() if name != f"net.layers.{depth}.bias"]
    closed, along, autograd = (torch.autograd.grad(loss, parameters) for loss in losses)
    for a, b, c in zip(closed, along, autograd, strict=True):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, c)


def test_images_and_networks_of_your_own():
    ebm, x = model(shape=(2, 4)), points(shape=(2, 4))
    assert ebm.score(x).shape == x.shape
    torch.testing.assert_close(ebm.score(x), by_autograd(ebm, x))
    torch.testing.assert_close(ebm.score_along(x, x.flip(0)), (ebm.score(x) * x.flip(0)).flatten(1).sum(1))
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    own = EBM(net, (2, 4)).double()
    torch.testing.assert_close(own.score(x), by_autograd(own, x))
    torch.testing.assert_close(own.score_along(x, x.flip(0)), (own.score(x) * x.flip(0)).flatten(1).sum(1))
    with torch.no_grad():
        assert not own.score(x).requires_grad
    with pytest.raises(InputError, match=r"net: expected 6 energies, shape \(n,\) or \(n, 1\), got \(6, 5\)"):
        EBM(net[:3], (2, 4)).double().log_prob(x)
    assert not hasattr(own, "features")


def test_without_energy_it_is_the_gaussian():
    ebm = EBM.perceptron(3, width=4, mean=torch.tensor([1.0, 2.0, 3.0]), std=torch.tensor([0.5, 1.5, 2.0]))
    with torch.no_grad():
        ebm.net.layers[-1].weight.zero_()
        ebm.net.layers[-1].bias.zero_()
    x = points().float()
    expected = torch.distributions.Normal(ebm.mean, ebm.log_std.exp()).log_prob(x).sum(1)
    torch.testing.assert_close(ebm.log_prob(x), expected)


def test_its_features_are_the_last_hidden_layer():
    ebm, x = model(), points(20)
    assert isinstance(ebm.features, HiddenFeatures) and isinstance(model(1).features, AnyFeatures)
    torch.testing.assert_close(ebm.features(x), ebm.net.hidden(x))


def test_errors():
    with pytest.raises(InputError, match="std: expected positive numbers"):
        EBM.perceptron(2, std=-1.0)
    with pytest.raises(InputError, match="mean: expected finite numbers, got nan"):
        EBM.perceptron(2, mean=torch.nan)
    with pytest.raises(InputError, match=r"mean: expected one number or those of a point of shape \(2,\), got \(3,\)"):
        EBM.perceptron(2, mean=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="width: expected a whole number from 1 to 8192, got 0"):
        EBM.perceptron(2, width=0)
    with pytest.raises(InputError, match="net: expected a torch.nn.Module from points to energies, got int"):
        inspect.unwrap(EBM.__init__)(EBM.__new__(EBM), 2, 3)
