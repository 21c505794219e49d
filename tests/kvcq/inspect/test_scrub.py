"""kvcq/inspect/scrub.py: what is not whole in a running store is found, what is dropped is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.inspect import Kind, Remedy, Scrub
from kvcq.tables.keys import UNITS, unit_key
from store.message import Message
from tests.support.rebuild import live_engine
from tests.support.rows import pack_unit
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

MESSAGES = 600
#: And the one that makes the topics.
RECORDS = MESSAGES + 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Several segments of 64 KiB."""
    with open_small(tmp_path / "store") as opened:
        for number in range(MESSAGES):
            light = ("%LMQ%a",) if number % 3 == 0 else ()
            opened.put([Message("T", b"x" * 200, number % 2, light_queues=light)])
        yield opened


def scrub(store: MessageStore, start: int = 0, *, log_only: bool = False) -> Scrub:
    return Scrub(store.log, store.queues, lambda: store.admission, start, log_only=log_only)


def whole_pass(store: MessageStore, *, log_only: bool = False) -> Scrub:
    found = scrub(store, log_only=log_only)
    assert not found.advance(store.queues.dispatched_offset, 1 << 40)
    return found


def harm(store: MessageStore, physical_offset: int) -> None:
    """A byte of the record there is another one now, on disk."""
    segment = store.log.segments.find(physical_offset)
    assert segment is not None
    at = physical_offset - segment.start_offset + 100
    with segment.path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_all_of_a_whole_store_is_verified(store: MessageStore) -> None:
    found = whole_pass(store)
    assert found.findings == []
    assert found.records == RECORDS
    assert found.units == RECORDS + MESSAGES // 3
    assert found.bytes == found.position == store.log.appended_offset


def test_a_pass_goes_as_far_as_it_is_told_and_on_from_there(store: MessageStore) -> None:
    end = store.queues.dispatched_offset
    first = scrub(store)
    assert first.advance(end, 1)
    assert 0 < first.position < end
    rest = scrub(store, first.position)
    while rest.advance(end, 30_000):
        pass
    assert first.records + rest.records == RECORDS
    assert not first.findings
    assert not rest.findings


def test_what_is_appended_later_is_left_to_the_next_pass(store: MessageStore) -> None:
    end = store.queues.dispatched_offset
    store.put([Message("T", b"later", 0)])
    found = scrub(store)
    assert not found.advance(end, 1 << 40)
    assert (found.position, found.records) == (end, RECORDS)


def test_a_damaged_record_is_found_and_those_behind_it_too(store: MessageStore) -> None:
    [(_, unit)] = store.queues.read_units("T", 0, 7, 1)
    harm(store, unit.physical_offset)
    found = whole_pass(store)
    [finding] = found.findings
    assert finding.kind is Kind.DAMAGED_RECORD
    assert finding.physical_offset == unit.physical_offset
    assert finding.place.startswith("commitlog/")
    assert (found.damaged_records, found.records) == (1, RECORDS - 1)


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 1), ("%LMQ%a", 0)])
def test_a_missing_unit_is_found(store: MessageStore, topic: str, queue_id: int) -> None:
    key = unit_key(topic, queue_id, 5)
    live_engine(store).write(KvBatch(deletes=[(UNITS, key)]))
    found = whole_pass(store)
    [finding] = found.findings
    assert (finding.kind, finding.remedy) == (Kind.MISSING_UNIT, Remedy.REBUILD_QUEUE)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == (topic, queue_id, 5)
    assert found.wrong_units == 1
    assert whole_pass(store, log_only=True).findings == []


def test_a_wrong_unit_is_found(store: MessageStore) -> None:
    [(_, unit)] = store.queues.read_units("T", 0, 9, 1)
    row = (unit_key("T", 0, 9), pack_unit(unit._replace(tag_code=77)))
    live_engine(store).write(KvBatch(puts={UNITS: [row]}))
    [finding] = whole_pass(store).findings
    assert (finding.kind, finding.queue_offset) == (Kind.WRONG_UNIT, 9)


def test_what_was_deleted_meanwhile_is_no_finding(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = store.admission
    admit_all = type(admission).admit_all

    def then_delete(self: object, run: object) -> object:
        found = admit_all(self, run)  # type: ignore[arg-type]
        if store.list_topics("T", None, 1):
            store.delete_topic("T")
        return found

    monkeypatch.setattr(type(admission), "admit_all", then_delete)
    assert whole_pass(store).findings == []


def test_segments_that_are_dropped_are_passed_over(store: MessageStore) -> None:
    store.flush()
    end = store.queues.dispatched_offset
    found = scrub(store)
    assert found.advance(end, 1)
    segments = store.log.segments
    for _ in range(2):
        segments.drop_first()  # type: ignore[attr-defined]
    assert not found.advance(end, 1 << 40)
    assert found.findings == []
    assert found.position == end


def test_a_disk_that_cannot_be_read_is_told_and_tried_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = store.queues.dispatched_offset
    found = scrub(store)

    def broken(*_: object) -> memoryview:
        raise OSError(5, "Input/output error")

    look = found._look
    monkeypatch.setattr(found, "_look", broken)
    with pytest.raises(OSError, match="Input/output"):
        found.advance(end, 1 << 40)
    monkeypatch.setattr(found, "_look", look)
    assert not found.advance(end, 1 << 40)
    assert found.records == RECORDS


@pytest.mark.parametrize("again", [0, 3, 400])
def test_a_light_queue_that_was_deleted_is_no_finding(store: MessageStore, again: int) -> None:
    """Nor is one that begins anew after that."""
    store.delete_topic("%LMQ%a")
    for _ in range(again):
        store.put([Message("T", b"new", 0, light_queues=("%LMQ%a",))])
    assert whole_pass(store).findings == []


def test_a_missing_unit_of_a_light_queue_is_found(store: MessageStore) -> None:
    low, high = store.bounds([("%LMQ%a", 0)])[0]
    for lost in (low, high - 1):
        live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("%LMQ%a", 0, lost))]))
    found = whole_pass(store).findings
    assert [(each.kind, each.topic, each.queue_offset) for each in found] == [
        (Kind.MISSING_UNIT, "%LMQ%a", low),
        (Kind.MISSING_UNIT, "%LMQ%a", high - 1),
    ]
