"""What the package shows to its users, and that what the documents say is true."""

import re
from pathlib import Path

import pytest

import steinscope
import steinscope.kernels

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_public_name_is_there():
    for name in steinscope.__all__:
        assert callable(getattr(steinscope, name)) or name == "__version__"
    assert set(dir(steinscope)) == set(steinscope.__all__)
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


def assert_same_text(printed, promised):
    """The same words and whole numbers; other numbers may differ a little, as they do from machine to machine."""
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", promised)
    for ours, theirs in zip(re.findall(NUMBER, printed), re.findall(NUMBER, promised), strict=True):
        if "." in theirs:
            assert float(ours) == pytest.approx(float(theirs), rel=0.25, abs=0.05)
        else:
            assert ours == theirs
