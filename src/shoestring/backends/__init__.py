"""Backends: buffers, kernel text, launches. They know no op and no graph."""

from .launch import Kernel, Launch, Operand

__all__ = ["Kernel", "Launch", "Operand"]
