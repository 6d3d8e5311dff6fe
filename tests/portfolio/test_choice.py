import numpy as np
import pytest
import torch

from steinscope import InputError, discrepancy, gof_test
from steinscope.critics import MLP, Features, Linear, Module
from steinscope.maps import RandomCosines
from steinscope.models import RBM
from steinscope.portfolio.choice import choose_critics, critic_name, is_closed_form, make_learner
from steinscope.registries import CRITICS

from helpers import context, normal

SCORES = torch.zeros(10, 2)
ENOUGH = 10_000


def test_auto_takes_what_applies():
    without_model = [name for name, entry in CRITICS.items() if entry.needs is None]
    assert choose_critics("auto", SCORES, ENOUGH, "test") == without_model
    assert choose_critics("auto", RBM.random(2, 3), ENOUGH, "test") == list(CRITICS)
    few = choose_critics("auto", SCORES, 499, "test")
    assert few == [name for name in without_model if CRITICS[name].least_points < 500] and "mlp" not in few
    assert "mlp" in choose_critics("auto", SCORES, 500, "test")


def test_what_is_asked_for_is_taken_in_its_order():
    own = MLP(2, width=4)
    assert choose_critics(["additive", own, "mean"], SCORES, 10, "test") == ["additive", own, "mean"]
    assert choose_critics("mlp", SCORES, 10, "test") == ["mlp"] and choose_critics(own, SCORES, 10, "test") == [own]
    (wrapped,) = choose_critics(torch.nn.Linear(2, 2), SCORES, 10, "test")
    assert isinstance(wrapped, Module)


def test_each_purpose_has_its_critics():
    """A constant is part of the linear critic in an estimate, and a ranking looks at all models in the same way."""
    model = RBM.random(2, 3)
    chosen = {purpose: choose_critics("auto", model, ENOUGH, purpose) for purpose in ("test", "estimate", "ranking")}
    assert "mean" in chosen["test"] and "mean" not in chosen["estimate"]
    assert "model" in chosen["estimate"] and "model" not in chosen["ranking"]
    assert choose_critics("closed form", model, ENOUGH, "ranking") == ["linear", "additive", "kernel"]


def test_critics_of_the_users_have_the_name_of_their_class_and_go_last():
    assert critic_name(Linear(2)) == "Linear" and critic_name("kernel") == "kernel"
    assert is_closed_form("linear") and not is_closed_form("mlp") and not is_closed_form(Linear(2))
    assert make_learner(Linear(2), context(dim=2)).name == "Linear"
    assert make_learner(MLP(2, width=4), context(dim=2)).name == "MLP"


@pytest.mark.parametrize(
    "critics, message",
    [
        ("deep", "critics: expected 'auto', 'closed form' or some of 'mean', 'linear'.*, got 'deep'"),
        (["mean", "auto"], "critics: expected 'auto', 'closed form' or some of .*, got 'auto'"),
        ((), "critics: expected at least one, got none"),
        ("model", r"critics: 'model' needs a model with features\(x\), and this one has none"),
    ],
)
def test_bad_choices(critics, message):
    with pytest.raises(InputError, match=message):
        choose_critics(critics, SCORES, 10, "test")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_critics_of_the_users_work_in_the_type_of_the_points(dtype):
    critic, x = Features(RandomCosines(2, count=20)), normal(100, 2).to(dtype)
    found = gof_test(x, -x, critics=[critic], blocks=2)
    assert found.critics[0].name == "Features" and critic.feature_map.phases.dtype == torch.float32
    assert discrepancy(x, -x, critics=[critic], folds=None).values.dtype == np.float64
