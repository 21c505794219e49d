"""Standard input, output and error are open, whatever the program was started with.

A program started with one of them closed gets its number for the next file that it opens: a file
of the store, into which the first line of a log, or what a library prints, would then be written.
"""

from __future__ import annotations

import io
import os
import sys


def open_standard_streams() -> None:
    """Open the closed ones of descriptors 0 to 2 on /dev/null. Must be called before any other file
    is opened."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one.
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            assert opened == number, f"descriptor {number} was taken"
            os.set_inheritable(opened, True)  # noqa: FBT003 - as standard streams are
    # Python leaves them out where the descriptor was closed.
    if sys.stdin is None:
        sys.stdin = _text(0, "r")
    if sys.stdout is None:
        sys.stdout = _text(1, "w")
    if sys.stderr is None:
        sys.stderr = _text(2, "w")


def _text(descriptor: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace")
