"""The command line: `shoestring train mnist`, `shoestring ops`. Each command is a file; this one
reads the arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import ShoestringError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    from . import ops, train

    parser = argparse.ArgumentParser(
        prog="shoestring",
        description="Neural networks, trained from scratch on the graphics card you already own.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for command in (train, ops):
        command.add(commands)
    options = parser.parse_args(arguments)
    if options.version:
        from .. import __version__

        print(f"shoestring {__version__}")
        return 0
    if not options.command:
        parser.print_help()
        return 2
    try:
        return options.run(options)
    except ShoestringError as problem:
        line = problem.details["line"]  # here the caller's line is the shell's, not the user's
        text = str(problem).replace(f"    at  {line}\n", "") if line else str(problem)
        print(f"error: {text}", file=sys.stderr)
        return 1
