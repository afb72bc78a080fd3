"""Shoestring: neural networks, trained from scratch on the graphics card you already own.

import shoestring as ss
"""

from . import backends, config, data, errors, io, models, nn, ops, optim, runtime, testing
from .data import DataLoader
from .errors import ShoestringError
from .functions import *  # noqa: F403
from .functions import __all__ as _functions
from .grad_mode import no_grad
from .io import load, save
from .ir import bool_, float32, float64, int32, int64, uint8
from .nn import *  # noqa: F403
from .nn import __all__ as _layers
from .optim import (
    SGD,
    Adam,
    AdamW,
    accumulate,
    check_nan_gradients,
    clip_grad_norm_,
    print_tensor_stats,
)
from .runtime import (
    debug,
    default_device,
    memory_limit,
    memory_report,
    memory_stats,
    reset_stats,
    set_threads,
    stats,
    threads,
)
from .tensor import Tensor
from .variable import Parameter, Variable, tensor

__version__ = "0.1.0"
try:
    _switches = config.load()
except errors.ConfigError as problem:
    from .cli import end_command

    end_command(problem)  # the command line shows no traceback
    raise
runtime.session.check = _switches["CHECK"]
backends.memory_log.enabled = _switches["LOG_MEMORY"]
if _switches["MEMORY_LIMIT"]:
    memory_limit(_switches["MEMORY_LIMIT"])
__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "DataLoader",
    "Parameter",
    "ShoestringError",
    "Tensor",
    "Variable",
    "accumulate",
    "bool_",
    "check_nan_gradients",
    "clip_grad_norm_",
    "config",
    "data",
    "debug",
    "default_device",
    "errors",
    "float32",
    "float64",
    "int32",
    "int64",
    "io",
    "load",
    "memory_limit",
    "memory_report",
    "memory_stats",
    "models",
    "nn",
    "no_grad",
    "ops",
    "optim",
    "print_tensor_stats",
    "reset_stats",
    "save",
    "set_threads",
    "stats",
    "tensor",
    "testing",
    "threads",
    "uint8",
    *_functions,
    *_layers,
]


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    close = errors.nearest(name, __all__)
    errors.fail(
        "value/name.unknown",
        f"shoestring has no name {name!r}",
        tensors={},
        error=errors.NameUnknownError,
        hint=f"ss.{close}" if close else "dir(ss) lists all names",
    )
