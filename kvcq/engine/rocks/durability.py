"""Makes writes of a database durable, and tracks whether there is room for more."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from rocksdict import Checkpoint, WriteBatch

from kvcq.engine.rocks.compaction import compact_options
from kvcq.engine.rocks.failures import is_stall
from kvcq.engine.rocks.rows import write_options
from kvcq.errors import EngineFullError, EngineOutOfDescriptorsError
from store.base import DIRECTORY_MODE

if TYPE_CHECKING:
    from pathlib import Path

    from rocksdict import Rdict

    from kvcq.engine.rocks.opening import Opened

#: With less free space RocksDB is not asked whether it takes writes again.
_ROOM_BYTES = 4 << 20
_ROOM_DESCRIPTORS = 32
#: Space to reopen a database, besides its memory: that is flushed, and written twice more if it is
#: carried over and ingested.
_OPENING_BYTES = 4 << 20
_COPIES = 3


class Durability:
    """The durability of one database, across reopenings.

    Thread: any; the caller must keep the database open. Errors of RocksDB are raised unchanged.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        """`scratch`: a directory on the same file system."""
        # Constant after construction.
        self._path = path
        self._scratch = scratch
        self._numbers = count(1)  # names in the scratch directory
        self.write_options = write_options()
        #: About how many range deletions the memtables have: writers add to it without a lock, and
        #: RocksDB also flushes on its own.
        self.range_deletions = 0
        #: Set when RocksDB met a full disk or lacked a descriptor, until it accepts writes again.
        #: It is left alone meanwhile, because another flush or sync would keep it from resuming.
        self.lack: type[EngineFullError] | type[EngineOutOfDescriptorsError] | None = None

    def check_room(self) -> None:
        """Raises EngineFullError or EngineOutOfDescriptorsError while space or descriptors are
        lacking."""
        if self.lack is EngineFullError:
            free = self._free_bytes() >> 20
            raise EngineFullError(
                f"{self._path}: the disk is full ({free} MiB free). Free some space: writes resume "
                "within seconds once there is room for what RocksDB has in memory and "
                f"{_ROOM_BYTES >> 20} MiB more"
            )
        if self.lack is not None:
            raise self.lack(f"{self._path}: the process has no file descriptor left")

    def check_writable(self, db: Rdict) -> None:
        """Raise the error of an earlier failure: a failed database silently skips compactions, but
        not writes."""
        try:
            db.write(WriteBatch(raw_mode=True), self.write_options)
        except Exception as error:
            if not is_stall(error):
                raise

    def has_room(self) -> bool:
        """Whether there is room for some writes, and there are free descriptors."""
        with ExitStack() as stack:
            try:
                for _ in range(_ROOM_DESCRIPTORS):
                    stack.callback(os.close, os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return self._free_bytes() >= _ROOM_BYTES

    def has_room_to_open(self, in_memory_bytes: int) -> bool:
        """Whether there is room to reopen the database with its unflushed data."""
        return self._free_bytes() >= _OPENING_BYTES + _COPIES * in_memory_bytes

    def _free_bytes(self) -> int:
        """0 if unknown."""
        try:
            found = os.statvfs(self._path)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def flush(self, opened: Opened) -> None:
        """Make everything written durable."""
        self.check_room()
        self.flush_all(opened)

    def flush_all(self, opened: Opened) -> None:
        """Like `flush`, however little room there is."""
        shutil.rmtree(self.copy(opened), ignore_errors=True)

    def copy(self, opened: Opened) -> Path:
        """Copy all families at one point to the scratch directory, with hard links, which makes
        everything written durable. On an error no copy is left."""
        # Two steps: a checkpoint says whether it worked, but holds the GIL. It finds only what was
        # written in between.
        self.write_out(opened)
        self.check_writable(opened.db)  # a second try on a full disk would be one too many
        self._scratch.mkdir(DIRECTORY_MODE, exist_ok=True)
        target = self._scratch / f"copy-{next(self._numbers)}"
        try:
            Checkpoint(opened.db).create_checkpoint(str(target))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        return target

    def write_out(self, opened: Opened) -> None:
        """Write the memtables to files, all at one point.

        A compaction of an empty range does that first, without the GIL; it does not report success.
        """
        self.range_deletions = 0
        opened.db.compact_range(None, b"", compact_options())
