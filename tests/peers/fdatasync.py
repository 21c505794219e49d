"""What one bare fdatasync costs on the disk that the servers write to."""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING

from tests.peers.values import BODY_BYTES, Timed

if TYPE_CHECKING:
    from pathlib import Path

_FILE_BYTES = 16 << 20


def bare_fdatasync(directory: Path, limit_s: float) -> Timed:
    """Messages of 1 KiB into a file that has its space, each with its fdatasync."""
    path = directory / "fdatasync"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.pwrite(descriptor, bytes(_FILE_BYTES), 0)
        os.fsync(descriptor)
        body = os.urandom(BODY_BYTES)
        calls: list[float] = []
        began_s = perf_counter()
        while (now_s := perf_counter()) - began_s < limit_s:
            os.pwrite(descriptor, body, len(calls) * BODY_BYTES % _FILE_BYTES)
            os.fdatasync(descriptor)
            calls.append(perf_counter() - now_s)
        return Timed.of_calls(calls, perf_counter() - began_s)
    finally:
        os.close(descriptor)
        path.unlink()
