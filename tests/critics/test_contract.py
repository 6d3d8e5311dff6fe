"""What every critic of the library does."""

import copy
import inspect

import pytest
import torch

import steinscope.critics
from steinscope.critics import Critic

from helpers import MAKE_CRITIC, brute_force_diagonal, generator


def test_every_critic_of_the_library_is_tested():
    made = {type(make(3)) for make in MAKE_CRITIC.values()}
    public = [getattr(steinscope.critics, name) for name in steinscope.critics.__all__]
    kinds = {kind for kind in public if inspect.isclass(kind) and issubclass(kind, Critic)}
    assert {kind for kind in kinds if not inspect.isabstract(kind)} == made


@pytest.mark.parametrize("name", MAKE_CRITIC)
def test_contract(name):
    """Every critic: shape, exact divergence and diagonal in evaluation mode, value equal to forward, same bits."""
    critic = MAKE_CRITIC[name](6).double().eval()
    x = torch.randn(5, 6, dtype=torch.float64, generator=generator())
    expected = brute_force_diagonal(critic, x)
    f, divergence = critic.value_and_divergence(x)
    assert f.shape == x.shape and divergence.shape == (5,)
    torch.testing.assert_close(f, critic(x), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(divergence, expected.sum(1), rtol=1e-10, atol=1e-11)
    value, diagonal = critic.value_and_diagonal(x)
    torch.testing.assert_close(value, f, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(diagonal, expected, rtol=1e-10, atol=1e-11)
    values, norms = critic.stein(x, -x)
    torch.testing.assert_close(values, (-x * f).sum(1) + divergence)
    assert norms.shape == (5,) and (norms >= 0).all()
    again = copy.deepcopy(critic).value_and_divergence(x)
    assert torch.equal(again[0], f) and torch.equal(again[1], divergence)


@pytest.mark.parametrize("name", MAKE_CRITIC)
def test_one_point_is_enough_and_the_type_is_kept(name):
    for dtype in (torch.float32, torch.float64):
        critic = MAKE_CRITIC[name](3).to(dtype).eval()
        f, divergence = critic.value_and_divergence(torch.ones(1, 3, dtype=dtype))
        assert f.shape == (1, 3) and divergence.shape == (1,) and f.dtype == divergence.dtype == dtype


@pytest.mark.parametrize("name", [name for name in MAKE_CRITIC if name not in ("any-features", "module")])
def test_images_need_no_flattening(name):
    critic = MAKE_CRITIC[name](6).float().eval()
    x = torch.randn(5, 2, 3, generator=generator())
    f, divergence = critic.value_and_divergence(x)
    flat_f, flat_divergence = critic.value_and_divergence(x.flatten(1))
    assert f.shape == x.shape
    assert torch.equal(f.flatten(1), flat_f) and torch.equal(divergence, flat_divergence)
