"""The main invariant: everything derived can be made from the log again, byte for byte.

`differences` feeds a fresh database from the records of an open store, one by one and without the
quick ways of dispatch: once for each state that it can begin with, which are the empty one of a log
that is there from its first byte, and each sealed snapshot. It compares their rows with the live
ones. Then it looks at what any single database must hold: dense queues, rising offsets, one
dispatch point.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.snapshots import DIRECTORY, Snapshot, place_sealed, snapshots_in
from kvcq.state_store import KvStateStore
from kvcq.tables.keys import (
    BOUNDS,
    DELETIONS_KEY,
    DISPATCHED_KEY,
    FAMILIES,
    INDEX,
    STATE,
    UNITS,
    time_and_offset_of,
    unpack_bounds_key,
    unpack_unit_key,
)
from kvcq.tables.values import unpack_i64, unpack_max, unpack_unit
from store.format.record import Found, check_record, dispatch_request, unpack_record
from store.state import STATE_TOPIC, Tables, TopicEnded, changes_of, unpack_entries
from store.topics import Admission
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine.protocol import KvEngine, Pair
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

_END = b"\xff" * 8
#: Of these rows of state no record tells: the point, and what can be counted again.
_NOT_SAID = (b"p", b"k")


def records(store: MessageStore, end: int) -> Iterator[DispatchRequest]:
    """What is derived from each record up to `end`, in log order."""
    log = store.log
    at = log.start_offset
    while at < end:
        with log.view(at, end) as view:
            checked = check_record(view, 0, len(view), at)
            assert checked.found is not Found.NOTHING, (at, checked)
            if checked.found is Found.RECORD:
                yield dispatch_request(view, 0)
        at = log.segment_end(at) if checked.found is Found.BLANK else at + checked.size


class _Starts:
    """From where on topics live, as rows say that change meanwhile."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, name: str, /) -> int | None:
        if name == STATE_TOPIC:
            return 0
        found = self._tables.topic(name)
        return None if found is None else found.created_offset


class _Dead:
    """Below where light queues are dead, though no record tells."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, name: str, default: int, /) -> int:
        return self._tables.dead_offset(name) or default


def rebuilt(store: MessageStore, snapshot: Snapshot | None = None) -> MemoryEngine:
    """A database made of a snapshot, or of nothing, and of the log, up to the dispatch point of
    the live one."""
    engine = MemoryEngine((*FAMILIES, STATE))
    if snapshot is not None:
        state_rows, ends = _sealed_rows(snapshot.path, (snapshot.path / "sealed").read_bytes())
        engine.write(KvBatch(puts={STATE: state_rows, BOUNDS: ends}))
    queues, state = KvConsumeQueueStore(engine), KvStateStore(engine)
    if snapshot is not None:
        state.advance(snapshot.point)
    tables = Tables(state)
    admission = Admission(_Starts(tables), _Dead(tables))
    end = store.queues.dispatched_offset
    for request in records(store, end):
        at, size = request.physical_offset, request.record_size
        if request.topic == STATE_TOPIC:
            entries = unpack_entries(unpack_record(store.log.read(at, size)).body)
            if at >= state.point:
                state.apply(changes_of(entries, at, state), at + size)
            for entry in entries:
                if isinstance(entry, TopicEnded):
                    queues.delete_topic(entry.topic, at)
        admitted = admission.admit(request)
        if admitted is not None:
            queues.dispatch([admitted], at + size)
    queues.dispatch([], end)
    return engine


@lru_cache(maxsize=64)
def _sealed_rows(path: Path, seal: bytes) -> tuple[list[Pair], list[Pair]]:
    """Rows of state and ends of queues in the sealed files of the snapshot there, which has that
    seal."""
    del seal
    scratch = Path(tempfile.mkdtemp(prefix="kvcq-sealed-"))
    try:
        place_sealed(Snapshot.read(path), scratch / "kvcq", "unused")
        with closing(RocksEngine.open_read_only(scratch / "kvcq", DERIVED)) as engine:
            state = [row for row in engine.scan(STATE, b"", _END) if row[0][:1] not in _NOT_SAID]
            return state, list(engine.scan(BOUNDS, b"", _END))
    finally:
        shutil.rmtree(scratch)


def live_engine(store: MessageStore) -> KvEngine:
    queues = store.queues
    assert isinstance(queues, KvConsumeQueueStore)
    return queues._engine


def rows(engine: KvEngine, log_start: int) -> dict[tuple[str, bytes], bytes]:
    """Family and key to value, without what is expired and what format 1 counted deletions by."""
    found = {}
    for family in FAMILIES:
        for key, value in engine.scan(family, b"", _END):
            if key == DELETIONS_KEY:
                continue
            if family == UNITS:
                physical_offset = unpack_unit(value).physical_offset
            elif family == INDEX:
                physical_offset = time_and_offset_of(key)[1]
            elif key == DISPATCHED_KEY:
                physical_offset = log_start
            else:
                physical_offset = unpack_max(value)[0]
            if physical_offset >= log_start:
                found[family, key] = value
    return found


def state_rows(engine: KvEngine) -> dict[tuple[str, bytes], bytes]:
    """The same of the state, without what no record tells of."""
    return {
        (STATE, key): value
        for key, value in engine.scan(STATE, b"", _END)
        if key[:1] not in _NOT_SAID
    }


def differences(store: MessageStore) -> list[str]:
    """What is wrong with the live database, [] when nothing is."""
    log_start = store.log.start_offset
    live = rows(live_engine(store), log_start)
    snapshots = snapshots_in(store.config.root / DIRECTORY, read_only=True)
    begins: list[Snapshot | None] = [each for each in snapshots if each.is_sealed]
    if log_start == 0:
        begins.append(None)
    if not begins:
        return [f"the log begins at {log_start}, and no snapshot is sealed"]
    found = inconsistencies(live)
    live |= state_rows(live_engine(store))
    for begin in begins:
        engine = rebuilt(store, begin)
        wanted = rows(engine, log_start) | state_rows(engine)
        found += [
            f"{family} {key!r}: {live.get((family, key))!r}, not {wanted.get((family, key))!r}"
            + ("" if begin is None else f", by the snapshot at {begin.point}")
            for family, key in sorted(live.keys() | wanted.keys())
            if live.get((family, key)) != wanted.get((family, key))
        ]
    return found


def inconsistencies(live: dict[tuple[str, bytes], bytes]) -> list[str]:
    """P2 and P6 for the rows of one database alone."""
    found = []
    checkpoint = unpack_i64(live.get((BOUNDS, DISPATCHED_KEY), bytes(8)))
    queues: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (family, key), value in sorted(live.items()):
        if family == UNITS:
            topic, queue_id, offset = unpack_unit_key(key)
            unit = unpack_unit(value)
            queues.setdefault((topic, queue_id), []).append((offset, unit.physical_offset))
            if unit.physical_offset + unit.record_size > checkpoint:
                found.append(f"unit {topic!r} {queue_id} {offset} beyond {checkpoint}")
        elif family == INDEX and time_and_offset_of(key)[1] >= checkpoint:
            found.append(f"index row {key!r} beyond {checkpoint}")
    bounds = {}
    for (family, key), value in live.items():
        if family == BOUNDS and key != DISPATCHED_KEY:
            topic, _, queue_id = unpack_bounds_key(key)
            bounds[topic, queue_id] = unpack_max(value)
    for queue, units in queues.items():
        first = units[0][0]
        if [offset for offset, _ in units] != list(range(first, first + len(units))):
            found.append(f"queue {queue} is not dense")
        places = [place for _, place in units]
        if places != sorted(set(places)):
            found.append(f"physical offsets of {queue} do not rise")
        if bounds.get(queue) != (units[-1][1], units[-1][0]):
            found.append(f"bounds of {queue}: {bounds.get(queue)}, last unit {units[-1]}")
    found += [f"bounds of {queue} without units" for queue in bounds.keys() - queues.keys()]
    return found
