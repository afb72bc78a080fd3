"""The command line: `shoestring train mnist`, `shoestring plan resnet18`, `shoestring ops`. Each
command is a file; this one reads the arguments.

Exit codes: 0 done; 1 an error while working; 2 bad arguments or a bad environment variable; 130
stopped with Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import ShoestringError


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} ({self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    from . import ops, plan, train

    parser = Parser(
        prog="shoestring",
        description="Neural networks, trained from scratch on the graphics card you already own.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for command in (train, plan, ops):
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
        complain(problem)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone; nor can Python's own flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def complain(problem: ShoestringError) -> None:
    """Print an error as users of the command line should see it."""
    line = problem.details["line"]  # here the caller's line is the shell's, not the user's
    text = str(problem).replace(f"    at  {line}\n", "") if line else str(problem)
    print(f"error: {text}", file=sys.stderr)


def end_command(problem: ShoestringError) -> None:
    """For an error while the package is imported: print it and exit, if this process is the command
    line. That is `shoestring ...`, or `python -m shoestring ...`, which imports the package before
    it says what it runs."""
    program = sys.argv[0] if sys.argv else ""
    module = program == "-m" and "shoestring" in sys.orig_argv
    if module or pathlib.Path(program).stem == "shoestring":
        complain(problem)
        sys.exit(2)
