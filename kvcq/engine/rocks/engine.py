"""The engine: one RocksDB database, its calls, and how its expiry filter is replaced."""

from __future__ import annotations

import gc
import logging
import shutil
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from rocksdict import Cache, IngestExternalFileOptions

from kvcq.engine.rocks.carry_over import CarryOver, carry_over
from kvcq.engine.rocks.compaction import compact_options, pieces
from kvcq.engine.rocks.durability import Durability
from kvcq.engine.rocks.expiry_filter import build_filter_options
from kvcq.engine.rocks.failures import damage_mark, failure, shortage
from kvcq.engine.rocks.gate import Gate
from kvcq.engine.rocks.opening import (
    Opened,
    close_database,
    family_options,
    open_through_links,
    open_writable,
    scratch_of,
)
from kvcq.engine.rocks.rows import encode, read_options, scan_rows
from kvcq.engine.rocks.statistics import BACKGROUND_ERRORS, memtable_bytes, read_statistics
from kvcq.errors import (
    EngineClosedError,
    EngineDamagedError,
    EngineFailedError,
    EngineFullError,
    EngineOutOfDescriptorsError,
    EngineUnavailableError,
    KvcqError,
)
from store.base import DIRECTORY_MODE, fsync_directory
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rocksdict import Options

    from kvcq.engine.protocol import KvBatch, Pair
    from kvcq.engine.rocks.options import Profile

logger = logging.getLogger(__name__)

#: This many range deletions in memory make the first read after a write about half as slow again.
_MANY_RANGE_DELETIONS = 64

#: RocksDB checks for free space every five seconds. After this many calls of `settle`, one a
#: second, the engine stops waiting for it and reopens the database.
_RESUME_ROUNDS = 15

_SLOW = "slow calls may enter"  # slow calls share this gate; arm and close take it exclusively


class RocksEngine:
    """One RocksDB database with a fixed set of families. Made by `open` or `open_read_only`.

    Thread: any, see KvEngine. `write`, `get`, `scan` and `multi_get` of one key hold the GIL; they
    take microseconds. `multi_get` of several keys, `flush`, `compact`, `arm` and `close` release
    the GIL while RocksDB works.
    Locks: two gates, always in this order. Flush, compaction and ingest enter `_slow`, every call
    enters `_gate`. `arm` and `close` take `_slow` first, so they wait for a running piece of
    compaction without holding up reads and writes meanwhile.
    Failure: after an error in RocksDB's background work, writes fail until the database is
    reopened; reads continue. If `arm` cannot reopen it, later calls raise EngineFailedError.
    Lack of disk space or descriptors is temporary: writes raise EngineFullError or
    EngineOutOfDescriptorsError until it ends. After a full disk RocksDB resumes within seconds, and
    `settle` notices that. If RocksDB does not resume, as it never does for lack of descriptors,
    `settle` reopens the database and carries over what was in memory: see carry_over.py.
    """

    def __init__(self, path: Path, profile: Profile, *, read_only: bool) -> None:
        """Use `open` or `open_read_only`."""
        # Constant after construction.
        self._path = path
        self._profile = profile
        self._read_only = read_only
        self._scratch = scratch_of(path)
        self._numbers = count(1)  # names in the scratch directory
        # Kept when the database is reopened: cached blocks stay valid.
        self._cache = Cache(profile.cache_bytes)
        self._durability = Durability(path, self._scratch)
        self._slow: Gate[str] = Gate()
        self._gate: Gate[Opened] = Gate()
        self._waited = 0  # calls of `settle` since the lack ended
        self._is_away = False  # closed, and not reopened yet
        self._carried: CarryOver | None = None  # to be written before it counts as open
        # Owned by the caller that holds `_slow`.
        self._ttl_s: int | None = None

    @classmethod
    def open(cls, path: Path, profile: Profile, *, in_place: bool = False) -> RocksEngine:
        """Open the database for reading and writing, or create it, or families that it lacks.

        A new database is created in a scratch directory (`<name>.tmp`) and renamed, so a crash
        leaves all of it or nothing. With `in_place` it is created under its own name, for a caller
        that discards it after a crash.
        So a directory without its families, CURRENT or manifest is damaged and rejected.
        Raises EngineFailedError; EngineUnavailableError if the cause does not lie in the files;
        EngineNewerError if the database has families of a newer program.
        """
        engine = cls(path, profile, read_only=False)
        try:
            if not in_place and (not path.exists() or not any(path.iterdir())):
                engine._create()
            families = engine._family_options()
            engine._gate.put(open_writable(path, profile, families, create=in_place))
            # Only now, because the database's own lock shows that no other process uses it.
            shutil.rmtree(engine._scratch, ignore_errors=True)
        except OSError as error:
            raise EngineUnavailableError(f"cannot open {path}: {error}") from error
        engine._slow.put(_SLOW)
        return engine

    @classmethod
    def open_read_only(cls, path: Path, profile: Profile) -> RocksEngine:
        """Open a closed database, or a copy, without changing anything in its directory.

        The directory may belong to another program, and may be read-only for this process.

        Raises EngineFailedError, also for a call that writes.
        """
        if not (path / "CURRENT").is_file():
            # RocksDB would make the directory.
            raise EngineFailedError(f"cannot open {path}: no database there")
        engine = cls(path, profile, read_only=True)
        engine._gate.put(open_through_links(path, profile, engine._family_options()))
        engine._slow.put(_SLOW)
        return engine

    # --- reads --------------------------------------------------------------------------------

    def get(self, family: str, key: bytes) -> bytes | None:
        opened = self._gate.enter()
        try:
            value: bytes | None = opened.tables[family].get(key)
            return value
        except Exception as error:
            raise self._failure(f"get in {family}", error) from error
        finally:
            self._gate.leave()

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) == 1:  # the common case; `get` takes half the time
            return [self.get(family, keys[0])]
        # In key order, neighbours are in the same blocks of filter, index and rows.
        rising = sorted(keys)
        with self._inside(f"multi_get in {family}") as opened:
            values: list[bytes | None] = opened.tables[family].get(list(rising)) or []
        if rising == keys:
            return values
        found = dict(zip(rising, values, strict=True))
        return [found[key] for key in keys]

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
        """See KvEngine. With `fill_cache` off, the blocks it reads do not evict others.

        Cheapest if `limit` is exactly the number of rows: when fewer are found, a second read tells
        the end of the range from damage.
        """
        opened = self._gate.enter()
        try:
            if start >= end or limit == 0:
                return []
            options = read_options(end, fill_cache=fill_cache)
            return scan_rows(opened.tables[family], options, start, end, limit, reverse=reverse)
        except Exception as error:
            raise self._failure(f"scan of {family}", error) from error
        finally:
            self._gate.leave()

    # --- writes -------------------------------------------------------------------------------

    def write(self, batch: KvBatch) -> None:
        """See KvEngine. Durable after a flush.

        Raises EngineBusyError at once, and writes nothing, while RocksDB stalls writes.
        """
        opened = self._gate.enter()
        rows = None
        try:
            rows = encode(batch, opened.handles)
            self._durability.check_room()
            opened.db.write(rows, self._durability.write_options)
            if batch.delete_ranges:
                self._durability.range_deletions += len(batch.delete_ranges)
        except KvcqError:
            raise
        except Exception as error:
            raise self._failure("write", error) from error
        finally:
            del rows  # it holds a handle
            self._gate.leave()

    def ingest(self, family: str, paths: Sequence[Path], *, move: bool) -> None:
        """See KvEngine. Durable on return. The files' rows win over rows written before.

        `move` links the files in and removes their names: they must be on the same file system.
        """
        if not paths:
            return
        options = IngestExternalFileOptions()
        options.set_move_files(move)
        with self._slowly(f"ingest into {family}") as opened:
            opened.tables[family].ingest_external_file([str(path) for path in paths], options)

    # --- durability and space -----------------------------------------------------------------

    def flush(self) -> None:
        """See KvEngine. Other threads read and write meanwhile."""
        if self._is_away and self._carried is None:
            return  # everything was durable when it was closed
        with self._slowly("flush") as opened:
            self._flush(opened)

    def back_up(self) -> Path:
        """See KvEngine. Other threads read and write meanwhile.

        The copy is in the scratch directory. Its table files are hard links, so it is fast, and
        takes hardly any space until compaction removes the originals. The next opening removes what
        a crash leaves.
        Raises EngineFullError, EngineFailedError; no copy is left then.
        """
        with self._slowly("kv backup") as opened:
            self._durability.check_room()
            return self._durability.copy(opened)

    def settle(self) -> None:
        """See KvEngine. Other threads read and write meanwhile, except during a reopening.

        Raises EngineFailedError if the database cannot be reopened.
        """
        durability = self._durability
        if durability.lack is not None and durability.has_room():
            self._resume_writes()
        if durability.range_deletions >= _MANY_RANGE_DELETIONS and durability.lack is None:
            with self._slowly("flush") as opened:
                durability.write_out(opened)

    def compact(
        self,
        family: str,
        start: bytes | None = None,
        end: bytes | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """See KvEngine. Done piece by piece, within the rate limit; `progress` gets 0.0 to 1.0.

        `progress` is called between pieces, on this thread; an error it raises ends the work.
        Raises EngineFailedError if a piece fails; the database then rejects writes.
        """
        with self._slowly(f"compaction of {family}") as opened:
            parts = pieces(opened.tables[family], start, end)
        for done, part in enumerate(parts, 1):
            self._compact_piece(family, *part)
            if progress is not None:
                progress(done / len(parts))

    def statistics(self) -> dict[str, float]:
        """Metrics for operators: `<family>.<name>` per family, plain names for the database."""
        with self._inside("statistics") as opened:
            numbers = read_statistics(opened)
        numbers["block_cache_bytes"] = float(self._cache.get_usage())
        numbers["block_cache_pinned_bytes"] = float(self._cache.get_pinned_usage())
        numbers["range_deletions_in_memory"] = float(self._durability.range_deletions)
        numbers["filter_armed"] = float(self._ttl_s is not None)
        return numbers

    # --- opening, closing, exchanging -------------------------------------------------------

    def arm(self, ttl_s: int | None) -> None:
        """Let compactions drop values stamped more than `ttl_s` seconds ago; None: drop nothing.

        Closes and reopens the database; callers wait for tens of milliseconds. Blocks until a
        running piece of compaction ends. Raises EngineFailedError; if the filter cannot be made or
        the memtables cannot be flushed, nothing has changed then.
        """
        families = [f for f in self._profile.families if f.name in self._profile.filtered]
        if not families:
            raise InvalidArgumentError("ttl_s", "no family of this database takes a filter")
        if self._read_only:
            raise EngineFailedError(f"{self._path} is open for reading only")
        self._slow.take()
        try:
            if ttl_s is None and self._ttl_s is None:
                return
            options = self._family_options()
            if ttl_s is not None:
                self._scratch.mkdir(DIRECTORY_MODE, exist_ok=True)
                for family in families:
                    scratch = self._scratch / f"filter-{next(self._numbers)}"
                    options[family.name] = build_filter_options(family, ttl_s, self._cache, scratch)
            # Flush while others still write, so that little is left to do while they wait.
            with self._inside("flush") as opened:
                self._flush(opened)
            self._reopen(options)
            self._ttl_s = ttl_s
        except KvcqError:
            raise
        except Exception as error:
            raise self._failure("expiry filter", error) from error
        finally:
            self._slow.put(_SLOW)

    def close(self) -> None:
        """See KvEngine. Blocks until running calls end. Raises EngineFailedError if the last flush
        fails: writes since the one before are then not durable, but the directory is released."""
        try:
            self._slow.take()
            opened = self._gate.take()
        except KvcqError:  # closed, or away
            self._slow.end(EngineClosedError, f"{self._path} is closed")
            if self._carried is not None:
                self._carried = None
                raise
            return
        flushed = self._read_only
        try:
            if not self._read_only:
                self._flush(opened)
            flushed = True
        except KvcqError as error:
            error.__traceback__ = None  # its frames would keep the directory locked
            raise
        except Exception as error:
            error.__traceback__ = None
            raise failure("last flush", error) from error
        finally:
            try:
                close_database(opened, flushed=flushed and self._durability.lack is None)
            except Exception as error:
                error.__traceback__ = None
                raise failure("closing", error) from error
            finally:
                del opened
                if not flushed:
                    # The database was not closed explicitly. Frames of an earlier failure may form
                    # a reference cycle that keeps the directory locked until it is collected.
                    gc.collect()
                self._gate.end(EngineClosedError, f"{self._path} is closed")
                self._slow.end(EngineClosedError, f"{self._path} is closed")
                if not self._read_only:
                    shutil.rmtree(self._scratch, ignore_errors=True)

    def _reopen(self, options: dict[str, Options]) -> None:
        opened = self._gate.take()
        try:
            self._flush(opened)
        except Exception:
            self._gate.put(opened)
            raise
        try:
            close_database(opened, flushed=True)
        except Exception as error:
            if shortage(error) is None:
                self._gate.end(EngineFailedError, f"{self._path} could not be reopened: {error}")
                raise
            # It is closed, and was flushed before, so nothing is lost.
        finally:
            del opened
        self._open_behind_gate(options)

    def _open_behind_gate(self, options: dict[str, Options]) -> None:
        """Open the database, write what was carried over into it, and open the gate for callers.

        Raises EngineFailedError. After a lack of space or descriptors, `settle` tries again, and
        callers get the error for that lack until it succeeds.
        """
        try:
            opened = open_writable(self._path, self._profile, options)
            if self._carried is not None:
                self._take_in(self._carried, opened)
        except EngineUnavailableError as error:
            self._is_away = True
            self._durability.lack = shortage(error) or self._durability.lack or EngineFullError
            self._gate.end(self._durability.lack, f"not opened again yet: {error}")
            raise
        except EngineFailedError as error:
            self._gate.end(EngineFailedError, f"{self._path} could not be reopened: {error}")
            raise
        self._is_away = False
        self._carried = None
        self._gate.put(opened)

    def _take_in(self, carried: CarryOver, opened: Opened) -> None:
        """Write what was in memory before into the database, durably.

        Raises EngineFailedError, EngineUnavailableError, after closing the database.
        """
        try:
            if carried.removed.deletes or carried.removed.delete_ranges:
                rows = encode(carried.removed, opened.handles)
                opened.db.write(rows, self._durability.write_options)
                del rows
                self._durability.flush_all(opened)
            carried.apply(opened)
        except Exception as error:
            with suppress(Exception):
                close_database(opened, flushed=True)
            kind = EngineFailedError if shortage(error) is None else EngineUnavailableError
            raise kind(f"{self._path}: restoring unflushed writes failed: {error}") from error

    def _resume_writes(self) -> None:
        """Accept writes again once RocksDB does, or reopen the database."""
        self._waited += 1
        error = None if self._is_away else self._refusal()
        if self._is_away or (error is not None and shortage(error)):
            # RocksDB resumes on its own after a full disk, and only then.
            waits = self._durability.lack is EngineFullError and not self._is_away
            if waits and self._waited < _RESUME_ROUNDS:
                return
            # Without the room to reopen it, callers could not even read after it was closed.
            if not self._durability.has_room_to_open(self._in_memory_bytes()):
                return
            self._open_again()
            error = None
        self._durability.lack = None
        self._waited = 0
        if error is None:
            logger.info("%s: writes are accepted again", self._path)
        # Otherwise it has failed permanently for another reason, which writes now raise.

    def _in_memory_bytes(self) -> int:
        """Size of the memtables, or, while the database is away, of what was carried over."""
        if self._is_away:
            files = {} if self._carried is None else self._carried.files
            return sum(file.path.stat().st_size for file in files.values())
        with self._inside("statistics") as opened:
            return memtable_bytes(opened)

    def _refusal(self) -> Exception | None:
        """Returns the error with which RocksDB rejects an empty write, or None."""
        opened = self._gate.enter()
        try:
            self._durability.check_writable(opened.db)
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            error.__traceback__ = None  # its frames would keep the directory locked
            return error
        finally:
            self._gate.leave()
        return None

    def _open_again(self) -> None:
        """Close and reopen the database. No write that returned is lost: it was flushed, or is
        carried over.

        Callers wait while it is reopened, but can read while unflushed writes are collected.
        """
        self._slow.take()
        try:
            if not self._is_away:
                self._carry_over()
                # Close explicitly, because frames of a failed call may still refer to it. Closing
                # tries to flush one family; carrying over does not depend on that.
                with suppress(Exception):
                    close_database(self._gate.take(), flushed=True)
            self._ttl_s = None
            self._open_behind_gate(self._family_options())
        except OSError as error:
            raise failure(f"reopening {self._path}", error) from error
        finally:
            self._slow.put(_SLOW)

    def _carry_over(self) -> None:
        target = self._scratch / "memory"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(DIRECTORY_MODE, parents=True)
        with self._inside("carrying over") as opened:
            self._carried = carry_over(self._path, self._profile, opened, target)

    def _create(self) -> None:
        new = self._scratch / "new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(DIRECTORY_MODE, parents=True)
        opened = open_writable(new, self._profile, self._family_options(), create=True)
        close_database(opened, flushed=True)
        del opened
        new.rename(self._path)  # an empty directory may be in the way
        fsync_directory(self._path.parent)

    def _family_options(self) -> dict[str, Options]:
        return family_options(self._profile, self._cache)

    def _failure(self, doing: str, error: Exception) -> KvcqError:
        """Returns the error to raise. Notes damage beside the database, for the next opening."""
        found = failure(doing, error)
        if isinstance(found, EngineDamagedError) and not self._read_only:
            mark = damage_mark(self._path)
            if not mark.exists():
                logger.error("%s is damaged, a restart rebuilds it: %s", self._path, str(found))
            mark.touch()
        if (
            isinstance(found, EngineFullError | EngineOutOfDescriptorsError)
            and not self._durability.lack
        ):
            self._durability.lack = type(found)
            # As text: a handler that keeps the error would keep its frames, and the directory lock.
            logger.warning("%s: writes are rejected: %s", self._path, str(found))
        return found

    # --- inside a gate ------------------------------------------------------------------------

    @contextmanager
    def _inside(self, doing: str) -> Iterator[Opened]:
        """Holds the database for one call. `get`, `scan` and `write` inline this to be faster."""
        opened = self._gate.enter()
        try:
            yield opened
        except KvcqError:
            raise
        except Exception as error:
            raise self._failure(doing, error) from error
        finally:
            self._gate.leave()

    @contextmanager
    def _slowly(self, doing: str) -> Iterator[Opened]:
        """Holds the database for a call that may take long; `arm` and `close` wait for it."""
        self._slow.enter()
        try:
            with self._inside(doing) as opened:
                yield opened
        finally:
            self._slow.leave()

    def _flush(self, opened: Opened) -> None:
        if not self._read_only:
            self._durability.flush(opened)

    def _compact_piece(self, family: str, start: bytes | None, end: bytes | None) -> None:
        with self._slowly(f"compaction of {family}") as opened:
            self._durability.check_room()
            before = opened.db.property_int_value(BACKGROUND_ERRORS)
            opened.tables[family].compact_range(start, end, compact_options())
            self._durability.check_writable(opened.db)
            if opened.db.property_int_value(BACKGROUND_ERRORS) != before:
                raise EngineFailedError(f"compaction of {family} failed; {self._path}/LOG says why")
