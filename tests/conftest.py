"""Shapes and types of every call into the library are checked while the tests run."""

import sys
from types import SimpleNamespace

import pytest
from jaxtyping import install_import_hook

install_import_hook("steinscope", "typechecker.check")


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
