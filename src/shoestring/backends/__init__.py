"""Backends: buffers, kernel text, launches. They know no op and no graph."""

from .launch import Attached, Kernel, Launch, Operand, Placed, placed, row_major

__all__ = ["Attached", "Kernel", "Launch", "Operand", "Placed", "placed", "row_major"]
