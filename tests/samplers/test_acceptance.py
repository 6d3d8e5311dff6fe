import math

import torch

from steinscope.samplers.acceptance import accept
from steinscope.samplers.chains import State

from helpers import generator


def test_chains_move_with_the_probability_of_metropolis_and_hastings():
    n = 40_000
    here, there = (State(torch.full((n, 1), value), torch.zeros(n), torch.zeros(n, 1)) for value in (0.0, 1.0))
    for change, probability in ((0.7, 1.0), (0.0, 1.0), (-0.5, math.exp(-0.5)), (-math.inf, 0.0), (math.nan, 0.0)):
        state, info = accept(here, there, torch.full((n,), change), generator(1))
        assert torch.equal(state.x[:, 0] == 1, info.accepted)
        share = float(info.accepted.double().mean())
        assert abs(share - probability) <= 4 * math.sqrt(probability * (1 - probability) / n)
