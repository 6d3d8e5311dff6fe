"""One registry for each kind: what is in it can be used, and what is added to it is seen everywhere."""

import os
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steinscope import InputError, gof_test, train
from steinscope.experiments.rates import find_method, single_critics
from steinscope.models import Gaussian
from steinscope.objectives import TrainingObjective
from steinscope.portfolio import ValueLearner
from steinscope.registries import (
    CRITICS,
    KERNEL_TESTS,
    OBJECTIVES,
    CriticEntry,
    Entry,
    KernelTestEntry,
    ObjectiveEntry,
    Registry,
)
from steinscope.report import report_test
from steinscope.settings import RunSettings

from helpers import normal

ENTRIES = [
    pytest.param(registry, name, id=f"{registry.kind} {name}")
    for registry in (CRITICS, OBJECTIVES, KERNEL_TESTS)
    for name in registry
]


@pytest.mark.parametrize("registry, name", ENTRIES)
def test_every_entry_loads_and_says_what_it_is(registry, name):
    entry = registry[name]
    assert entry.name == name and re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert re.fullmatch(r"\S.{3,58}[^\s.]", entry.text), entry.text
    assert f"{name} ({entry.text})" in registry.listed()
    # It stands in the face of its package, too.
    home, _, thing = entry.home.partition(":")
    assert getattr(import_module(home.rpartition(".")[0]), thing) is entry.load()


@pytest.mark.parametrize("name", CRITICS)
def test_a_critic_calls_itself_by_its_name(name):
    assert issubclass(CRITICS[name].load(), ValueLearner) and CRITICS[name].load().name == name


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_made_with_the_settings_of_its_name(name):
    objective = OBJECTIVES[name].make()
    assert isinstance(objective, TrainingObjective)
    for setting, value in OBJECTIVES[name].settings.items():
        assert getattr(objective, setting) == value


@pytest.mark.parametrize("name", KERNEL_TESTS)
def test_a_kernel_test_is_called_by_its_name(name):
    assert KERNEL_TESTS[name].load().__name__ == f"{name.replace('-', '_')}_test"


def test_labels_of_figures_are_different():
    labels = [entry.label for entry in KERNEL_TESTS.values()]
    assert all(labels) and len(set(labels)) == len(labels)


@given(st.lists(st.text(max_size=3), max_size=6))
def test_a_registry_keeps_names_once_and_in_order(names):
    registry, kept = Registry("a thing"), list(dict.fromkeys(names))
    for name in names:
        if name in registry:
            with pytest.raises(InputError, match="name: there is a thing .* already"):
                registry.register(Entry(name, list, "other"))
        else:
            registry.register(Entry(name, dict, "text"))
    assert list(registry) == kept and len(registry) == len(kept)
    assert all(registry[name].load() is dict for name in kept)
    assert registry.listed() == ", ".join(f"{name} (text)" for name in kept)
    for name in kept:
        registry.remove(name)
        assert name not in registry
    assert not registry


TANH = CriticEntry("tanh", "new_members:TanhLearner", "wrong tails")
CAPPED = ObjectiveEntry("capped", "new_members:CappedLikelihood", "likelihood with a limit", is_for_normalised=True)
SCALE = KernelTestEntry("scale", "new_members:scale_test", "one number, both sides", "Scale")


@pytest.fixture
def added():
    """A new member of each kind: its class in one file, and its line in the registry."""
    members = ((CRITICS, TANH), (OBJECTIVES, CAPPED), (KERNEL_TESTS, SCALE))
    for registry, entry in members:
        registry.register(entry)
    yield
    for registry, entry in members:
        registry.remove(entry.name)


def student(n=1000, dim=3):
    """Heavy tails, of variance one."""
    numbers = np.random.default_rng(0).standard_t(5, size=(n, dim)) * (3 / 5) ** 0.5
    return torch.from_numpy(numbers)


def test_a_new_critic_is_taken_by_auto_and_by_name(added):
    x = 0.1 + normal(500, 3)
    assert "tanh" in [critic.name for critic in gof_test(x, -x).critics]
    x = student()
    alone = gof_test(x, -x, critics="tanh")
    assert [critic.name for critic in alone.critics] == ["tanh"] and alone.rejected
    assert not gof_test(normal(1000, 3), -normal(1000, 3), critics="tanh").rejected
    assert alone.explain().total == pytest.approx(alone.critics[0].z, rel=1e-4)


def test_a_report_says_what_a_new_critic_looks_at(added):
    x = student()
    page = report_test(gof_test(x, -x, critics=("mean", "tanh")))
    assert "wrong tails" in page and "a critic of your own" not in page


def test_experiments_know_new_critics_and_kernel_tests(added):
    assert single_critics()[-1] == "tanh"
    for name in ("tanh", "Scale"):
        assert find_method(name)(student(), -student(), 0).n == 1000
    assert "tanh" in [critic.name for critic in find_method("closed form")(normal(200, 3), -normal(200, 3), 0).critics]


def test_a_new_objective_trains_and_is_a_setting(added):
    model = Gaussian(torch.zeros(2))
    result = train(model, 1.0 + normal(500, 2), objective="capped", steps=200, lr=0.02)
    assert result.state.settings["objective"] == "capped"
    # 500 points: the mean is known within 4 / √500.
    assert (model.mean.detach() - 1.0).abs().max() < 4 / 500**0.5
    assert RunSettings(data="moons", model="gaussian", objective="capped").objective == "capped"
    with pytest.raises(InputError, match="objective: capped is for normalised models, and an EBM is not one"):
        RunSettings(data="moons", objective="capped")


def test_tables_of_the_documents_know_new_members(added):
    tables = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "registry_tables.py"))
    for kind, entry in (("critics", TANH), ("objectives", CAPPED), ("kernel-tests", SCALE)):
        assert sum(line.startswith(f"| `{entry.name}` |") for line in tables["registry_table"](kind).splitlines()) == 1


def test_what_was_removed_is_gone():
    x = normal(200, 3)
    with pytest.raises(InputError, match="critics: expected 'auto', 'closed form' or some of .*, got 'tanh'"):
        gof_test(x, -x, critics="tanh")
    with pytest.raises(InputError, match="objective: expected one of .*, got 'capped'"):
        train(Gaussian(torch.zeros(3)), x, objective="capped", steps=1)
    with pytest.raises(InputError, match="methods: expected some of .*, got 'Scale'"):
        find_method("Scale")


COMMAND = f"""
from steinscope.registries import *
CRITICS.register({TANH!r})
OBJECTIVES.register({CAPPED!r})
KERNEL_TESTS.register({SCALE!r})
from steinscope.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("test --help", ["tanh (wrong tails)", "scale (one number, both sides)"]),
        ("train --help", ["capped (likelihood with a limit)"]),
        ("test x.npy --score scores.npy --critics tanh", ["critics: tanh z = ", "the model is rejected"]),
        ("test x.npy --score scores.npy --method scale", ["Scale test: 1000 points, 3 coordinates"]),
        ("train x.npy --model gaussian --objective capped --steps 5", ["Gaussian after 5 steps of CappedLikelihood"]),
    ],
)
def test_the_command_line_knows_new_members(tmp_path, arguments, expected):
    """Help is made when the commands are imported, so the members are registered in a process of its own."""
    np.save(tmp_path / "x.npy", student().numpy())
    np.save(tmp_path / "scores.npy", -student().numpy())
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "COLUMNS": "1000"}
    command = [sys.executable, "-c", COMMAND, *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"[\s│]+", " ", done.stdout)
    assert all(text in shown for text in expected), shown
