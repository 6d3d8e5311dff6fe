import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from steinscope.critics import MLP, Preconditioned
from steinscope.support.description import digest_tensors, plain_settings


@dataclass
class Inner:
    sigma: float = 0.5


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_settings_are_plain():
    thing = Thing(
        number=np.float64(2.5),
        inner=Inner(),
        pair=(1, Inner(0.25)),
        table={"a": None},
        fn=math.sqrt,
        other=object(),
        _state=3,
        critic=MLP(3, width=4),
    )
    assert plain_settings(thing, leave_out=["critic"]) == {
        "number": 2.5,
        "inner": "Inner",
        "inner.sigma": 0.5,
        "pair": "tuple of 2",
        "pair.0": 1,
        "pair.1": "Inner",
        "pair.1.sigma": 0.25,
        "table": "dict of 1",
        "table.a": None,
        "fn": "sqrt",
        "other": "object",
    }
    found = plain_settings(thing)
    assert (found["critic"], found["critic.dropout"], found["critic.layers.1.out_features"]) == ("MLP", 0.0, 4)


def test_what_changes_in_training_is_no_setting():
    critic = Preconditioned(MLP(3, width=4, dropout=0.5), torch.zeros(3), torch.eye(3))
    before = plain_settings(critic)
    critic.eval()
    with torch.no_grad():
        for value in (*critic.parameters(), *critic.buffers()):
            value.add_(1.0)
    assert plain_settings(critic) == before and before["critic.dropout"] == 0.5
    assert plain_settings(nn.Sequential(nn.Linear(2, 2), nn.Tanh())) != plain_settings(
        nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    )


def test_arrays_are_told_apart_by_every_bit():
    x = torch.arange(12.0).view(4, 3)
    assert digest_tensors([x]) == digest_tensors([x[:1], x[1:]]) == digest_tensors([x.T.contiguous().T])
    y = x.clone()
    y[3, 2] = torch.nextafter(y[3, 2], torch.tensor(99.0))
    assert digest_tensors([x]) != digest_tensors([y])
    assert plain_settings(Thing(weights=x)) != plain_settings(Thing(weights=y))
    assert plain_settings(Thing(weights=x)) == plain_settings(Thing(weights=x.numpy()))
