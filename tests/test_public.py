"""What the package shows to its users, and that what the documents say is true."""

import re
from pathlib import Path

import pytest
import torch

import steinscope
import steinscope.kernels
from steinscope import FitSettings
from steinscope.models import Gaussian

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_public_name_is_there():
    for name in steinscope.__all__:
        assert callable(getattr(steinscope, name)) or name == "__version__"
    assert {*dir(steinscope), "__version__"} == set(steinscope.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        steinscope.nothing  # noqa: B018


def test_the_reference_lists_every_public_name():
    for page, module in (("index", steinscope), ("kernels", steinscope.kernels)):
        listed = set(re.findall(r":: (\w+)$", (ROOT / "docs" / "api" / f"{page}.md").read_text(), re.MULTILINE))
        public = [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]
        assert set(public) <= listed


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_in_documents_runs_and_prints_what_it_says(document, tmp_path, monkeypatch, capsys):
    """Python blocks run one after the other; a text block that follows one is what it printed."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|text)\n(.*?)```", document.read_text(), re.DOTALL)
    names, printed = {}, ""
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, str(document), "exec"), names)
            printed = capsys.readouterr().out
        else:
            assert_same_text(printed.strip(), block.strip())


NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


CALLS = {
    "gof_test": lambda x: steinscope.gof_test(x, -x, critics=("mlp",)).statistic,
    "split": lambda x: steinscope.gof_test(x, -x, scheme="split").statistic,
    "discrepancy": lambda x: steinscope.discrepancy(x, -x, settings=FitSettings(steps=5)).value,
    "compare": lambda x: steinscope.compare(
        {"a": -x, "b": -2 * x}, x, folds=None, settings=FitSettings(steps=5)
    ).values[1],
    "fssd": lambda x: steinscope.kernels.fssd_test(x, -x).statistic,
    "train": lambda x: float(steinscope.train(Gaussian([0.0, 0.0]), x, steps=3).model.mean.detach().sum()),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_may_be_off_where_a_function_is_called(name):
    x = 0.1 + Gaussian([0.0, 0.0]).sample(400)
    expected = CALLS[name](x)
    with torch.no_grad():
        assert CALLS[name](x) == expected


def assert_same_text(printed, promised):
    """The same words and whole numbers; other numbers may differ a little, as they do from machine to machine."""
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", promised)
    for ours, theirs in zip(re.findall(NUMBER, printed), re.findall(NUMBER, promised), strict=True):
        if "." in theirs:
            assert float(ours) == pytest.approx(float(theirs), rel=0.25, abs=0.05)
        else:
            assert ours == theirs
