"""KvEngine in memory: the twin of RocksEngine, held to the same contract.

Also a model of the expiry filter: `compact` drops what the armed line has passed.
"""

from __future__ import annotations

import struct
import tempfile
import threading
from bisect import bisect_left, insort
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.errors import EngineClosedError, EngineFailedError
from store.base import SystemClock
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kvcq.engine.protocol import KvBatch, Pair
    from store.base import Clock

_LENGTHS = struct.Struct(">II")  # of the key, of the value; both follow
_STAMP_BYTES = 4  # little-endian seconds since 1970, the end of a value


class _Family:
    """One sorted map: a dict, and its keys in order."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def range(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        first = 0 if start is None else bisect_left(self.keys, start)
        return self.keys[first : None if end is None else bisect_left(self.keys, end)]


class MemoryEngine:
    """Sorted maps. Nothing is durable; `flush` only checks that the engine is open.

    Thread: any. Locks: `_lock`, around each call.
    """

    def __init__(
        self,
        families: Sequence[str] = ("default",),
        *,
        filtered: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        # Constant after construction.
        self._filtered = filtered
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._families = {name: _Family() for name in families}
        self._ttl_s: int | None = None
        self._closed = False

    def get(self, family: str, key: bytes) -> bytes | None:
        with self._lock:
            return self._family(family).values.get(key)

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            return [*map(self._family(family).values.get, keys)]

    def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
        fill_cache: bool = True,
    ) -> list[Pair]:
        with self._lock:
            rows = self._family(family)
            keys = rows.range(start, end) if start < end else []
            if reverse:
                keys.reverse()
            return [(key, rows.values[key]) for key in keys[:limit]]

    def write(self, batch: KvBatch) -> None:
        with self._lock:
            self._check_open()
            # All names first: a batch is taken whole or not at all.
            names = {
                *batch.puts,
                *(d[0] for d in batch.deletes),
                *(d[0] for d in batch.delete_ranges),
            }
            families = {name: self._family(name) for name in names}
            for name, start, end in batch.delete_ranges:
                for key in families[name].range(start, end):
                    families[name].delete(key)
            for name, key in batch.deletes:
                families[name].delete(key)
            for name, rows in batch.puts.items():
                for key, value in rows:
                    families[name].put(key, value)

    def flush(self) -> None:
        with self._lock:
            self._check_open()

    def back_up(self) -> Path:
        target = Path(tempfile.mkdtemp(prefix="kvcq-memory-"))
        with self._lock:
            self._check_open()
            for name, rows in self._families.items():
                write_sorted(target / name, sorted(rows.values.items()))
        return target

    def settle(self) -> None:
        with self._lock:
            self._check_open()

    def compact(
        self,
        family: str,
        start: bytes | None = None,
        end: bytes | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        with self._lock:
            rows = self._family(family)
            if family in self._filtered and self._ttl_s is not None:
                line_s = self._clock.now_ms() // 1000 - self._ttl_s
                for key in rows.range(start, end):
                    if int.from_bytes(rows.values[key][-_STAMP_BYTES:], "little") < line_s:
                        rows.delete(key)
        if progress is not None:
            progress(1.0)

    def arm(self, ttl_s: int | None) -> None:
        """Compactions drop values stamped more than `ttl_s` seconds ago; None: drop nothing."""
        if not self._filtered:
            raise InvalidArgumentError("ttl_s", "no family of this database takes a filter")
        with self._lock:
            self._check_open()
            self._ttl_s = ttl_s

    def ingest(self, family: str, paths: Sequence[Path], *, move: bool) -> None:
        with self._lock:
            rows = self._family(family)
            for path in paths:
                for key, value in _read_rows(path):
                    rows.put(key, value)
                if move:
                    path.unlink()

    def statistics(self) -> dict[str, float]:
        with self._lock:
            self._check_open()
            return {
                f"{name}.estimated_keys": float(len(rows.keys))
                for name, rows in self._families.items()
            }

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine in memory is closed")

    def _family(self, name: str) -> _Family:
        self._check_open()
        if name not in self._families:
            raise EngineFailedError(f"no family {name!r}")
        return self._families[name]


def write_sorted(path: Path, rows: Iterable[Pair]) -> Path | None:
    """Write rows, keys strictly rising, as a file for `ingest`; no rows, no file."""
    pairs = list(rows)
    for (before, _), (key, _) in pairwise(pairs):
        if key <= before:
            raise InvalidArgumentError("rows", f"key {key.hex()} is not above the one before")
    if not pairs:
        return None
    with path.open("wb") as file:
        for key, value in pairs:
            file.write(_LENGTHS.pack(len(key), len(value)) + key + value)
    return path


def _read_rows(path: Path) -> Iterator[Pair]:
    if not path.is_file():
        raise EngineFailedError(f"no file {path}")
    data = path.read_bytes()
    at = 0
    while at < len(data):
        key_bytes, value_bytes = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        yield data[at : at + key_bytes], data[at + key_bytes : at + key_bytes + value_bytes]
        at += key_bytes + value_bytes
