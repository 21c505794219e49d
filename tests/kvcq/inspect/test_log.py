"""The check of a log: exact about each planted fault."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from zlib_ng.zlib_ng import crc32

from kvcq.engine.protocol import KvBatch
from kvcq.inspect.findings import Kind, Remedy
from kvcq.tables.keys import INDEX, UNITS, unit_key, unpack_index_key
from kvcq.tables.values import unpack_unit
from migration.check import check_store
from store.format import (
    AT,
    CRC_ITEM_BYTES,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    DISTANCE_SHIFT,
    LAST,
    PLACE,
)
from store.format.checkpoint import read_checkpoint
from tests.support.checking import database, faults, flip, only, segment
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("position", [3, 5, 30, 60, 100, 1000])
def test_a_damaged_record(root: Path, position: int) -> None:
    with database(root) as engine:
        record = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
    flip(segment(root), record.physical_offset + position)
    finding = only(root, Kind.DAMAGED_RECORD)
    assert finding.physical_offset == record.physical_offset
    assert finding.place == f"commitlog/{0:020}"
    assert str(record.physical_offset + record.record_size) in finding.found
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)
    assert "42 records follow" in finding.found


@pytest.mark.parametrize(
    ("second", "ordinal", "distance", "is_last"),
    [
        (True, 2, None, True),  # one of them was left out
        (True, 1, 64, True),  # another batch's
        (True, 1, None, False),  # it does not end
        (False, None, 0, False),  # it does not begin
        (False, 0, 64, False),
    ],
)
def test_a_place_in_a_batch_that_does_not_fit(
    root: Path, second: bool, ordinal: int | None, distance: int | None, is_last: bool
) -> None:
    with database(root) as engine:
        first = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        other = unpack_unit(engine.get(UNITS, unit_key("beta", 1, 4)) or b"")
    at = other.physical_offset if second else first.physical_offset
    way = other.physical_offset - first.physical_offset if distance is None else distance
    place = 0
    if ordinal is not None:
        place = PLACE + (LAST if is_last else 0) + (way << DISTANCE_SHIFT) + ordinal
    with segment(root).open("r+b") as file:
        file.seek(at)
        size = int.from_bytes(file.read(4), "big")
        file.seek(at)
        record = bytearray(file.read(size))
        place_at = AT["prepared_transaction_offset"]
        record[place_at : place_at + 8] = place.to_bytes(8, "big", signed=True)
        crc = crc32(record[:-CRC_ITEM_BYTES]) & CRC_MASK
        record[-CRC_ITEM_BYTES:] = (CRC_ITEM_REVERSED % crc)[::-1]
        file.seek(at)
        file.write(record)
    finding = only(root, Kind.BATCH_PLACE)
    next_batch = other.physical_offset + other.record_size
    assert finding.physical_offset in (at, other.physical_offset, next_batch)
    assert "batch" in finding.detail


def test_a_damaged_record_without_queues_is_named_by_its_header(root: Path) -> None:
    with database(root) as engine:
        record = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
    shutil.rmtree(root / "kvcq")
    flip(segment(root), record.physical_offset + 500)
    finding = only(root, Kind.DAMAGED_RECORD)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)


def test_a_damaged_record_that_no_row_leads_to_is_information(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        rows = [
            (UNITS, unit_key("alpha", 1, 4)),
            (UNITS, unit_key("%LMQ%light", 0, 6)),
            *(
                (INDEX, key)
                for key, _ in engine.scan(INDEX, b"", b"\xff" * 8)
                if unpack_index_key(key)[3] == unit.physical_offset
            ),
        ]
        assert len(rows) == 4
    flip(segment(root), unit.physical_offset + 500)
    for row in rows:
        assert only(root, Kind.DAMAGED_RECORD).queue_offset == 4
        with database(root) as engine:
            engine.write(KvBatch(deletes=[row]))
    [told] = check_store(root)
    assert (told.kind, told.is_fault) == (Kind.LEFT_OUT, False)
    assert (told.topic, told.queue_id, told.queue_offset) == ("alpha", 1, 4)


def test_a_hole_with_damage_in_it_hides_no_missing_unit(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        rows = [unit_key("alpha", 1, 4), unit_key("alpha", 1, 5)]
        engine.write(KvBatch(deletes=[(UNITS, key) for key in rows]))
    flip(segment(root), unit.physical_offset + 500)
    found = faults(root)
    assert Kind.MISSING_UNIT in {finding.kind for finding in found}
    [missing] = [finding for finding in found if finding.kind is Kind.MISSING_UNIT]
    assert missing.queue_offset == 5


def test_a_zeroed_end_of_the_durable_log(root: Path) -> None:
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None
    end = checkpoint.flushed_offset
    path = root / "commitlog" / f"{end - end % SEGMENT_BYTES:020}"
    data = path.read_bytes()
    path.write_bytes(data[: end % SEGMENT_BYTES - 500].ljust(SEGMENT_BYTES, b"\0"))
    kinds = {finding.kind for finding in faults(root)}
    assert Kind.DAMAGED_RECORD in kinds


def test_a_log_that_ends_early(root: Path) -> None:
    segment(root).write_bytes(bytes(SEGMENT_BYTES))
    kinds = {finding.kind for finding in faults(root)}
    assert {Kind.DAMAGED_RECORD, Kind.WRONG_UNIT} & kinds


def test_a_gap_between_segments(root: Path) -> None:
    shutil.copy(segment(root), segment(root, 2))
    assert only(root, Kind.SEGMENTS).place.endswith(f"{2 * SEGMENT_BYTES:020}")


def test_a_damaged_checkpoint_file(root: Path) -> None:
    flip(root / "checkpoint", 44)
    assert only(root, Kind.CHECKPOINT_FILE).place == "checkpoint"


@pytest.mark.parametrize("name", ["log_start", "clock", "users"])
def test_a_damaged_note(root: Path, name: str) -> None:
    path = root / "notes" / name
    path.write_bytes(b"0" * 20)
    finding = only(root, Kind.NOTE)
    assert finding.place == f"notes/{name}"
    assert (finding.remedy is Remedy.RESTORE) == (name == "users")
    if name != "users":
        open_small(root).close()
        assert check_store(root) == []


def test_a_damaged_store_json(root: Path) -> None:
    (root / "store.json").write_bytes(b"{")
    assert only(root, Kind.IDENTITY).place == "store.json"
