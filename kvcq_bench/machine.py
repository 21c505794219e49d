"""The machine of a measurement: its properties, and the memory, processor and disk that processes
use.

Usage of processes is only known on Linux, from `/proc`.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PACKAGES = ("kvcq", "grpcio", "protobuf", "rocksdict", "numpy", "zlib-ng", "uvloop")
_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BLOCK_BYTES = 512  # unit of st_blocks, on every file system


def machine() -> dict[str, object]:
    """Processor, cores, memory, system and load."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES,
        "system": platform.platform(),
        "load_average": list(os.getloadavg()),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """Python and the packages that matter for speed."""
    found = {"python": sys.version.split()[0]}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@dataclass(frozen=True, slots=True)
class Used:
    """Resource usage of some processes at one moment."""

    resident_bytes: int = 0  # including pages of mapped files
    private_bytes: int = 0  # without them: the kernel cannot reclaim these
    open_files: int = 0
    cpu_s: float = 0.0  # including children that have ended


def used_by(pids: Iterable[int], *, alone: bool = False) -> Used:
    """Usage of the processes and, unless `alone`, of all their descendants. A process that has
    ended counts as zero."""
    resident = private = files = 0
    cpu_s = 0.0
    for pid in pids if alone else _with_descendants(pids):
        with suppress(OSError):
            place = _PROC / str(pid)
            # Behind the name, which may contain spaces: utime, stime, cutime, cstime.
            ticks = (place / "stat").read_text("utf-8").rpartition(")")[2].split()[11:15]
            _, pages, shared, *_ = map(int, (place / "statm").read_text("utf-8").split())
            files += len(os.listdir(place / "fd"))  # noqa: PTH208 - a path for each is too slow
            cpu_s += sum(map(int, ticks)) / _TICKS_PER_S
            resident += pages * _PAGE_BYTES
            private += (pages - shared) * _PAGE_BYTES
    return Used(resident, private, files, cpu_s)


def _with_descendants(pids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    due = list(pids)
    while due:
        pid = due.pop()
        found.add(pid)
        for task in (_PROC / str(pid) / "task").glob("*/children"):
            with suppress(OSError):
                due += map(int, task.read_text("utf-8").split())
    return found


def touch_memory(size: int) -> float:
    """Write to `size` bytes of fresh memory, at most an eighth of what is available, and free them.
    Returns MB per second of processor time.

    The host of a virtual machine takes free memory back, and provides it again page by page at the
    first touch, which is slow. A measurement right after this call finds its memory resident, as on
    a physical machine.
    """
    piece = bytes(1 << 20)
    size = max(min(size, os.sysconf("SC_AVPHYS_PAGES") * _PAGE_BYTES // 8), len(piece))
    began_s = thread_time()
    with mmap.mmap(-1, size) as memory:
        for _ in range(size // len(piece)):
            memory.write(piece)
    return size / 1e6 / (thread_time() - began_s)


def disk_bytes(directory: Path) -> dict[str, int]:
    """Allocated bytes of each entry of the store in `directory`; ignores files that vanish
    meanwhile."""
    found: dict[str, int] = {}
    root = directory / "store"
    for entry in sorted(root.iterdir()) if root.exists() else ():
        total = 0
        for path in (entry, *entry.rglob("*")) if entry.is_dir() else (entry,):
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * _BLOCK_BYTES
        found[entry.name] = total
    return found


def _processor() -> str:
    with suppress(OSError):
        for line in (_PROC / "cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
