"""Shapes and types of every call into the library are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("steinscope", "typechecker.check")
