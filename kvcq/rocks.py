"""KvEngine on RocksDB. The only module that reads and writes through the binding.

What the binding does and the engine hides (each one has a test):

* The setter of an iterator's lower bound sets the upper one: a falling scan stops by itself.
* It reports write stalls and failures alike as a plain Exception: told apart by their text.
* An iterator that meets a damaged block ends as if there were no more rows: `scan` asks for the
  status whenever rows end before the limit.
* A manual compaction drops its status: the count of background errors tells.
* `flush` takes one family even with atomic flush on, which would part the families. A checkpoint
  flushes all of them at one point and says whether that worked.
* The directory stays locked while any handle, iterator or batch is alive, also one that hangs on
  the traceback of a caught exception: frames here let go of theirs before they end.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections import deque
from contextlib import contextmanager
from itertools import count, islice, starmap, takewhile
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from rocksdict import (
    AccessType,
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    ColumnFamily,
    CompactOptions,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from kvcq.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineDamagedError,
    EngineFailedError,
    EngineUnavailableError,
    KvcqError,
)
from kvcq.expiry_filter import build_filter_options
from kvcq.gate import Gate
from kvcq.options import build_database_options, build_family_options
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rocksdict import Options

    from kvcq.engine import KvBatch, Pair
    from kvcq.options import FamilyProfile, Profile

#: RocksDB's answer to a write that would have to wait (WriteOptions.no_slowdown).
_STALL = "Result incomplete: Write stall"

#: What keeps a sound database from being opened, in the words of the system, in which the binding's
#: errors end; and what RocksDB says of one that this process has open.
_NOT_DAMAGE = (
    *(
        os.strerror(number)
        for number in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOMEM,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.EAGAIN,
            errno.ENOLCK,
        )
    ),
    "lock hold by current process",
)

#: A compaction takes about this many bytes of the last level at a time.
_PIECE_BYTES = 64 << 20

#: Reads ahead of a scan that keeps its blocks out of the cache.
_BULK_READAHEAD_BYTES = 2 << 20

_SLOW = "slow calls may enter"  # what lies behind the gate that guards nothing but its passage

_BACKGROUND_ERRORS = "rocksdb.background-errors"
_FAMILY_PROPERTIES = {
    "estimated_keys": "rocksdb.estimate-num-keys",
    "sst_bytes": "rocksdb.live-sst-files-size",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "l0_files": "rocksdb.num-files-at-level0",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
    "immutable_memtables": "rocksdb.num-immutable-mem-table",
}
_DATABASE_PROPERTIES = {
    "running_flushes": "rocksdb.num-running-flushes",
    "running_compactions": "rocksdb.num-running-compactions",
    "write_stopped": "rocksdb.is-write-stopped",
    "delayed_write_bytes_per_s": "rocksdb.actual-delayed-write-rate",
    "background_errors": _BACKGROUND_ERRORS,
}


class _Open(NamedTuple):
    """An open database. Nothing of it may outlive a call of the engine."""

    db: Rdict
    tables: dict[str, Rdict]
    handles: dict[str, ColumnFamily]
    logs: str | None  # directory for the info log of a read-only database


class SstFile(NamedTuple):
    """A sorted file, ready for `ingest`."""

    path: Path
    rows: int
    first_key: bytes
    last_key: bytes


class RocksEngine:
    """One RocksDB database with a fixed set of families. Made by `open` or `open_read_only`.

    Thread: any, see KvEngine. `write`, `get` and `scan` hold the GIL, so they last microseconds;
    `multi_get`, `flush`, `compact`, `arm` and `close` release it while RocksDB works.
    Locks: two gates, always in this order. `_slow` lets flush, compaction, ingest and backup in;
    `_gate` lets every call in. `arm` and `close` take `_slow` first, so they wait for a running
    piece of compaction without holding up reads and writes meanwhile.
    Failure: after an error of RocksDB's background work, or of a sync, writes fail until the
    database is opened again; reads go on. If `arm` cannot open it again, later calls raise
    EngineFailedError.
    """

    def __init__(self, path: Path, profile: Profile, *, read_only: bool) -> None:
        """Use `open` or `open_read_only`."""
        # Constant after construction.
        self._path = path
        self._profile = profile
        self._read_only = read_only
        self._scratch = _scratch(path)
        self._numbers = count(1)  # names in the scratch directory
        # Kept when the database is reopened: cached blocks stay valid.
        self._cache = Cache(profile.cache_bytes)
        self._write_options = _write_options(profile)
        self._slow: Gate[str] = Gate()
        self._gate: Gate[_Open] = Gate()
        # Set once, by the call whose sync failed.
        self._unsynced: str | None = None
        # Owned by the caller who took `_slow`.
        self._ttl_s: int | None = None

    @classmethod
    def open(cls, path: Path, profile: Profile) -> RocksEngine:
        """Open the database for reading and writing, or create it if there is none.

        It is created aside and moved in place, so a crash leaves all of it or nothing: a
        directory without its families, CURRENT or manifest is damage and refused. What a crash
        left in the scratch directory beside it (`<name>.tmp`) is removed.
        Raises EngineFailedError; EngineUnavailableError when that says nothing of the files.
        """
        engine = cls(path, profile, read_only=False)
        try:
            if not path.exists() or not any(path.iterdir()):
                engine._create()
            engine._gate.put(engine._open_database(path))
            # Now that the database's own lock says that nobody else is using it.
            shutil.rmtree(engine._scratch, ignore_errors=True)
        except OSError as error:
            raise EngineUnavailableError(f"cannot open {path}: {error}") from error
        engine._slow.put(_SLOW)
        return engine

    @classmethod
    def open_read_only(cls, path: Path, profile: Profile) -> RocksEngine:
        """Open a backup or a closed database; nothing in its directory changes.

        Raises EngineFailedError, also for a call that writes.
        """
        if not (path / "CURRENT").is_file():
            # RocksDB would make the directory.
            raise EngineFailedError(f"cannot open {path}: no database there")
        engine = cls(path, profile, read_only=True)
        engine._gate.put(engine._open_database(path))
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
        with self._inside(f"multi_get in {family}") as opened:
            values: list[bytes | None] = opened.tables[family].get(list(keys)) or []
            return values

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
        """See KvEngine. With `fill_cache` off, blocks read do not push others out of the cache.

        Fewest costs when `limit` is the number of rows there are: rows that end before it are
        asked for again, to tell an end from damage.
        """
        opened = self._gate.enter()
        try:
            if start >= end or limit == 0:
                return []
            options = _read_options(end, fill_cache=fill_cache)
            return _scan(opened.tables[family], options, start, end, limit, reverse=reverse)
        except Exception as error:
            raise self._failure(f"scan of {family}", error) from error
        finally:
            self._gate.leave()

    # --- writes -------------------------------------------------------------------------------

    def write(self, batch: KvBatch) -> None:
        """See KvEngine. Durable on return with a log and `batch.sync`; else after a flush.

        Raises EngineBusyError on a stall: nothing was written, nothing waited.
        """
        opened = self._gate.enter()
        rows = None
        try:
            rows = _encode(batch, opened.handles)
            if self._unsynced is not None:
                raise EngineFailedError(f"{self._path}: {self._unsynced}")
            opened.db.write(rows, self._write_options)
            if self._profile.wal and batch.sync:
                self._sync(opened.db)
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
        with self._slowly("flush") as opened:
            self._flush(opened)

    def compact(
        self,
        family: str,
        start: bytes | None = None,
        end: bytes | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """See KvEngine. Done piece by piece, within the rate limit; `progress` gets 0.0 to 1.0.

        `progress` is called between pieces, on this thread; an error it raises ends the work.
        Raises EngineFailedError when a piece failed: the database then takes no more writes.
        """
        with self._slowly(f"compaction of {family}") as opened:
            pieces = _pieces(opened.tables[family], start, end)
        for done, piece in enumerate(pieces, 1):
            self._compact_piece(family, *piece)
            if progress is not None:
                progress(done / len(pieces))

    def backup(self, target: Path) -> None:
        """See KvEngine. Durable on return. Raises InvalidArgumentError if `target` exists."""
        if target.exists():
            raise InvalidArgumentError("target", f"{target} exists")
        with self._slowly(f"backup to {target}") as opened:
            self._flush(opened)  # releases the GIL, so that the checkpoint has little to do
            Checkpoint(opened.db).create_checkpoint(str(target))
            _sync_directory(target.parent)

    def set_options(self, family: str, options: Mapping[str, str]) -> None:
        """Change options of one family while it is open, until it is opened again.

        RocksDB's names and values, such as `periodic_compaction_seconds`. Raises EngineFailedError.
        """
        with self._slowly(f"options of {family}") as opened:
            opened.tables[family].set_options(dict(options))

    def statistics(self) -> dict[str, float]:
        """Numbers for operators. Per family `<family>.<name>`, the others of the database."""
        with self._inside("statistics") as opened:
            numbers = {
                f"{family}.{name}": float(table.property_int_value(key) or 0)
                for family, table in opened.tables.items()
                for name, key in _FAMILY_PROPERTIES.items()
            }
            for name, key in _DATABASE_PROPERTIES.items():
                numbers[name] = float(opened.db.property_int_value(key) or 0)
        numbers["block_cache_bytes"] = float(self._cache.get_usage())
        numbers["block_cache_pinned_bytes"] = float(self._cache.get_pinned_usage())
        numbers["filter_armed"] = float(self._ttl_s is not None)
        return numbers

    # --- opening, closing, exchanging -------------------------------------------------------

    def arm(self, ttl_s: int | None) -> None:
        """Compactions drop values stamped more than `ttl_s` seconds ago; None: they drop nothing.

        The database is closed and opened again; callers wait tens of milliseconds for it. When
        the filter cannot be made, or the memtables not be flushed, everything stays as it was and
        EngineFailedError is raised. Waits for a running piece of compaction.
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
                self._scratch.mkdir(exist_ok=True)
                for family in families:
                    scratch = self._scratch / f"filter-{next(self._numbers)}"
                    options[family.name] = build_filter_options(family, ttl_s, self._cache, scratch)
            # While others still write, so that little is left to do when they wait.
            with self._inside("flush") as opened:
                self._flush(opened)
            self._reopen(options)
            self._ttl_s = ttl_s
        except KvcqError:
            raise
        except Exception as error:
            raise _failure("expiry filter", error) from error
        finally:
            self._slow.put(_SLOW)

    def close(self) -> None:
        """See KvEngine. Waits for calls that run. Raises EngineFailedError when the flush failed:
        what was written since the last one is then not durable, but the directory is let go."""
        try:
            self._slow.take()
            opened = self._gate.take()
        except KvcqError:  # closed, or gone when `arm` failed
            self._slow.end(EngineClosedError, f"{self._path} is closed")
            return
        flushed = self._read_only
        try:
            if not self._read_only:
                self._flush(opened)
            flushed = True
        except Exception as error:
            error.__traceback__ = None  # its frames would keep the directory locked
            raise _failure("last flush", error) from error
        finally:
            _let_go(opened, flushed=flushed)
            del opened
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
            _let_go(opened, flushed=True)
            self._gate.put(self._open_database(self._path, options))
        except Exception as error:
            self._gate.end(EngineFailedError, f"{self._path} could not be reopened: {error}")
            raise
        finally:
            del opened

    def _create(self) -> None:
        new = self._scratch / "new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        _let_go(self._open_database(new, create=True), flushed=True)
        new.rename(self._path)  # an empty directory may be in the way
        _sync_directory(self._path.parent)

    def _open_database(
        self, path: Path, families: dict[str, Options] | None = None, *, create: bool = False
    ) -> _Open:
        options = build_database_options(self._profile, create=create)
        access = AccessType.read_write()
        logs = None
        if self._read_only:
            access = AccessType.read_only(error_if_log_file_exist=False)
            # RocksDB writes its info log beside the files, also when it only reads them.
            logs = tempfile.mkdtemp(prefix="kvcq-log-")
            options.set_db_log_dir(logs)
        try:
            db = Rdict(str(path), options, families or self._family_options(), access)
            return _Open(
                db,
                {name: db.get_column_family(name) for name in self._profile.names},
                {name: db.get_column_family_handle(name) for name in self._profile.names},
                logs,
            )
        except Exception as error:
            _remove(logs)
            is_damage = not any(text in str(error) for text in _NOT_DAMAGE)
            kind = EngineFailedError if is_damage else EngineUnavailableError
            raise kind(f"cannot open {path}: {error}") from error

    def _family_options(self) -> dict[str, Options]:
        return {
            family.name: build_family_options(family, self._cache)
            for family in self._profile.families
        }

    def _failure(self, doing: str, error: Exception) -> KvcqError:
        """What to raise; damage is noted beside the database, for whoever opens it next."""
        failure = _failure(doing, error)
        if isinstance(failure, EngineDamagedError) and not self._read_only:
            damage_mark(self._path).touch()
        return failure

    # --- inside a gate ------------------------------------------------------------------------

    @contextmanager
    def _inside(self, doing: str) -> Iterator[_Open]:
        """The database, for one call. `get`, `scan` and `write` do so in line: it is faster."""
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
    def _slowly(self, doing: str) -> Iterator[_Open]:
        """The database, for a call that may last: `arm` and `close` wait for it."""
        self._slow.enter()
        try:
            with self._inside(doing) as opened:
                yield opened
        finally:
            self._slow.leave()

    def _flush(self, opened: _Open) -> None:
        if self._read_only:
            return
        if self._profile.wal:
            self._sync(opened.db)
            return
        # Two steps. A compaction of no range flushes all families at one point without the GIL,
        # but does not say whether that worked. A checkpoint says so, holding the GIL: it finds
        # only what was written in between.
        opened.db.compact_range(None, b"", _compact_options())
        self._scratch.mkdir(exist_ok=True)
        target = self._scratch / f"flush-{next(self._numbers)}"
        try:
            Checkpoint(opened.db).create_checkpoint(str(target))
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _check_writable(self, db: Rdict) -> None:
        """A database that failed before skips compactions without a word, but not a write."""
        try:
            db.write(WriteBatch(raw_mode=True), self._write_options)
        except Exception as error:
            if not _is_stall(error):
                raise

    def _sync(self, db: Rdict) -> None:
        if self._unsynced is not None:
            raise EngineFailedError(f"{self._path}: {self._unsynced}")
        try:
            # Not WriteOptions.sync: that would hold the GIL for the whole fsync.
            db.flush_wal(sync=True)
        except Exception as error:
            # The kernel may have dropped the pages: a second sync could claim what is not so.
            self._unsynced = f"the write-ahead log could not be synced: {error}"
            raise

    def _compact_piece(self, family: str, start: bytes | None, end: bytes | None) -> None:
        with self._slowly(f"compaction of {family}") as opened:
            before = opened.db.property_int_value(_BACKGROUND_ERRORS)
            opened.tables[family].compact_range(start, end, _compact_options())
            if opened.db.property_int_value(_BACKGROUND_ERRORS) != before:
                raise EngineFailedError(f"compaction of {family} failed; {self._path}/LOG says why")
            self._check_writable(opened.db)


def write_sst(path: Path, rows: Iterable[Pair], family: FamilyProfile) -> SstFile | None:
    """Write rows, keys strictly rising, as a sorted file for `ingest`; no rows, no file.

    Durable on return, but for its directory entry. On an error no file is left.
    Raises InvalidArgumentError when keys do not rise, EngineFailedError.
    """
    rest = iter(rows)
    first = next(rest, None)
    if first is None:
        return None
    written = 1
    key, value = first
    try:
        writer = SstFileWriter(build_family_options(family, Cache(0)))
        writer.open(str(path))
        writer[key] = value
        for written, (key, value) in enumerate(rest, 2):  # noqa: B007
            writer[key] = value
        writer.finish()
    except BaseException as error:
        path.unlink(missing_ok=True)
        if "strict ascending order" in str(error):
            raise InvalidArgumentError("rows", f"key {key.hex()} does not rise") from error
        if type(error) is Exception:
            raise _failure(f"file {path}", error) from error
        raise
    return SstFile(path, written, first[0], key)


def _encode(batch: KvBatch, handles: Mapping[str, ColumnFamily]) -> WriteBatch:
    rows = WriteBatch(raw_mode=True)
    try:
        for family, start, end in batch.delete_ranges:
            if start < end:  # RocksDB refuses the whole batch for a range turned round
                rows.delete_range(start, end, handles[family])
        for family, key in batch.deletes:
            rows.delete(key, handles[family])
        for family, pairs in batch.puts.items():
            rows.set_default_column_family(handles[family])
            # The loop runs in C: half again as fast as one in Python.
            deque(starmap(rows.put, pairs), maxlen=0)
        return rows
    finally:
        del rows, handles


def _read_options(end: bytes, *, fill_cache: bool) -> ReadOptions:
    options = ReadOptions()
    # Only this bound: the binding's setter of the lower one sets the upper one (0.3.29).
    options.set_iterate_upper_bound(end)
    if not fill_cache:
        # The binding's stub leaves the argument out.
        cast("Callable[[bool], None]", options.fill_cache)(fill_cache)
        options.set_readahead_size(_BULK_READAHEAD_BYTES)
    return options


def _scan(
    table: Rdict,
    options: ReadOptions,
    start: bytes,
    end: bytes,
    limit: int | None,
    *,
    reverse: bool,
) -> list[Pair]:
    items = inside = walk = None
    try:
        # In raw mode the binding gives bytes, whatever its stub says.
        items = cast(
            "Iterator[Pair]",
            table.items(backwards=reverse, from_key=end if reverse else start, read_opt=options),
        )
        inside = takewhile(lambda row: row[0] >= start, items) if reverse else items
        rows = list(islice(inside, limit))
        if len(rows) == limit or (rows and reverse and rows[-1][0] == start):
            return rows
        # At the end, or at a damaged block: this iterator can tell. It goes on from the last row,
        # so rows written since are taken along.
        walk = table.iter(options)
        seek, step = (walk.seek_for_prev, walk.prev) if reverse else (walk.seek, walk.next)
        seek(rows[-1][0] if rows else end if reverse else start)
        if rows and walk.valid() and walk.key() == rows[-1][0]:
            step()
        while walk.valid() and len(rows) != limit and walk.key() >= start:
            rows.append((walk.key(), walk.value()))
            step()
        walk.status()
        return rows
    finally:
        del items, walk, inside


def _pieces(
    table: Rdict, start: bytes | None, end: bytes | None
) -> list[tuple[bytes | None, bytes | None]]:
    """Cut a range where files of the last level begin, about one piece for `_PIECE_BYTES`."""
    # `live_files` names the files of all families; this property lists one family's, by number.
    own = set(re.findall(r"^ (\d+):", table.property_value("rocksdb.sstables") or "", re.MULTILINE))
    files = [file for file in table.live_files() if Path(file["name"]).stem.lstrip("0") in own]
    last = max((file["level"] for file in files), default=0)
    cuts: list[bytes] = []
    piece = 0
    for file in sorted(files, key=itemgetter("start_key")):
        key = file["start_key"]
        if file["level"] != last or (start is not None and key <= start):
            continue
        if end is not None and key >= end:
            break
        if piece >= _PIECE_BYTES:
            cuts.append(key)
            piece = 0
        piece += file["size"]
    return list(zip([start, *cuts], [*cuts, end], strict=True))


def _compact_options() -> CompactOptions:
    options = CompactOptions()
    # Automatic compactions go on beside it; waiting for them would stretch a piece.
    options.set_exclusive_manual_compaction(False)
    # The last level too, where most expired and deleted rows are; each file once.
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options


def _write_options(profile: Profile) -> WriteOptions:
    options = WriteOptions()
    # Waiting inside RocksDB would hold the GIL: a stall would freeze the process.
    options.no_slowdown = True
    if not profile.wal:
        # A property; the binding's stub says method.
        setattr(options, "disable_wal", True)  # noqa: B010
    return options


def _let_go(opened: _Open, *, flushed: bool) -> None:
    """Close the database. Unless it was flushed, closing must not flush single families."""
    tables = list(opened.tables.values())
    opened.tables.clear()
    opened.handles.clear()
    if flushed:
        # By name, so that a caught exception with a frame of ours does not keep it open.
        for table in tables:
            table.close()
        opened.db.close()
    _remove(opened.logs)


def _remove(directory: str | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _is_stall(error: Exception) -> bool:
    return str(error).startswith(_STALL)


def _failure(doing: str, error: Exception) -> KvcqError:
    if _is_stall(error):
        return EngineBusyError(f"{doing}: RocksDB stalls writes")
    if "Corruption" in str(error):
        return EngineDamagedError(f"{doing}: {error!r}")
    return EngineFailedError(f"{doing}: {error!r}")


def damage_mark(path: Path) -> Path:
    """The file that says: damage was met in the database at `path`."""
    return path.with_name(f"{path.name}.damaged")


def _scratch(path: Path) -> Path:
    """Beside the database, since RocksDB links files into it: the same file system."""
    return path.with_name(f"{path.name}.tmp")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
