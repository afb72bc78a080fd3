"""Shoestring: neural networks, trained from scratch on the graphics card you already own.

    import shoestring as ss
"""

from . import errors, ops
from .errors import ShoestringError
from .functions import *  # noqa: F403
from .functions import __all__ as _functions
from .ir import bool_, float32, float64, int32, int64, uint8
from .runtime import debug, default_device, reset_stats, stats
from .tensor import Parameter, Tensor, Variable, no_grad, tensor

__version__ = "0.1.0"
__all__ = ["Parameter", "ShoestringError", "Tensor", "Variable", "bool_", "debug", "default_device", "errors", "float32",
           "float64", "int32", "int64", "no_grad", "ops", "reset_stats", "stats", "tensor", "uint8", *_functions]


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    close = errors.nearest(name, __all__)
    errors.fail("value/name.unknown", f"shoestring has no name {name!r}", tensors={}, error=errors.NameUnknownError,
                hint=f"ss.{close}" if close else "dir(ss) lists all names")
