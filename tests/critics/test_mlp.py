import copy

import pytest
import torch
from torch.nn import functional

from steinscope import InputError
from steinscope.critics import MLP
from steinscope.maps.activations import dropout_mask

from helpers import brute_force_divergence, generator


def masked_mlp(critic, masks):
    """The same network written out, with given dropout masks for each point."""

    def apply(x, row):
        hidden = x
        for layer, mask in zip(critic.layers[:-1], masks, strict=True):
            hidden = functional.silu(layer(hidden)) * mask[row]
        f = critic.layers[-1](hidden)
        return f if critic.skip is None else f + critic.skip @ x

    return apply


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.2])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dim, width", [(1, 1), (7, 5), (5, 17), (3, 64)])
def test_closed_form_equals_brute_force(dim, width, depth, dropout, skip, dtype, tolerance):
    critic = MLP(dim, width, depth, dropout, skip=skip, trace="exact").to(dtype).train()
    if skip:
        torch.nn.init.normal_(critic.skip, generator=generator(9))
    x = torch.randn(6, dim, generator=generator(1)).to(dtype)
    masks = [torch.ones(6, width, dtype=dtype)] * depth
    if dropout:
        source = generator(2)
        masks = [dropout_mask(mask, dropout, source) for mask in masks]
    f, divergence = critic.value_and_divergence(x, generator(2))

    # The reference is computed in float64 whatever the type of the critic.
    reference = copy.deepcopy(critic).double()
    apply = masked_mlp(reference, [mask.double() for mask in masks])
    expected_f = torch.stack([apply(point, row) for row, point in enumerate(x.double())])
    expected = torch.stack(
        [
            torch.autograd.functional.jacobian(lambda p, row=row: apply(p, row), point, create_graph=True).trace()
            for row, point in enumerate(x.double())
        ]
    )
    assert_relatively_close(f, expected_f, tolerance)
    assert_relatively_close(divergence, expected, tolerance)

    # And so do the gradients of a weighted sum of values and divergences with respect to all parameters.
    weights = torch.linspace(-1, 2, 6, dtype=torch.float64)
    (weights.to(dtype) @ (divergence + f.sum(1))).backward()
    (weights @ (expected + expected_f.sum(1))).backward()
    for ours, theirs in zip(critic.parameters(), reference.parameters(), strict=True):
        assert_relatively_close(ours.grad, theirs.grad, tolerance)


def assert_relatively_close(ours, theirs, tolerance):
    """The largest difference, relative to the largest entry: single entries may cancel to anything."""
    ours, theirs = ours.detach().double(), theirs.detach()
    assert float((ours - theirs).abs().max()) <= tolerance * max(float(theirs.abs().max()), 1e-2)


def test_hutchinson_of_the_mlp_is_unbiased():
    critic = MLP(5, width=11, trace="hutchinson").train()
    x, source = torch.randn(3, 5, generator=generator()), generator(1)
    with torch.no_grad():
        draws = torch.stack([critic.value_and_divergence(x, source)[1] for _ in range(4000)])
    error = (draws.mean(0) - brute_force_divergence(critic, x)).abs()
    assert (error < 4 * draws.std(0) / 4000**0.5).all()


@pytest.mark.parametrize("depth, dropout", [(1, 0.0), (2, 0.0), (2, 0.5), (3, 0.2)])
def test_hutchinson_of_the_mlp_equals_double_backward(depth, dropout):
    """Value, estimate and their gradients, with the same masks and probe."""
    critic = MLP(4, 6, depth, dropout, trace="hutchinson").double().train()
    x = torch.randn(7, 4, dtype=torch.float64, generator=generator(1))
    f, estimate = critic.value_and_divergence(x, generator(2))

    source, masks = generator(2), [torch.ones(7, 6, dtype=torch.float64)] * depth
    if dropout:
        masks = [dropout_mask(mask, dropout, source) for mask in masks]
    probe = torch.randn(7, 4, dtype=torch.float64, generator=source)
    apply, points = masked_mlp(critic, masks), x.clone().requires_grad_()
    expected_f = torch.stack([apply(point, row) for row, point in enumerate(points)])
    product = torch.autograd.grad((expected_f * probe).sum(), points, create_graph=True)[0]
    expected = (product * probe).sum(1)
    torch.testing.assert_close(f, expected_f)
    torch.testing.assert_close(estimate, expected)

    weights, parameters = torch.linspace(-1, 2, 7, dtype=torch.float64), list(critic.parameters())
    pairs = ((f, estimate), (expected_f, expected))
    ours, theirs = (torch.autograd.grad(weights @ (a.sum(1) + b), parameters) for a, b in pairs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_the_cheaper_divergence_is_chosen():
    critic = MLP(50, width=300).train()
    # Exact where the width is below twice the number of points.
    assert critic._is_exact(151) and not critic._is_exact(149)
    assert critic.eval()._is_exact(1)
    assert MLP(50, depth=1).train()._is_exact(1)
    assert not MLP(50, depth=3).train()._is_exact(10_000)
    assert not MLP(50, trace="hutchinson").eval()._is_exact(10_000)


def test_the_same_seed_gives_the_same_weights():
    ours, same, other = (MLP(4, seed=seed).layers[0].weight for seed in (1, 1, 2))
    assert torch.equal(ours, same) and not torch.equal(ours, other)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MLP(0), "dim: expected a whole number from 1 on, got 0"),
        (lambda: MLP(2, dropout=1.0), "dropout: expected a number from 0 to below 1, got 1.0"),
        (lambda: MLP(2).value_and_divergence(torch.ones(1, 3)), "x: this critic takes points of 2 coordinates, got 3"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"width": 2**40}, "width: expected a whole number from 1 to 8192"),
        ({"depth": 10**9}, "depth: expected a whole number from 1 to 64"),
        ({"dim": 2**30}, "dim: layers of .* units would have .* weights, more than 2147483648"),
    ],
)
def test_networks_that_would_fill_the_memory_are_refused(sizes, message):
    with pytest.raises(InputError, match=message):
        MLP(**{"dim": 2, **sizes})
