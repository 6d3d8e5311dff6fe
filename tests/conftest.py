"""Shapes and types of every call into the library are checked while the tests run."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("steinscope", "typechecker.check")

# The same examples in every run, and no time limit: machines differ.
settings.register_profile("steinscope", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("steinscope")


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `steinscope` in this process: a function from arguments to exit code, output and errors."""

    def run(*arguments):
        from steinscope.cli import main

        monkeypatch.setattr(sys, "path", list(sys.path))
        capsys.readouterr()
        with pytest.raises(SystemExit) as done:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return SimpleNamespace(code=done.value.code, out=printed.out, err=printed.err)

    return run


@pytest.fixture
def short_split(monkeypatch):
    """The split test of fit with a critic that is trained for 50 steps in place of the paper's 1000."""
    from steinscope import FitSettings
    from steinscope.gof import split

    monkeypatch.setattr(split, "FitSettings", lambda **given: FitSettings(**{**given, "steps": 50, "every": 25}))
