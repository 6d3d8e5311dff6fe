import pytest
import torch

from steinscope.maps.activations import dropout_mask, linear_with_trace, swish_with_derivative, swish_with_tangent

from helpers import generator


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


@pytest.mark.parametrize("mask", [None, torch.tensor([[0.0, 2.0, 2.0]], dtype=torch.float64).expand(4, 3)])
def test_swish_and_its_derivative_against_autograd(mask):
    """Values against torch, and the gradients written by hand against differences."""
    a = normal(4, 3).requires_grad_()
    h = torch.nn.functional.silu(a)
    (d,) = torch.autograd.grad(h.sum(), a, create_graph=True)
    scale = 1.0 if mask is None else mask
    ours = swish_with_derivative(a * 1.0, mask)
    torch.testing.assert_close(ours, (h * scale, d * scale))
    assert torch.autograd.gradcheck(lambda a: swish_with_derivative(a * 1.0, mask), a)

    tangent, bias = normal(4, 3, seed=1), normal(3, seed=2).requires_grad_()
    both = torch.cat([a - bias, tangent]).detach().requires_grad_()
    torch.testing.assert_close(swish_with_tangent(both, bias, mask), torch.cat([h * scale, d * tangent * scale]))
    assert torch.autograd.gradcheck(lambda both, bias: swish_with_tangent(both, bias, mask), (both, bias))


def test_the_last_layer_and_its_trace():
    both, weight, bias, probe = normal(8, 3), normal(2, 3, seed=1), normal(2, seed=2), normal(4, 2, seed=3)
    parts = [part.requires_grad_() for part in (both, weight, bias)]
    value, trace = linear_with_trace(*parts, probe)
    torch.testing.assert_close(value, both[:4] @ weight.T + bias)
    torch.testing.assert_close(trace, ((both[4:] @ weight.T) * probe).sum(1))
    assert torch.autograd.gradcheck(lambda *parts: linear_with_trace(*parts, probe), parts)


def test_dropout_keeps_the_mean_and_the_rate():
    mask = dropout_mask(torch.empty(300, 301), 0.3, generator())
    n = mask.numel()
    dropped = float((mask == 0).float().mean())
    assert abs(dropped - 0.3) < 4 * (0.3 * 0.7 / n) ** 0.5
    assert mask.max() == pytest.approx(1 / 0.7, rel=1e-4)
    assert torch.equal(mask, dropout_mask(torch.empty(300, 301), 0.3, generator()))
