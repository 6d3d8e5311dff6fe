"""Code in the pages that needs a sampler runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "posteriors.md"
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    "section, printed", [("PyMC", "z[Choate]"), ("NumPyro", "Draws(1 chain of 2000 draws, 3 coord")]
)
def test_code_in_the_page_runs(section, printed, capsys):
    (block,) = re.findall(r"```\{code-block\} python\n(.*?)```", SECTIONS[section], re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert printed in capsys.readouterr().out
