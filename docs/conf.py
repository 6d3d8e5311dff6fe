"""How Sphinx builds the site: `make docs`."""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

import steinscope

sys.path.insert(0, str(Path(__file__).parent))
from registry_tables import TABLES, registry_table  # noqa: E402

project = "steinscope"
author = "steinscope"
release = steinscope.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build"]
# Commands and tables of numbers are not Python; blocks that are say so.
highlight_language = "none"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "steinscope"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

# Docstrings: single backticks are code, and "Arguments:" opens a list of arguments.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

MATH = re.compile(r"\$(\S(?:[^$]*\S)?)\$")


def write_formulas(app, what, name, thing, options, lines):
    """Formulas between dollars, as in these pages, in the form that docstrings need."""
    lines[:] = MATH.sub(lambda formula: f":math:`{formula[1]}`", "\n".join(lines)).split("\n")


class RegistryTable(Directive):
    """The table of a registry, where a page says `{registry}` and its name."""

    required_arguments = 1

    def run(self):
        name = directives.choice(self.arguments[0], tuple(TABLES))
        lines = StringList(registry_table(name).splitlines(), source="steinscope.registries")
        found = nodes.container(classes=["registry"])
        self.state.nested_parse(lines, self.content_offset, found)
        return found.children


def setup(app):
    """Called by Sphinx."""
    app.add_directive("registry", RegistryTable)
    app.connect("autodoc-process-docstring", write_formulas)
