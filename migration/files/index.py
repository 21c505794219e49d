"""All index files of a store, oldest first; entries go to the newest one, which rolls when full.

A message is indexed once. Records below that of the last entry are already indexed. Of that record,
as many keys are indexed as it has entries.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from migration.errors import IndexFileError
from migration.files.index_file import IndexFile
from migration.formats import (
    HEADER,
    HEADER_SIZE,
    IndexLayout,
    index_files_in,
    index_key,
    index_name,
    key_hashes,
)
from store.base import DIRECTORY_MODE, Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from migration.files.handles import FileHandles
    from store.base import Clock


class IndexFileSet:
    """Adds keys, and finds candidates for a key.

    Thread: one writer at a time, ensured by the owner; `candidates` from any thread. Locks: `_lock`
    guards the list of files; held for an assignment.
    """

    def __init__(
        self,
        root: Path,
        layout: IndexLayout,
        handles: FileHandles,
        clock: Clock,
        store_time_ms: Callable[[int], int | None],
    ) -> None:
        # Constant after construction.
        self.root = root
        self._layout = layout
        self._handles = handles
        self._clock = clock
        self._store_time_ms = store_time_ms
        self._lock = Lock()
        # Guarded by _lock for readers; changed by the writer only.
        self._files: list[IndexFile] = []
        # Owned by the writer.
        self._end_offset = -1  # physical offset of the last record indexed
        self._end_keys = 0  # number of its keys that are indexed

    @property
    def file_count(self) -> int:
        return len(self._files)

    @property
    def entry_count(self) -> int:
        return sum(file.next_entry - 1 for file in list(self._files))

    @property
    def first_offset(self) -> int:
        """Physical offset of the first record indexed; -1 if there is none."""
        return next((file.begin_offset for file in list(self._files) if not file.empty), -1)

    @property
    def end_offset(self) -> int:
        """Physical offset of the last record indexed; -1 if there is none."""
        return self._end_offset

    def load(self) -> None:
        """Read the headers. Writes nothing. Raises IndexFileError."""
        paths = index_files_in(self.root)
        self._set_files([IndexFile(path, self._layout, self._handles) for path in paths])
        for file in self._files:
            file.load()
        self._find_end()

    def recover(self, physical_offset: int) -> None:
        """Load after a crash: keep entries below the durable `physical_offset`.

        Durable after the next sync of the handles. Raises IndexFileError for damage that a crash
        cannot have caused.
        """
        paths = index_files_in(self.root)
        for at, path in enumerate(paths):
            if path.stat().st_size >= self._layout.file_bytes:
                continue
            # Created but not sized: this file and later ones are newer than the last flush.
            for later in paths[at:]:
                self._check_is_young(later, physical_offset)
            for later in reversed(paths[at:]):
                self._handles.remove(str(later))
            paths = paths[:at]
            break
        self._set_files([IndexFile(path, self._layout, self._handles) for path in paths])
        for file in self._files:
            file.load()
        self.cut(physical_offset, rebuild_newest=True)

    def _check_is_young(self, path: Path, physical_offset: int) -> None:
        """Raises IndexFileError if the file had entries that were durable before the crash."""
        data = self._handles.read(str(path), HEADER_SIZE, 0)
        if len(data) < HEADER_SIZE:
            return
        header = HEADER.unpack(data)
        if header[5] > 1 and header[2] < physical_offset:
            size = path.stat().st_size
            reason = f"the file, or one before it, was cut short: it has {size} bytes"
            raise IndexFileError(path, size, reason)

    def _set_files(self, files: list[IndexFile]) -> None:
        with self._lock:
            self._files = files

    def _find_end(self) -> None:
        self._end_offset, self._end_keys = -1, 0
        for file in reversed(self._files):
            if file.empty:
                continue
            if self._end_offset not in (-1, file.end_offset):
                break
            self._end_offset = file.end_offset
            entries = file.entries_at(file.end_offset)
            self._end_keys += entries  # keys of one message may be in two files
            if entries < file.next_entry - 1:
                break

    # --- writing ---------------------------------------------------------------------------

    def insert(self, records: Iterable[tuple[int, int, str, Sequence[str]]]) -> None:
        """Index records, as (physical offset, store time in ms, topic, keys), in log order.

        Raises DiskFullError; the same call may be repeated.
        """
        keys: list[str] = []
        offsets: list[int] = []
        times: list[int] = []
        end, end_keys = self._end_offset, self._end_keys
        for offset, time_ms, topic, names in records:
            if offset < end:
                continue
            have = end_keys if offset == end else 0
            for name in names[have:]:
                keys.append(index_key(topic, name))
                offsets.append(offset)
                times.append(time_ms)
            if len(names) > have:
                end, end_keys = offset, len(names)
        if keys:
            self._insert(keys, offsets, times)
            self._end_offset, self._end_keys = end, end_keys

    def _insert(self, keys: list[str], offsets: list[int], times: list[int]) -> None:
        hashes = key_hashes(keys)
        offset_array = np.array(offsets, dtype=np.int64)
        time_array = np.array(times, dtype=np.int64)
        done = 0
        while done < len(keys):
            file = self._file_with_room()
            before, end = done, min(len(keys), done + file.free)
            file.insert(hashes[done:end], offset_array[done:end], time_array[done:end])
            done = end
            # If the next file fails, a repeated call continues from here.
            last = offsets[end - 1]
            same = bisect_left(offsets, last, 0, end)
            again = end - max(same, before)
            self._end_keys = again + (self._end_keys if last == self._end_offset else 0)
            self._end_offset = last

    def _file_with_room(self) -> IndexFile:
        newest = self._files[-1] if self._files else None
        if newest is not None and newest.free > 0:
            return newest
        if newest is None and not self.root.is_dir():
            self.root.mkdir(DIRECTORY_MODE)
            self._handles.mark_directory(str(self.root.parent))
        after = newest.path.name if newest is not None else None
        path = self.root / index_name(self._clock.now_ms(), after)
        while path.exists():  # an attempt in the same millisecond failed
            path = self.root / index_name(self._clock.now_ms(), path.name)
        file = IndexFile(path, self._layout, self._handles).create()
        if newest is not None:
            newest.write_back(seal=True)
        self._set_files([*self._files, file])
        return file

    def write_back(self) -> None:
        """Write slots and headers to the files; durable after the next sync of the handles."""
        for file in self._files:
            file.write_back()

    # --- reading ---------------------------------------------------------------------------

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[list[int]]:
        """Physical offsets, ascending, of records that may have the key in this time range
        (inclusive): a list for each file.

        A record may have another key with the same hash (H34).
        """
        key_hash = int(key_hashes([index_key(topic, key)])[0])
        with self._lock:
            files = list(self._files)
        found = []
        for file in files:
            if file.empty or file.begin_ms > end_ms or file.end_ms + 999 < begin_ms:
                continue
            try:
                hits = set(file.candidates(key_hash, begin_ms, end_ms))
            except FileNotFoundError:  # expired meanwhile
                continue
            if hits:
                found.append(sorted(hits))
        return found

    # --- cutting ---------------------------------------------------------------------------

    def cut(self, physical_offset: int, *, rebuild_newest: bool = False) -> None:
        """Remove entries of records at or above `physical_offset`.

        Durable after `write_back` and the next sync of the handles.
        """
        files = list(self._files)
        while files:
            newest = files[-1]
            if not (rebuild_newest or newest.empty or newest.end_offset >= physical_offset):
                break
            floor = next((file.end_offset for file in files[-2::-1] if not file.empty), 0)
            # Entries past the cut are zeroed before the header changes. After a crash in between,
            # offsets descend there, and the next recovery cuts there again.
            newest.cut(physical_offset, floor, self._store_time_ms)
            if not newest.empty:
                break
            self._handles.remove(str(files.pop().path))
        self._set_files(files)
        self._find_end()

    def expire(self, log_start: int) -> int:
        """Delete leading files whose entries are all below `log_start`; never the last. Returns how
        many."""
        files = list(self._files)
        dropped = 0
        while len(files) > 1 and files[0].end_offset < log_start:
            self._handles.remove(str(files.pop(0).path))
            dropped += 1
        self._set_files(files)
        return dropped

    def clear(self) -> None:
        """Delete all index files."""
        for file in reversed(self._files):
            self._handles.remove(str(file.path))
        self._set_files([])
        self._end_offset, self._end_keys = -1, 0
