"""Opens standard input, output and error if the program was started without them.

Otherwise the next file that the program opens would get the free descriptor. That may be a file of
the store, and log lines would be written into it.
"""

from __future__ import annotations

import io
import os
import sys


def open_standard_streams() -> None:
    """Open those of descriptors 0 to 2 that are closed, on /dev/null. Must be called before any
    other file is opened."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Gets the lowest free number, which is this one.
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            assert opened == number, f"descriptor {number} was taken"
            os.set_inheritable(opened, True)  # noqa: FBT003 - as standard streams are
    # Python sets them to None if their descriptor was closed at the start.
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
