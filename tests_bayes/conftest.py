"""Real samplers. Only the environment of `make test-bayes` has them."""

import os

from jaxtyping import install_import_hook

# Graphs of PyTensor run in Python: these models are small, and compiling them to C would take longer than the tests.
os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,mode=FAST_COMPILE")

install_import_hook("steinscope", "typechecker.check")
