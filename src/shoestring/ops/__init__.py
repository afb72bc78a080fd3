"""All operations, one file per family. Importing a family registers its ops."""

from . import copy, position, random, reduce, shape, state, take

__all__ = ["copy", "position", "random", "reduce", "shape", "state", "take"]
