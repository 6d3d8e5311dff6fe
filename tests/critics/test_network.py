import inspect

import pytest
import torch

from steinscope import InputError
from steinscope.critics import Module
from steinscope.critics.network import as_critic

from helpers import generator, network


def test_a_network_is_taken_as_a_critic():
    assert isinstance(as_critic(network(2)), Module)
    with pytest.raises(InputError, match="critic: expected a critic .*, got str"):
        as_critic("mlp")


@pytest.mark.parametrize("dim, is_exact", [(2, True), (3, False)])
def test_the_divergence_is_estimated_in_training_from_three_coordinates_on(dim, is_exact):
    critic, x = Module(network(dim)).train(), torch.ones(5, dim)
    first, second = (critic.value_and_divergence(x, generator(seed))[1] for seed in (1, 2))
    assert torch.equal(first, second) == is_exact
    critic.eval()
    assert torch.equal(critic.value_and_divergence(x)[1], Module(network(dim), "exact").value_and_divergence(x)[1])


def test_a_network_is_trained_and_not_solved():
    with pytest.raises(InputError, match="critic: Module is trained, not solved; use fit_critic"):
        Module(network(2)).solve([])


def test_the_trace_is_one_of_three():
    with pytest.raises(InputError, match='trace: expected "auto", "exact" or "hutchinson", got \'sliced\''):
        inspect.unwrap(Module.__init__)(Module.__new__(Module), network(2), "sliced")


def test_what_is_no_function_is_no_network():
    with pytest.raises(InputError, match="net: expected a function or module, got int"):
        inspect.unwrap(Module.__init__)(Module.__new__(Module), 3)


@pytest.mark.parametrize("net, came", [(torch.nn.LSTM(2, 2), "tuple"), (torch.nn.Linear(2, 3), r"\(5, 3\)")])
def test_a_network_gives_values_of_the_shape_of_points(net, came):
    with pytest.raises(InputError, match=rf"fn: expected values of the shape of x, \(5, 2\), got {came}"):
        Module(net).value_and_divergence(torch.ones(5, 2))
