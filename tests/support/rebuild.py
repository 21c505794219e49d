"""The main invariant: everything derived can be made from the log again, byte for byte.

`differences` feeds a fresh database from the records of an open store, one by one and without the
quick ways of dispatch, and compares its rows with the live ones. Then it looks at what any single
database must hold: dense queues, rising offsets, one dispatch point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.tables.keys import (
    BOUNDS,
    DELETIONS_KEY,
    DISPATCHED_KEY,
    FAMILIES,
    INDEX,
    UNITS,
    time_and_offset_of,
    unpack_bounds_key,
    unpack_unit_key,
)
from kvcq.tables.values import unpack_i64, unpack_max, unpack_unit
from store.format.record import Found, check_record, dispatch_request
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine.protocol import KvEngine
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

_END = b"\xff" * 8


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


def rebuilt(store: MessageStore) -> MemoryEngine:
    """A database made from the log alone, up to the dispatch point of the live one."""
    engine = MemoryEngine(FAMILIES)
    queues = KvConsumeQueueStore(engine)
    end = store.queues.dispatched_offset
    for request in records(store, end):
        admitted = store.admission.admit(request)
        if admitted is not None:
            queues.dispatch([admitted], request.physical_offset + request.record_size)
    queues.dispatch([], end)
    return engine


def live_engine(store: MessageStore) -> KvEngine:
    queues = store.queues
    assert isinstance(queues, KvConsumeQueueStore)
    return queues._engine


def rows(engine: KvEngine, log_start: int) -> dict[tuple[str, bytes], bytes]:
    """Family and key to value, without what is expired and without the number of deletions."""
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


def differences(store: MessageStore) -> list[str]:
    """What is wrong with the live database, [] when nothing is."""
    log_start = store.log.start_offset
    live = rows(live_engine(store), log_start)
    wanted = rows(rebuilt(store), log_start)
    found = [
        f"{family} {key!r}: {live.get((family, key))!r}, not {wanted.get((family, key))!r}"
        for family, key in sorted(live.keys() | wanted.keys())
        if live.get((family, key)) != wanted.get((family, key))
    ]
    return found + inconsistencies(live)


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
