"""What a figure was measured on: figures without it mean nothing."""

from __future__ import annotations

import mmap
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import thread_time

from kvcq_bench.errors import BenchError

_PACKAGES = ("kvcq", "grpcio", "protobuf", "rocksdict", "numpy", "zlib-ng", "uvloop")


def machine() -> dict[str, object]:
    """Processor, cores, memory, system, and how busy it was. Raises BenchError without psutil."""
    try:
        import psutil
    except ImportError as error:
        raise BenchError("psutil is not installed: pip install 'kvcq[bench]'") from error
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


def touch_memory(size: int) -> float:
    """Write to so many bytes of fresh memory and give them back: MB a second of processor time.

    An eighth of what is available at most.

    A virtual machine's host takes free memory back, and gives it again page by page, at the first
    touch: measured, 0.3 GB/s against 20 GB/s for memory that is there. Whatever is measured right
    afterwards finds that memory there, as on a machine of its own. A figure that changed while
    this rate changed says nothing of the program.
    """
    import psutil

    piece = bytes(1 << 20)
    size = max(min(size, psutil.virtual_memory().available // 8), len(piece))
    began_s = thread_time()
    with mmap.mmap(-1, size) as memory:
        for _ in range(size // len(piece)):
            memory.write(piece)
    return size / 1e6 / (thread_time() - began_s)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
