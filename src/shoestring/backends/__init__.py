"""Backends: buffers, kernel text, launches. They know no op and no graph."""

from .launch import Kernel, Launch, Operand, row_major

__all__ = ["Kernel", "Launch", "Operand", "row_major"]
