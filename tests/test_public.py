"""What the package shows to its users, and that what the documents say is true."""

import ast
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import steinscope
from steinscope import FitSettings
from steinscope.kernels import fssd_test
from steinscope.models import Gaussian

ROOT = Path(__file__).parent.parent
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
STUBS = sorted((ROOT / "src").rglob("__init__.pyi"))
# Pages that rank models or train one.
SLOW = {"README.md", "docs/comparing-models.md", "docs/quick-start.md", "docs/training.md"}


def marked(path):
    name = str(path.relative_to(ROOT))
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


def stub_names(path):
    """What a stub imports from the modules beside it, and what it declares."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 1 and all(alias.asname == alias.name for alias in node.names)
            names += [alias.name for alias in node.names]
        else:
            names.append(node.target.id)
    return names


SHOW = """
import importlib, sys
for package in sys.argv[1:]:
    face, names = importlib.import_module(package), {}
    exec(f"from {package} import *", names)
    shown = (face.__all__, {*dir(face), "__version__"} & {*face.__all__}, {*names} - {"__builtins__"})
    print(package, *(",".join(sorted(part)) for part in shown))
"""


@pytest.fixture(scope="module")
def faces():
    """What each face shows, in a process that has imported nothing else."""
    command = [sys.executable, "-c", SHOW, *(package_of(stub) for stub in STUBS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def package_of(stub):
    return ".".join(stub.parent.relative_to(ROOT / "src").parts)


@pytest.mark.parametrize("stub", STUBS, ids=package_of)
def test_a_face_shows_what_its_stub_lists(stub, faces):
    """One list: the stub, which type checkers read. All of it can be imported, and nothing else is shown."""
    assert faces[package_of(stub)] == [",".join(sorted(stub_names(stub)))] * 3


def test_every_package_with_a_face_has_a_stub():
    lazy = [path for path in (ROOT / "src").rglob("__init__.py") if "attach_stub" in path.read_text()]
    assert sorted(path.with_suffix(".pyi") for path in lazy) == STUBS


def test_another_name_is_an_error():
    with pytest.raises(AttributeError, match="attribute nothing"):
        steinscope.nothing  # noqa: B018


def test_the_reference_lists_every_public_name():
    """Names of the package one by one, and the faces of its packages as a whole."""
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "api").glob("*.md")}
    listed = set(re.findall(r":: (\w+)$", pages["index"], re.MULTILINE))
    assert {name for name in steinscope.__all__ if name != "__version__"} <= listed
    whole = set(re.findall(r"automodule:: ([\w.]+)$", "\n".join(pages.values()), re.MULTILINE))
    assert {package_of(stub) for stub in STUBS} - {"steinscope", "steinscope.gof"} <= whole


class Writer:
    """What the page on logging uses of TensorBoard's writer, for plain numbers; TensorBoard is not installed."""

    written = {}

    def __init__(self, directory):
        assert isinstance(directory, str)

    def add_scalar(self, name, value, step):
        assert type(name) is str and type(value) is float and type(step) is int
        self.written.setdefault(name, []).append(step)

    def close(self):
        assert self.written["model_loss"] == self.written["distance"] == list(range(10, 101, 10))


@pytest.mark.parametrize("document", [marked(path) for path in (ROOT / "README.md", *PAGES)])
def test_code_in_documents_runs_and_prints_what_it_says(document, tmp_path, monkeypatch, capsys):
    """Python blocks run one after the other; a text block that follows one is what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    blocks = re.findall(r"```(python|text)\n(.*?)```", document.read_text(), re.DOTALL)
    names, printed = {}, ""
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, str(document), "exec"), names)
            printed = capsys.readouterr().out
        else:
            assert_same_text(printed.strip(), block.strip())


NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


def assert_same_text(printed, promised):
    """The same words and counts; other numbers may differ a little, as they do from machine to machine."""
    # A number with fewer digits has more spaces before it in a table.
    ours, theirs = (re.sub(" +", " ", re.sub(NUMBER, "#", text)) for text in (printed, promised))
    assert ours == theirs
    for ours, theirs in zip(re.findall(NUMBER, printed), re.findall(NUMBER, promised), strict=True):
        if "e" in theirs:
            # A small p-value: a z-score that is off by some hundredths changes it by a factor.
            assert float(ours) > 0
            orders = math.log10(float(theirs))
            assert math.log10(float(ours)) == pytest.approx(orders, abs=0.1 + 0.01 * abs(orders))
        elif "." in theirs:
            last_digit = 10.0 ** -len(theirs.partition(".")[2])
            assert float(ours) == pytest.approx(float(theirs), rel=0.1, abs=2 * last_digit)
        else:
            assert ours == theirs


@pytest.mark.parametrize(
    "printed, promised, same",
    [
        ("p = 0.041, 20 points", "p = 0.042, 20 points", True),
        ("p = 0.041", "p = 0.012", False),
        ("p = 0.001", "p = 0.042", False),
        ("p = 8.5e-08", "p = 8.03e-08", True),
        ("p = 0.001", "p = 8.03e-08", False),
        ("p = 8.03e-06", "p = 8.03e-08", False),
        ("p = nan", "p = 0.04", False),
        ("z = -0.35", "z = 0.35", False),
        ("LSD 0.58", "LSD 0.62", True),
        ("LSD 0.50", "LSD 0.62", False),
        ("20 points", "21 points", False),
        ("x[3] spreads more", "x[5] spreads more", False),
        ("rejected", "not rejected", False),
    ],
)
def test_what_differs_is_seen(printed, promised, same):
    if same:
        return assert_same_text(printed, promised)
    with pytest.raises(AssertionError):
        assert_same_text(printed, promised)


CALLS = {
    "gof_test": lambda x: steinscope.gof_test(x, -x, critics=("mlp",)).statistic,
    "split": lambda x: steinscope.gof_test(x, -x, scheme="split").statistic,
    "discrepancy": lambda x: steinscope.discrepancy(x, -x, settings=FitSettings(steps=5)).value,
    "compare": lambda x: steinscope.compare(
        {"a": -x, "b": -2 * x}, x, folds=None, settings=FitSettings(steps=5)
    ).values[1],
    "fssd": lambda x: fssd_test(x, -x).statistic,
    "train": lambda x: float(steinscope.train(Gaussian([0.0, 0.0]), x, steps=3).model.mean.detach().sum()),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_may_be_off_where_a_function_is_called(name, short_split):
    x = 0.1 + Gaussian([0.0, 0.0]).sample(400)
    expected = CALLS[name](x)
    with torch.no_grad():
        assert CALLS[name](x) == expected
