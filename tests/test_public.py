"""What the package shows to its users, and that what the documents say is true."""

import re
from pathlib import Path

import pytest

import steinscope

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_public_name_is_there():
    for name in steinscope.__all__:
        assert getattr(steinscope, name) is not None
    assert set(dir(steinscope)) == set(steinscope.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        steinscope.nothing  # noqa: B018


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
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
            assert printed.strip() == block.strip()
