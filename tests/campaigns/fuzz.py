"""Call every public function with whatever users might pass, and look at what comes back.

The functions are found in the faces of the packages, and their arguments by name and default, so that a new public
function is covered without a line here. A call may end in an `InputError` or a `NonFiniteError` of one line, or in a
result whose numbers are finite and in range. It must not change its arguments, warn, or take a minute.

Run as a script it makes `--cases` calls. It is a process of its own, because the tests check the shapes of arrays at
each call, which users do not.
"""

import argparse
import contextlib
import dataclasses
import faulthandler
import importlib
import inspect
import json
import math
import pkgutil
import random
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import steinscope
from steinscope import FitSettings, InputError, NonFiniteError, from_energy, from_log_prob, from_score
from steinscope.critics import MLP, Linear
from steinscope.errors import DownloadError
from steinscope.metric import Metric
from steinscope.models import EBM, Gaussian
from steinscope.modes.surface import Surface
from steinscope.samplers import MALA
from steinscope.settings import RunSettings

SECONDS = 60
NUMBERS_IN_RANGE = {"pvalue": (0.0, 1.0), "alpha": (0.0, 1.0), "stderr": (0.0, math.inf)}


def public_functions():
    """Every function that a package shows, by its address."""
    found = {}
    rooms = [module.name for module in pkgutil.iter_modules(steinscope.__path__) if module.ispkg]
    for face in ["steinscope", *(f"steinscope.{room}" for room in rooms)]:
        package = importlib.import_module(face)
        for name in getattr(package, "__all__", ()):
            function = getattr(package, name)
            if inspect.isfunction(function) and function not in found.values() and can_be_named(function):
                found[f"{face}.{name}"] = function
    return found


def can_be_named(function):
    """Whether all that a function needs can be given by name."""
    parameters = inspect.signature(function).parameters.values()
    return all(one.kind is not inspect.Parameter.POSITIONAL_ONLY for one in parameters)


def sizes():
    return st.tuples(st.sampled_from([1, 2, 20, 120, 150]), st.sampled_from([1, 2, 3]))


@st.composite
def arrays(draw, size=None):
    """Points as people hold them, most of them good."""
    n, d = size or draw(sizes())
    x = np.random.default_rng(draw(st.integers(0, 50))).standard_normal((n, d))
    x = x * draw(st.sampled_from([1.0, 1.0, 1.0, 1e-30, 1e30, 1e-3])) + draw(st.sampled_from([0.0, 0.0, 0.0, 1e7]))
    fault = draw(st.sampled_from([None] * 8 + ["nan", "inf", "constant", "outlier", "equal", "integers"]))
    if fault in ("nan", "inf"):
        x[-1, 0] = float(fault)
    elif fault == "constant":
        x[:, 0] = 1.0
    elif fault == "outlier":
        x[0, 0] = 1e20
    elif fault == "equal":
        x[:] = 2.0
    elif fault == "integers":
        x = np.round(np.clip(x, -1e9, 1e9)).astype(np.int64)
    kind = draw(
        st.sampled_from(["float64", "float32", "tensor", "tensor32", "list", "flat", "image", "float16", "big"])
    )
    if kind in ("float32", "float16"):
        return x.astype(kind) if np.abs(x).max() < 1e4 else x
    if kind == "big":
        return x.astype(x.dtype.newbyteorder(">"))
    if kind == "tensor":
        return torch.from_numpy(x)
    if kind == "tensor32":
        return torch.from_numpy(x).float()
    if kind == "list":
        return x.tolist()
    return x[:, 0] if kind == "flat" else x[:, None, :] if kind == "image" else x


def junk():
    """What is none of the things that a function expects."""
    return st.sampled_from(
        [None, "a", "", -1, 0, 2.5, float("nan"), float("inf"), 2**70, [], {}, [1], True, 1j, object(), b"x"]
        + [np.float32(0.05), np.int64(3), np.array("a"), np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]])]
        + [torch.empty(3, 2, device="meta"), torch.eye(2).to_sparse(), torch.ones(3, 2, dtype=torch.complex64), int]
    )


def _fails(x):
    raise RuntimeError("of its own\nin two lines")


def _in_place(x):
    x /= 2
    return -x


def models():
    """Models, some of which are wrong in ways that a person might not notice."""
    normal = torch.distributions.Normal(0.0, 1.0)
    family = torch.distributions
    return st.sampled_from(
        [from_score(lambda x: -x), from_log_prob(lambda x: -0.5 * x.flatten(1).square().sum(1))]
        + [from_energy(lambda x: 0.5 * (x.reshape(len(x), -1) ** 2).sum(1), numpy=True)]
        + [Gaussian(torch.zeros(2)), Gaussian(torch.zeros(3)).double(), EBM.perceptron(2, 4)]
        + [normal, family.Independent(family.Normal(torch.zeros(2), torch.ones(2)), 1)]
        + [family.Independent(family.Exponential(torch.ones(2)), 1), family.Dirichlet(torch.ones(3))]
        + [family.Poisson(torch.ones(2)), family.Uniform(-50.0, 50.0)]
        + [from_score(_fails), from_score(_in_place), from_score(_in_place, numpy=True), from_log_prob(_fails)]
        + [from_score(lambda x: x[:1]), from_score(lambda x: x * float("nan")), from_log_prob(lambda x: x.sum())]
        + [from_score(lambda x: 1e20 * x), from_log_prob(lambda x: 0 * x.flatten(1).sum(1))]
    )


NAMES = {
    "critics": st.sampled_from(["auto", "closed form", "linear", ("mean", "kernel"), "mlp", (), "other", MLP(2, 4)]),
    "metric": st.sampled_from(["scaled", "whitened", "identity", "other"]),
    "folds": st.sampled_from([2, 5, None, 1, 10**9]),
    "split": st.sampled_from([(0.6, 0.2, 0.2), (0.8, 0.1, 0.1), (1.0,), (0.5, 0.5, 0.5), "abc", (0, 0, 1)]),
    "fn": st.sampled_from([torch.sum, len, _fails]),
    "critic": st.sampled_from([MLP(2, 4), Linear(2), torch.nn.Linear(2, 2), torch.nn.Linear(3, 1)]),
    "objective": st.sampled_from([None, "lsd", "score-matching", "nce", "other"]),
    "scheme": st.sampled_from(["prequential", "other"]),
    "sampler": st.sampled_from(["mala", "hmc", "other", MALA(Gaussian(torch.zeros(2)), 0.1)]),
    "dtype": st.sampled_from([None, torch.float32, torch.float64, torch.float16, torch.int64, "float32"]),
    "device": st.sampled_from([None, "cpu", "cuda:7", "nowhere", torch.device("meta")]),
    "jobs": st.sampled_from([None, 1]),
    "steps": st.sampled_from([1, 2, 3]),
    "draws": st.sampled_from([1, 10, 100]),
    "n": st.sampled_from([1, 10, 100]),
    "size": st.sampled_from([1, 10, 28]),
    "repeats": st.sampled_from([1, 2, 3]),
    "components": st.sampled_from([1, 10]),
    "locations": st.sampled_from([1, 5]),
    "progress": st.just(False),
    "name": st.sampled_from(["moons", "rings", "x", "other"]),
    "data_set": st.sampled_from(["mnist", "other"]),
    "seed": st.sampled_from([0, 1, np.int64(2), 2**63 - 1]),
    "bandwidth": st.sampled_from(["median", "learned", 1.0, 1e-30, 1e30, "other"]),
    "kernel": st.sampled_from(["gaussian", "imq", "other"]),
    "factors": st.sampled_from([(1.0,), (0.5, 2.0), (), (0.0,)]),
    "names": st.sampled_from([None, ["a"], ["a", "b"], ["a", "a"], "ab"]),
    "callbacks": st.just(()),
    "callback": st.none(),
    "resume": st.booleans(),
    "validation": st.none() | st.tuples(arrays(), arrays()),
    "start": st.none(),
    "support": st.sampled_from([None, "real", "positive", "unit", (0, 1), "simplex", ["real", "positive"], "other"]),
    "starts": st.none() | arrays(),
}
POINTS = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
# Objects of the library's own classes, by what annotations call them: functions of such things get good ones.
MADE = {
    "TestResult": lambda: steinscope.gof_test(POINTS, -POINTS, critics="closed form"),
    "Ranking": lambda: steinscope.compare({"a": -POINTS, "b": 1 - POINTS}, POINTS, critics="linear"),
    "Estimate": lambda: steinscope.discrepancy(POINTS, -POINTS, critics="linear"),
    "Explanation": lambda: steinscope.discrepancy(POINTS, -POINTS, critics="linear").explain(),
    "TrainResult": lambda: steinscope.train(Gaussian(torch.zeros(2)), POINTS, steps=2, batch_size=32),
    "RunSettings": lambda: RunSettings(data="moons", steps=2, width=4),
    "FitSettings": lambda: FitSettings(steps=3, every=1),
    "Surface": lambda: Surface(
        Gaussian(torch.zeros(2)), Metric.identity(POINTS), (2,), torch.float64, torch.device("cpu")
    ),
    "Generator": lambda: torch.Generator().manual_seed(0),
}


def made(parameter):
    """What makes a good value of a parameter that takes an object of the library's own; None for others."""
    words = set(re.findall(r"\w+", str(parameter.annotation)))
    return next((make for name, make in MADE.items() if name in words), None)


@st.composite
def arguments(draw, function, folder):
    """Keyword arguments of a function: most of them good, at most one of them junk."""
    chosen = {}
    given_by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind in given_by_name]
    size = draw(sizes())
    spoilt = draw(st.sampled_from([None, None, *(parameter.name for parameter in parameters)]))
    for parameter in parameters:
        name, required = parameter.name, parameter.default is inspect.Parameter.empty
        if (make := made(parameter)) is not None and name != "seed":
            if required or name == "settings":
                chosen[name] = make()
        elif name == spoilt:
            chosen[name] = draw(junk())
        elif name in ("path", "source", "directory", "checkpoint"):
            chosen[name] = folder / draw(st.sampled_from(["a.npy", "b.csv", "missing", "c.gz"]))
        elif required or draw(st.sampled_from([False, False, True])):
            chosen[name] = draw(value_of(parameter, size))
    return chosen


def value_of(parameter, size):
    """What a parameter might be given, by its name, otherwise by its default or annotation."""
    name, default = parameter.name, parameter.default
    if name in ("model", "models"):
        one = models() | arrays(size)
        return one if name == "model" else st.dictionaries(st.sampled_from(["a", "b"]), one, min_size=1)
    if name in NAMES:
        return NAMES[name]
    if default is inspect.Parameter.empty:
        return arrays(size)
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int | float):
        return st.sampled_from([default, 1, 2, 0.5, 1e-3, 1e6])
    return st.just(default)


def numbers_of(value, path="result", seen=None):
    """Every number in a result, with the names that lead to it."""
    seen = seen if seen is not None else set()
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, bool | str | bytes | type(None)):
        return
    if isinstance(value, int | float | np.number):
        yield path, float(value)
    elif isinstance(value, np.ndarray) and path == "result":
        # What a file holds is up to the file.
        return
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        if array.dtype.kind in "fiu" and array.size:
            finite = array.astype(np.float64)
            yield from ((path, float(one)) for one in (finite.min(), finite.max(), finite.ravel()[0]))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from numbers_of(one, f"{path}.{key}", seen)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from numbers_of(one, path, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from numbers_of(getattr(value, field.name), f"{path}.{field.name}", seen)


def check_result(result):
    """Its numbers are finite and in range, it prints, and it is JSON."""
    for path, number in numbers_of(result):
        last = path.rsplit(".", 1)[-1]
        low, high = NUMBERS_IN_RANGE.get(last, (-math.inf, math.inf))
        # A history has NaN where there was nothing to record, and a single point has no spread.
        if math.isnan(number) and (last in ("std", "stderr") or "history" in path.split(".")):
            continue
        assert math.isfinite(number) and low <= number <= high, f"{path} is {number}"
    if hasattr(result, "to_dict"):
        json.dumps(result.to_dict(), allow_nan=False)
    assert str(result)


def snapshot(value):
    """What must not change while a function runs."""
    if isinstance(value, torch.Tensor):
        return None if value.device.type == "meta" or value.is_sparse else value.detach().clone().numpy().tobytes()
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" else None


def call(function, chosen):
    """Call a function and judge the outcome."""
    before = {name: snapshot(value) for name, value in chosen.items()}
    state, python_state = torch.get_rng_state(), random.getstate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = function(**chosen)
            if not isinstance(result, torch.nn.Module):
                check_result(result)
    except (InputError, NonFiniteError, DownloadError) as error:
        assert "\n" not in str(error) and str(error), f"a message of several lines: {error!r}"
    assert torch.equal(torch.get_rng_state(), state), "the global random state has changed"
    assert random.getstate() == python_state, "the random state of Python has changed"
    for name, value in chosen.items():
        assert snapshot(value) == before[name], f"{name} has changed"


def write_files(folder):
    """A good table, a bad one and one that is no archive."""
    np.save(folder / "a.npy", np.ones((3, 2)))
    (folder / "b.csv").write_text("1,2\n3,x\n")
    (folder / "c.gz").write_bytes(b"\x1f\x8bnothing")


def shortened(chosen):
    """Arguments with arrays by their kind and size."""
    arrays = (np.ndarray, torch.Tensor)
    return {
        name: f"{type(value).__name__} {value.dtype} {tuple(value.shape)}" if isinstance(value, arrays) else value
        for name, value in chosen.items()
    }


def place_of(error):
    """Where in the library an error came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "steinscope" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the campaign"


def run(cases, only="", chance=None):
    """Make calls, print each kind of failure when it is first met, and return them: function, error, place, values."""
    functions = {name: function for name, function in public_functions().items() if only in name}
    failures = {}

    def give_up(number, frame):
        raise TimeoutError(f"no answer after {SECONDS} s")

    signal.signal(signal.SIGALRM, give_up)
    # What is written to a path that was not meant as one goes there, too.
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        folder = Path(directory)
        write_files(folder)

        @settings(
            max_examples=cases,
            derandomize=chance is None,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def campaign(data):
            name = data.draw(st.sampled_from(sorted(functions)))
            chosen = data.draw(arguments(functions[name], folder))
            signal.alarm(SECONDS)
            try:
                call(functions[name], chosen)
            except Exception as error:
                kind = (name, type(error).__name__, place_of(error))
                if kind not in failures:
                    failures[kind] = f"{' '.join(kind)}: {error}\n    {shortened(chosen)}"[:1000]
                    print(failures[kind], flush=True)
            finally:
                signal.alarm(0)

        (campaign if chance is None else seed(chance)(campaign))()
    return list(failures.values())


if __name__ == "__main__":
    faulthandler.enable()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--only", default="", help="functions whose address holds this")
    parser.add_argument("--seed", type=int, help="other calls than those of every run")
    given_options = parser.parse_args()
    torch.set_num_threads(1)
    failures = run(given_options.cases, given_options.only, given_options.seed)
    print(f"{given_options.cases} calls, {len(failures)} kinds of failure")
    sys.exit(bool(failures))
