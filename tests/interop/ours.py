"""Stores that our code writes, for RocketMQ to read."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from unittest.mock import patch

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.keys import UNITS, unit_key
from kvcq.tables.values import unpack_unit
from migration.files import FileQueueOptions, FileQueueStore
from migration.formats.index import IndexLayout
from migration.state.phase import Phase
from migration.state.state import FileLayout, MigrationState, write_state
from store.config import StoreConfig
from tests.golden.rocketmq_log import DecodedLog, decode_log
from tests.interop.judge import Shape
from tests.interop.workload import QUEUES, TOPICS, batches
from tests.support.migrating import live, open_store
from tests.support.rows import pack_unit

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = Shape(
    segment_bytes=128 * 1024,
    units_per_file=16,
    index_slots=101,
    index_entries=1000,
    crc_item=True,
)
COUNT = 1500
_WAIT_S = 120.0
# Topics of groups' own, too, as brokers write them: no caller of the store may.
_ANY_NAME = patch("store.puts.append_path.check_no_group_topics", lambda *_: None)


def config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=SHAPE.segment_bytes, crc_item=SHAPE.crc_item)


@_ANY_NAME
def write_store(root: Path, seed: int) -> None:
    """A store of ours, in two runs, closed."""
    for run in range(2):
        with open_store(config(root)) as store:
            store.create_topics([(topic, QUEUES) for topic in TOPICS])
            for messages in batches(seed + run, COUNT // 2):
                store.put(messages)


@_ANY_NAME
def write_double_store(root: Path, seed: int) -> None:
    """A store of ours that was moved from file queues to both sides while it ran, closed.

    Its first messages were written to files and filled into RocksDB, the others to both at once.
    """
    open_store(config(root)).close()
    (root / "consumequeue").mkdir()
    layout = FileLayout(SHAPE.units_per_file, SHAPE.index_slots, SHAPE.index_entries)
    write_state(root, MigrationState(Phase.FILES, layout=layout))
    with open_store(config(root)) as store:
        store.create_topics([(topic, QUEUES) for topic in TOPICS])
        for messages in batches(seed, COUNT // 3):
            store.put(messages)
        job = live(store).start()
        assert job.wait(_WAIT_S)
        assert job.error is None, job.error
        for messages in batches(seed + 1, COUNT // 3):
            store.put(messages)
    with open_store(config(root)) as store:
        for messages in batches(seed + 2, COUNT // 3):
            store.put(messages)


def expire_oldest(root: Path, segments: int) -> None:
    """The same store after its oldest segments were dropped, closed."""
    for path in sorted((root / "commitlog").iterdir())[:segments]:
        path.unlink()
    with open_store(config(root)):
        pass


def write_files(root: Path, log: DecodedLog) -> None:
    """Queue files and index files of the log in `root`, closed."""
    times = {record.physical_offset: record.store_time_ms for record in log.records}
    records = {request.physical_offset: request for request in log.requests}
    files = FileQueueStore(
        root,
        store_time_ms=times.get,
        record_at=records.get,
        options=FileQueueOptions(
            units_per_file=SHAPE.units_per_file,
            index=IndexLayout(slots=SHAPE.index_slots, entries=SHAPE.index_entries),
        ),
    )
    try:
        files.dispatch(log.requests, log.end)
        files.flush()
    finally:
        files.close()


def as_rocketmq_store(root: Path, target: Path, *, with_files: bool) -> DecodedLog:
    """A copy of our store in `root`, laid out as RocketMQ looks for it; returns its log.

    RocketMQ keeps its RocksDB where the queue files are, in `consumequeue/`; we keep ours apart. A
    store that has files already keeps them, one that has none gets those of its log.
    """
    shutil.copytree(root, target)
    log = decode_log(target)
    if with_files:
        shutil.rmtree(target / "kvcq")
        if not (target / "consumequeue").exists():
            write_files(target, log)
    else:
        shutil.rmtree(target / "consumequeue", ignore_errors=True)
        (target / "kvcq").rename(target / "consumequeue")
    return log


def falsify(copy: Path, name: tuple[str, int], queue_offset: int, tag_code: int) -> None:
    """Put another tag code into one unit of a copy, in RocksDB or in the queue files.

    RocketMQ builds its queues again from the log when it does not trust them. Only when it shows
    this tag code did it read what we wrote.
    """
    topic, queue_id = name
    database = copy / "consumequeue"
    if (database / "CURRENT").exists():
        engine = RocksEngine.open(database, DERIVED)
        key = unit_key(topic, queue_id, queue_offset)
        value = engine.get(UNITS, key)
        assert value is not None
        batch = KvBatch()
        batch.put(UNITS, key, pack_unit(unpack_unit(value)._replace(tag_code=tag_code)))
        engine.write(batch)
        engine.close()
        return
    start, index = divmod(queue_offset, SHAPE.units_per_file)
    file = database / topic / str(queue_id) / f"{start * SHAPE.units_per_file * 20:020d}"
    with file.open("r+b") as data:
        data.seek(index * 20 + 12)
        data.write(tag_code.to_bytes(8, "big", signed=True))
