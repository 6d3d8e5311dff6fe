import inspect

import pytest

from steinscope import InputError
from steinscope.critics import Module
from steinscope.critics.network import as_critic

from helpers import network


def test_a_network_is_taken_as_a_critic():
    assert isinstance(as_critic(network(2)), Module)
    with pytest.raises(InputError, match="critic: expected a critic .*, got str"):
        as_critic("mlp")


def test_a_network_is_trained_and_not_solved():
    with pytest.raises(InputError, match="critic: Module is trained, not solved; use fit_critic"):
        Module(network(2)).solve([])


def test_the_trace_is_one_of_three():
    with pytest.raises(InputError, match='trace: expected "auto", "exact" or "hutchinson", got \'sliced\''):
        inspect.unwrap(Module.__init__)(Module.__new__(Module), network(2), "sliced")
