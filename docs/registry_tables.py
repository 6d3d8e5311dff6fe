"""Tables of what the registries hold, in Markdown. Pages ask for them by `{registry}`; see conf.py."""

import inspect
import re

from steinscope.registries import CRITICS, KERNEL_TESTS, OBJECTIVES

__all__ = ["TABLES", "registry_table"]

PURPOSES = {"test": "a test", "estimate": "an estimate", "ranking": "a ranking"}


def registry_table(name):
    """The table of a registry: critics, objectives or kernel-tests."""
    columns, rows = TABLES[name]()
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def critics():
    rows = [
        [f"`{entry.name}`", entry.text, first_sentence(entry), auto_takes(entry), needs(entry)]
        for entry in CRITICS.values()
    ]
    return ["critic", "what it sees", "what it is", "when `auto` takes it", "what it needs of the model"], rows


def auto_takes(entry):
    """When a critic is one of those that `auto` stands for."""
    conditions = [f"from {entry.least_points} points on"] if entry.least_points else []
    conditions += ["where the model has what it needs"] if entry.needs else []
    conditions += [f"not in {PURPOSES[purpose]}" for purpose in PURPOSES if purpose not in entry.purposes]
    return ", ".join(conditions) or "always"


def needs(entry):
    return "scores" if entry.needs is None else f"`{entry.needs}(x)`"


def objectives():
    rows = [
        [f"`{entry.name}`", entry.text, f"`{call(entry)}`", "normalised" if entry.is_for_normalised else "any"]
        for entry in OBJECTIVES.values()
    ]
    return ["name", "what it is", "the same as an object", "models"], rows


def call(entry):
    """How the objective of this name is made."""
    settings = ", ".join(f"{key}={value!r}" for key, value in entry.settings.items())
    return f"{entry.load().__name__}({settings})".replace("'", '"')


def kernel_tests():
    rows = [
        [f"`{entry.name}`", f"`{entry.load().__name__}`", first_sentence(entry), f"{entry.against} of the model"]
        for entry in KERNEL_TESTS.values()
    ]
    return ["name", "function", "what it is", "compares the points with"], rows


def first_sentence(entry):
    """The first sentence of the member's docstring, without its full stop."""
    paragraph = " ".join((inspect.getdoc(entry.load()) or entry.text).split("\n\n")[0].split())
    return re.split(r"\.(?:\s|$)", paragraph)[0]


TABLES = {"critics": critics, "objectives": objectives, "kernel-tests": kernel_tests}
