"""`python -m benchmarks [NAME ...]` runs all benchmarks, or those named."""

import sys
from importlib import import_module

import torch

NAMES = ("critic", "gof", "training")

if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in sys.argv[1:] or NAMES:
        import_module(f"benchmarks.{name}").run()
