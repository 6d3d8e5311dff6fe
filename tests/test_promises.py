"""Every line of the page of promises names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "promises.md").read_text()
# A promise begins with a dash and goes on until the next, a heading, or the end.
PROMISES = re.findall(r"^- (.*?)(?=^- |^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`([a-z_/]+\.py)(?:::(test_\w+))?`")


def test_there_are_promises_of_each_kind():
    assert len(PROMISES) == len(re.findall(r"^- ", PAGE, re.MULTILINE)) > 15
    assert {"Inputs", "Files", "Resumption", "Determinism", "Security"} <= set(
        re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    )


@pytest.mark.parametrize("promise", PROMISES, ids=[promise[:40].strip() for promise in PROMISES])
def test_the_tests_of_a_promise_exist(promise):
    named = TEST.findall(promise)
    assert named, "no test is named"
    for file, test in named:
        tree = ast.parse((TESTS / file).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert test in functions if test else any(name.startswith("test_") for name in functions), f"{file}::{test}"
