"""What a figure was measured on: figures without it mean nothing."""

from __future__ import annotations

import mmap
import os
import platform
import sys
import zlib
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import thread_time

import psutil

_PROBE_BYTES = 64 << 20
_PACKAGES = ("kvcq", "grpcio", "protobuf", "rocksdict", "numpy", "isal", "uvloop")


def machine() -> dict[str, object]:
    """Processor, cores, memory, system, and how busy it was."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "load_average": list(os.getloadavg()),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """Python and the packages that count."""
    found = {"python": sys.version.split()[0]}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def pace_mb_per_s() -> float:
    """MB a second of processor time at which fresh memory is filled and a CRC is taken of it.

    A virtual machine gets faster and slower as its host likes: a figure that changed while this
    changed says nothing of the program.
    """
    piece = bytes(1 << 20)
    began_s = thread_time()
    with mmap.mmap(-1, _PROBE_BYTES) as memory:
        for _ in range(0, _PROBE_BYTES, len(piece)):
            memory.write(piece)
        zlib.crc32(memory)
    return _PROBE_BYTES / 1e6 / (thread_time() - began_s)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
