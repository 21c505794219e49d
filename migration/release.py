"""Hands a stopped store back to RocketMQ: with queue files, or with RocksDB as a broker uses it.

Commit log, queue files, index files, and the units and bounds in RocksDB already have RocketMQ's
formats. So this writes topics and committed offsets where a broker reads them, and removes kvcq's
files. store.json and migration.json are removed last, in this order; until then the step can be
repeated.
"""

from __future__ import annotations

import enum
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.engine.rocks import hand_over
from kvcq.snapshots import DIRECTORY as SNAPSHOTS
from kvcq.tables import BOUNDS, UNITS
from migration.errors import IllegalStepError
from migration.files import CHECKPOINT_FILE
from migration.fill import LogFeed
from migration.formats import QUEUE_DIRECTORY
from migration.migrator import open_migrator
from migration.next_step import NextStep
from migration.plan import OWN_ROCKSDB, end_of_own_rocksdb, own_rocksdb
from migration.state import STATE_FILE, Phase, next_step, read_state, write_state
from migration.steps import give_back, waits_here
from store.base import SystemClock, fsync_directory, make_directory, no_progress
from store.errors import StoreFormatError
from store.state import STATE_TOPIC
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from migration.broker_config import WrittenBack
    from migration.state import MigrationState
    from store.base import Progress
    from store.message_store import MessageStore

#: Behind the name of the broker's own queues while they are being removed.
_REMOVED = ".removed"
_LOOK_AHEAD = 1024
_START_THE_BROKER = "start the RocketMQ broker on it"


class Home(enum.Enum):
    """Where the broker finds its queues."""

    FILES = "files"  # storeType=default
    ROCKSDB = "rocksdb"  # storeType=defaultRocksDB


def release(
    root: Path,
    progress: Progress = no_progress,
    home: Home | None = None,
) -> list[str]:
    """Prepare `root` for a broker. Returns lines for operators that say what was done. Repeatable
    after a crash.

    `home`: where the broker finds its queues. Without it they stay in files; that is rejected if
    the broker used RocksDB, because it would miss messages. With FILES the broker's own RocksDB of
    queues is removed. Raises IllegalStepError unless the state is FILES (for ROCKSDB: VERIFIED or
    ROCKSDB), StoreLockedError while a service has the store open, StoreFormatError,
    EngineFailedError.
    """
    state = read_state(root)
    kind, identity = inspect(root)
    if state is None and kind is DirKind.ROCKETMQ:
        raise IllegalStepError(
            "release",
            None,
            "the directory already belongs to RocketMQ",
            NextStep(hint=_START_THE_BROKER),
        )
    if state is None and kind is not DirKind.OURS:
        raise StoreFormatError(root, "is not a store")
    if state is not None and state.released:
        home = Home(state.released)
    elif home is Home.ROCKSDB:
        state = _check_rocksdb(state)
    else:
        state = _check_files(state)
    done: list[str] = []
    if kind is DirKind.OURS and identity is not None:
        done += _give_back(root, identity.segment_bytes, state, home, progress)
    else:
        (root / STATE_FILE).unlink()
        fsync_directory(root)
    files = f"{STATE_FILE} and {CHECKPOINT_FILE}"
    done.append(f"removed store.json, kvcq/, snapshots/, notes/, {files}")
    return done


def _check_files(state: MigrationState | None) -> MigrationState:
    if state is not None and state.phase is Phase.FILES and state.pending is None:
        return state
    phase = None if state is None else state.phase.value
    options = () if state is not None else ("--to-files",)
    following = NextStep("rollback", options, hint="roll back until the state is FILES")
    if state is not None and (state.phase is Phase.ADOPTING or state.pending is not None):
        following = next_step(state)
    raise IllegalStepError("release", phase, "the store does not use only files yet", following)


def _check_rocksdb(state: MigrationState | None) -> MigrationState:
    if state is None or state.phase is Phase.FINISHED:
        # The step rebuilds the file queues with their index.
        reason = "there are no index files, which a broker reads"
        following = NextStep("rollback", () if state is not None else ("--to-files",))
    elif state.phase not in (Phase.VERIFIED, Phase.ROCKSDB) or state.pending is not None:
        reason, following = "RocksDB was not verified", next_step(state)
    else:
        return state
    phase = None if state is None else state.phase.value
    raise IllegalStepError("release --rocksdb", phase, reason, following)


def _give_back(
    root: Path,
    segment_bytes: int,
    state: MigrationState,
    home: Home | None,
    progress: Progress,
) -> list[str]:
    clock = SystemClock()
    done: list[str] = []
    if state.released is None:
        # Opening makes log and queues consistent, and closing flushes everything.
        with open_migrator(root, progress) as migrator:
            live = migrator.live
            if live.on.waits_for:
                raise IllegalStepError(
                    "release",
                    state.phase.value,
                    "one side is behind the log; it has to catch up first",
                    NextStep("resume"),
                )
            store = live.on.store
            if home is None and _rocketmqs_rocksdb_is_behind(root, store):
                raise IllegalStepError(
                    "release",
                    state.phase.value,
                    "RocketMQ's own RocksDB does not have all messages. A broker with "
                    "storeType=defaultRocksDB reads the queues from it. For such a broker, move to "
                    "RocksDB and run `kvcq migrate release --rocksdb`. For a broker with "
                    "storeType=default, let --files remove that RocksDB",
                    NextStep("release", ("--files",), stopped_only=True),
                )
            if home is None and own_rocksdb(root) is None and _came_from_databases(state):
                raise IllegalStepError(
                    "release",
                    state.phase.value,
                    "the queues are in files, and the broker that this store came from keeps "
                    "topics and offsets in RocksDB, as one with storeType=defaultRocksDB does: it "
                    "would find no queues. For that broker move to RocksDB first (`kvcq migrate "
                    f"start {root}`, `verify`), and release with --rocksdb. For one with "
                    "storeType=default release with --files",
                    NextStep("release", ("--files",), stopped_only=True),
                )
            is_new = _made_config(root)
            # If this is interrupted and the store opened again, it takes over these messages again.
            live.on.keeper.move("giving back what waits", inherits=0)
            done += give_back(store, root, clock)
            done += _told(live.on.give_config_back(), is_new=is_new)
            done += _told_of_state(store)
    with closing(StoreDir.open(root, segment_bytes, clock)) as directory:
        if state.released is None:
            latest = read_state(root) or state
            released = "" if home is None else home.value
            event = "given back to RocketMQ"
            write_state(root, latest.moved(clock.now_ms(), event, released=released))
        if home is Home.ROCKSDB:
            target = _move_queues(root)
            done.append(
                f"queues are in RocksDB in {target}: the broker needs storeType=defaultRocksDB"
            )
        elif home is Home.FILES:
            _remove_rocketmqs_rocksdb(root)
        for path in (root / "kvcq", root / SNAPSHOTS, directory.notes.directory):
            shutil.rmtree(path, ignore_errors=True)
        for path in (root / CHECKPOINT_FILE, directory.previous_checkpoint):
            path.unlink(missing_ok=True)
        fsync_directory(root)
        (root / "store.json").unlink()
        fsync_directory(root)
        (root / STATE_FILE).unlink()
        fsync_directory(root)
    return done


def _came_from_databases(state: MigrationState) -> bool:
    """Whether topics and offsets were taken over from RocksDB of the broker."""
    return any(not path.endswith(".json") for path in state.config or ())


def _rocketmqs_rocksdb_is_behind(root: Path, store: MessageStore) -> bool:
    """Whether RocketMQ's own RocksDB of queues exists and lacks units of the log.

    Raises EngineFailedError if it cannot be read.
    """
    end = end_of_own_rocksdb(root)
    if end is None:
        return False
    if waits_here(store):  # they will be appended to the log
        return True
    feed = LogFeed(store)
    at, log_end = max(end, store.log.start_offset), store.log.appended_offset
    while at < log_end:
        requests, at = feed.read(at, log_end, _LOOK_AHEAD)
        if any(request.in_queue and request.topic != STATE_TOPIC for request in requests):
            return True
    return False


def _move_queues(root: Path) -> str:
    """Put the database in the place of RocketMQ's queues. Returns the name of its directory.
    Repeatable."""
    ours = root / "kvcq"
    target = own_rocksdb(root) or _cut_short_at(root) or root / QUEUE_DIRECTORY
    old = target.with_name(target.name + _REMOVED)
    if ours.exists():
        # RocketMQ finds messages by key in its index files.
        hand_over(ours, keep=(UNITS, BOUNDS))
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
        ours.rename(target)
        fsync_directory(root)
    shutil.rmtree(old, ignore_errors=True)
    return f"{target.name}/"


def _cut_short_at(root: Path) -> Path | None:
    """The place of RocketMQ's own RocksDB, if an earlier attempt ended between the two renames."""
    places = (root / name for name in OWN_ROCKSDB)
    return next(
        (
            each
            for each in places
            if each.with_name(each.name + _REMOVED).exists() and not each.exists()
        ),
        None,
    )


def _remove_rocketmqs_rocksdb(root: Path) -> None:
    """Remove it, CURRENT first, so that a remaining part is no database. Repeatable."""
    database = own_rocksdb(root)
    if database is None:
        return
    (database / "CURRENT").unlink()
    fsync_directory(database)
    for path in database.iterdir():
        if path.is_file():
            path.unlink()


def _made_config(root: Path) -> bool:
    """Create `config/` durably if it is missing. Returns whether it was created."""
    config = root / "config"
    is_new = not config.is_dir()
    make_directory(config)
    return is_new


def _told_of_state(store: MessageStore) -> list[str]:
    (bounds,) = store.bounds([(STATE_TOPIC, 0)])
    count = bounds.max_offset - bounds.min_offset
    if not count:
        return []
    return [
        f"the log has {count} records of topics, groups and offsets, as messages of {STATE_TOPIC}: "
        "the broker treats it as a topic without readers, and drops them with their segments"
    ]


def _told(written: WrittenBack | None, *, is_new: bool) -> list[str]:
    lines = written.lines() if written is not None else []
    if written is None or not written.offsets_paths:
        lines.append("no offsets were committed: none written")
    if is_new:
        lines.append(
            "config/ is new: a broker that keeps its own elsewhere needs these tables there, and "
            "one with configManagerVersion=v2 does not read them"
        )
    return lines
