"""Learn the Stein discrepancy: test, compare and train unnormalised densities without sampling from them."""

import lazy_loader

__version__ = "0.1.0"

# The public names are listed once, in __init__.pyi, which type checkers read as well. They are loaded on first use, so
# that `steinscope --help` does not wait for torch. The faces of the packages work likewise.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*__all__, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]
