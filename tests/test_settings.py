import json
import math
import numbers
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinscope import FitSettings, InputError, TrainSettings
from steinscope.registries import OBJECTIVES
from steinscope.settings import SELECTIONS, RunSettings, Validation


def is_whole(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_count(value):
    return is_whole(value) and value >= 1


def is_number(value, good):
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value) and good(value)


def is_positive(value):
    return is_number(value, lambda number: number > 0)


def is_not_negative(value):
    return is_number(value, lambda number: number >= 0)


def is_seed(value):
    return is_whole(value) and 0 <= value < 2**63


def or_none(is_good):
    return lambda value: value is None or is_good(value)


# Which values of a field can be used.
FIT = {
    "steps": is_count,
    "every": is_count,
    "batch_size": or_none(is_count),
    "lr": or_none(is_positive),
    "weight_decay": is_not_negative,
    "patience": or_none(is_count),
}
TRAIN = {
    "steps": is_count,
    "batch_size": is_count,
    "lr": or_none(is_positive),
    "clip": or_none(is_positive),
    "auxiliary_lr": or_none(is_positive),
    "weight_decay": is_not_negative,
    "average": or_none(lambda value: is_number(value, lambda number: 0 < number < 1)),
    "noise": or_none(is_not_negative),
    "seed": is_seed,
}
RUN = {**TRAIN, **dict.fromkeys(("width", "depth", "checkpoint_every", "log_every"), is_count)}
KINDS = ((FitSettings, FIT, {}), (TrainSettings, TRAIN, {}), (RunSettings, RUN, {"data": "moons"}))
VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.floats(-1, 2),
    st.integers(-2, 2).map(np.int64),
    st.none(),
    st.booleans(),
    st.text(max_size=2),
)


def check(kind, values):
    """The checks of settings, without those of types, which would refuse some values first."""
    made = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(made, field.name, values.get(field.name, field.default))
    made.__post_init__()
    return made


@pytest.mark.parametrize("kind, rules, needed", KINDS, ids=lambda part: getattr(part, "__name__", ""))
@given(data=st.data())
def test_each_field_is_checked(kind, rules, needed, data):
    name, value = data.draw(st.sampled_from(sorted(rules))), data.draw(VALUES)
    if rules[name](value):
        assert getattr(check(kind, {**needed, name: value}), name) == value
        return
    with pytest.raises(InputError) as caught:
        check(kind, {**needed, name: value})
    assert caught.value.argument == name and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind, rules, needed", KINDS, ids=lambda part: getattr(part, "__name__", ""))
def test_numbers_of_numpy_are_kept_as_plain_ones(kind, rules, needed):
    """A checkpoint saves settings, and knows plain numbers alone."""
    for name, is_good in rules.items():
        for value in (np.int64(1), np.float32(0.5)):
            if is_good(value):
                assert type(getattr(check(kind, {**needed, name: value}), name)) in (int, float), name


@pytest.mark.parametrize("kind, rules, needed", KINDS, ids=lambda part: getattr(part, "__name__", ""))
def test_settings_cannot_be_changed(kind, rules, needed):
    made = kind(**needed)
    with pytest.raises(FrozenInstanceError):
        made.steps = 3
    assert replace(made, steps=3).steps == 3 and made == kind(**needed) and hash(made) == hash(kind(**needed))


@pytest.mark.parametrize("betas", [(0.5,), (0.5, 0.9, 0.9), (0.5, 1.0), (-0.1, 0.9), (0.5, math.nan)])
def test_bad_betas(betas):
    with pytest.raises(InputError, match="betas: expected"):
        check(TrainSettings, {"betas": betas})


def test_rules_of_selection():
    seen = Validation(mean=3.0, std=2.0, norm=4.0, l2=0.25)
    values = {name: FitSettings(select=name).choose(seen) for name in SELECTIONS}
    assert values == {"mu-sigma": 1.0, "objective": 2.0, "power": pytest.approx(1.5), "mean": 3.0}
    assert FitSettings(select=lambda seen: seen.norm).choose(seen) == 4.0
    with pytest.raises(InputError, match="select: expected 'mu-sigma', .* or a function, got 'median'"):
        FitSettings(select="median")


def test_what_must_stay_the_same_when_a_run_is_resumed():
    plain = TrainSettings(steps=10)
    assert plain.fixed() == TrainSettings(steps=20).fixed() and plain.fixed()["auxiliary_lr"] == plain.lr
    for changed in (
        {"lr": 0.5},
        {"auxiliary_lr": 0.5},
        {"batch_size": 3},
        {"betas": (0.1, 0.2)},
        {"weight_decay": 0.1},
        {"average": 0.9},
        {"noise": 0.1},
        {"seed": 1},
        {"lr_decay": True},
    ):
        assert TrainSettings(steps=10, **changed).fixed() != plain.fixed()
    # What falls to zero over the steps fixes their number.
    for falling in ({"lr_decay": True}, {"noise": 0.1}):
        assert TrainSettings(steps=10, **falling).fixed() != TrainSettings(steps=20, **falling).fixed()
    everything = TrainSettings(average=0.9, noise=0.1, lr_decay=True, auxiliary_lr=0.1).fixed()
    assert json.loads(json.dumps(everything)) == everything


@pytest.mark.parametrize(
    "given_settings, message",
    [
        ({"model": "tree"}, 'model: expected "ebm" or "gaussian", got \'tree\''),
        ({"objective": "magic"}, "objective: expected one of lsd, .*, got 'magic'"),
        ({"objective": "likelihood"}, "objective: likelihood is for normalised models, and an EBM is not one; take"),
        ({"objective": "nce", "l2": 1.0}, "l2: this is a setting of the objective lsd, got objective 'nce'"),
        ({"objective": "nce", "critic_steps": 2}, "critic_steps: this is a setting of the objective lsd"),
        ({"l2": 0.0}, "l2: expected a positive number, got 0.0"),
        ({"critic_steps": 0}, "critic_steps: expected a whole number from 1 on, got 0"),
    ],
)
def test_bad_runs(given_settings, message):
    with pytest.raises(InputError, match=message):
        RunSettings(data="moons", **given_settings)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_gaussian_can_be_trained_by_every_objective(name):
    assert RunSettings(data="moons", model="gaussian", objective=name).objective == name
