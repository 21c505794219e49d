"""The bulk decoder finds the same records, and the same in them, as the record-by-record code."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.columnar.decoder import DEFAULTS, ReadOptions, read_blocks
from migration.columnar.errors import LogLayoutError, SegmentDamageError
from migration.columnar.log_layout import LogLayout, LogRange, read_layout, split
from migration.spark.arrow import column_of, read_batches
from migration.spark.columns import COMMITLOG
from store.format.record import check_record, dispatch_request, unpack_record
from tests.migration.spark.logs import ODD_ENTRIES, expected, write_log, write_odd_log
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from migration.columnar.block import RecordBlock


def whole(block: RecordBlock) -> RecordBlock:
    return block


def read_all(
    layout: LogLayout, max_bytes: int = 0, options: ReadOptions = DEFAULTS
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for log_range in split(layout, layout.start, layout.end, max_bytes):
        for batch in read_batches(log_range, COMMITLOG, options, whole):
            batch.validate(full=True)
            rows.extend(batch.to_pylist())
    return rows


def offsets(ranges: list[LogRange], options: ReadOptions = DEFAULTS) -> list[int]:
    found: list[int] = []
    for log_range in ranges:
        for block in read_blocks(log_range, options):
            found.extend(block.physical_offset.tolist())
    return found


@pytest.mark.parametrize("crc_item", [True, False])
def test_every_kind_of_record_is_decoded(tmp_path: Path, crc_item: bool) -> None:
    writer = write_odd_log(tmp_path, crc_item=crc_item)
    layout = read_layout(tmp_path)
    assert layout.end == writer.end
    assert read_all(layout, options=ReadOptions(verify_crc=True)) == [
        expected(row) for row in writer.rows
    ]


def test_a_compressed_body_is_read_as_it_was_sent(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 1 << 16)
    stored = zlib.compress(b"an order " * 100)
    writer.append(Entry(body=b"plain"))
    writer.append(Entry(body=stored, sys_flag=0x1))
    writer.append(Entry(body=b"not compressed at all", sys_flag=0x201))
    writer.flush()
    rows = read_all(read_layout(tmp_path), options=ReadOptions(verify_crc=True))
    assert [row["body"] for row in rows] == [b"plain", b"an order " * 100, None]
    assert [row["stored_body"] for row in rows] == [b"plain", stored, b"not compressed at all"]


PIECES = (
    *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"\x01", b"\x02", b"x", b" ", b"4", b",", b"%LMQ%q"),
    *(b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET", b"TAGS\x01a\x02", "é".encode()),
)
properties_bytes = st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join)

entries = st.builds(
    Entry,
    topic=st.sampled_from(["t", "SCHEDULE_TOPIC_XXXX", "订单", "q" * 127]),
    body=st.binary(max_size=40),
    properties=properties_bytes,
    sys_flag=st.sampled_from([0, 4, 8, 12, 1]),
    version=st.sampled_from([1, 2]),
    queue_id=st.integers(0, 3),
    queue_offset=st.integers(0, 1 << 40),
    born_host=st.sampled_from([("1.2.3.4", 5), ("::1", 6)]),
    store_host=st.sampled_from([("4.3.2.1", 5), ("::2", 6)]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(written=st.lists(entries, min_size=1, max_size=12))
def test_bulk_decoding_agrees_with_the_dispatcher(
    tmp_path_factory: pytest.TempPathFactory, written: list[Entry]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    writer = LogWriter(directory, 8192, crc_item=False)
    for entry in written:
        row = writer._encode(entry, writer.end)
        writer.write_raw(row.record)
        writer.rows.append(row)
    writer.flush()
    found = read_all(read_layout(directory))
    assert [row["record"] for row in found] == [row.record for row in writer.rows]
    for columns in found:
        record = columns["record"]
        assert isinstance(record, bytes)
        request = dispatch_request(record, 0)
        message = unpack_record(record)
        assert columns["topic"] == request.topic
        assert columns["tag_code"] == request.tag_code
        assert columns["keys"] == list(request.keys)
        assert columns["light_queues"] == [name for name, _ in request.light_queues]
        assert columns["light_offsets"] == [offset for _, offset in request.light_queues]
        assert columns["in_queue"] == request.in_queue
        assert (columns["tag"] or "") == message.tag


@settings(deadline=None, max_examples=300)
@given(at=st.integers(0, 255), value=st.integers(0, 255), which=st.sampled_from(ODD_ENTRIES))
def test_what_is_taken_for_a_record_is_what_recovery_takes(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, which: Entry
) -> None:
    directory = tmp_path_factory.mktemp("log")
    writer = LogWriter(directory, 4096)
    plain = replace(which, properties=b"TAGS\x01a\x02", light_queues=())
    record = bytearray(writer.append(plain).record)
    record[at % len(record)] = value
    data = bytes(record) + bytes(4096 - len(record))
    (directory / f"{0:020d}").write_bytes(data)
    checked = check_record(data, 0, 4096, 0, verify_crc=False)
    layout = read_layout(directory)
    assert layout.end == (4096 if checked.found.value == "blank" else checked.size)


@pytest.mark.parametrize("max_bytes", [0, 100, 1000, 5000, 1 << 30])
def test_ranges_of_any_size_find_each_record_once(tmp_path: Path, max_bytes: int) -> None:
    writer = write_log(tmp_path, 400, segment_bytes=1 << 14)
    layout = read_layout(tmp_path)
    assert len(layout.segments) > 3
    ranges = split(layout, layout.start, layout.end, max_bytes)
    assert offsets(ranges) == [row.physical_offset for row in writer.rows]


def test_a_part_of_the_log_begins_and_ends_anywhere(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 200, segment_bytes=1 << 14)
    layout = read_layout(tmp_path)
    places = [row.physical_offset for row in writer.rows]
    for begin, end in [(1, 1 << 14), (places[7], places[90]), (places[7] + 1, places[90] + 1)]:
        found = offsets(split(layout, begin, end, 3000))
        assert found == [place for place in places if begin <= place < end]


def test_only_what_is_asked_for_is_built(tmp_path: Path) -> None:
    write_log(tmp_path, 10)
    layout = read_layout(tmp_path)
    (log_range,) = split(layout, 0, layout.end, 0)
    schema = pa.schema([COMMITLOG.field("queue_id"), COMMITLOG.field("record_size")])
    (batch,) = read_batches(log_range, schema, DEFAULTS, whole)
    assert batch.schema == schema
    (block,) = read_blocks(log_range)
    for field in schema:
        column_of(block, field)
    assert "_coded_topics" not in vars(block)
    assert "_scan" not in vars(block)


def forged_log(directory: Path) -> LogWriter:
    """A log with a body that holds whole records, each saying that it lies where it lies."""
    writer = LogWriter(directory, 1 << 16)
    writer.append(Entry())
    writer.append(Entry(body=b""))
    body = b""
    inner = LogWriter(directory / "unused", 1 << 16)
    first_body = writer.end + 88
    while len(body) < 3000:
        body += inner._encode(Entry(topic="forged"), first_body + len(body)).record
    writer.append(Entry(body=body))
    writer.append(Entry())
    writer.flush()
    (directory / "unused").rmdir()
    return writer


def test_a_record_copied_into_a_body_is_never_read_as_one(tmp_path: Path) -> None:
    writer = forged_log(tmp_path)
    layout = read_layout(tmp_path)
    places = [row.physical_offset for row in writer.rows]
    assert offsets(split(layout, 0, layout.end, 0)) == places
    with pytest.raises(SegmentDamageError, match="holds the copy of a record"):
        offsets(split(layout, 0, layout.end, 1000))
    # A single range that begins inside the body is walked to, not searched for.
    assert offsets(split(layout, places[2] + 500, layout.end, 0)) == places[3:]


def test_the_log_ends_at_the_first_thing_that_is_no_record(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 20)
    last = writer.rows[-1]
    path = writer.path_of(last.physical_offset)
    data = bytearray(path.read_bytes())
    for cut in (1, 30, len(last.record) - 1):
        torn = bytearray(data)
        at = last.physical_offset % writer.segment_bytes
        torn[at + cut : at + len(last.record)] = bytes(len(last.record) - cut)
        path.write_bytes(torn)
        layout = read_layout(tmp_path)
        # Lengths that are torn away end the log; a torn body needs its CRC to be seen.
        if layout.end == writer.end:
            with pytest.raises(SegmentDamageError, match="CRC mismatch"):
                read_all(layout, options=ReadOptions(verify_crc=True))
        else:
            assert layout.end == last.physical_offset
            assert len(read_all(layout)) == 19


def test_an_old_record_left_behind_by_a_truncation_is_none(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 4096)
    old = [writer.append(Entry()) for _ in range(3)]
    writer.flush()
    path = tmp_path / f"{0:020d}"
    data = bytearray(path.read_bytes())
    end = old[2].physical_offset
    data[end : end + len(old[1].record)] = old[1].record
    path.write_bytes(data)
    assert read_layout(tmp_path).end == end


def test_segments_prepared_ahead_are_not_the_log(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 20)
    (tmp_path / f"{1 << 16:020d}").write_bytes(bytes(1 << 16))
    (tmp_path / f"{2 << 16:020d}").write_bytes(b"")
    layout = read_layout(tmp_path)
    assert (layout.end, len(layout.segments)) == (writer.end, 1)


def test_the_end_can_be_given_by_the_owner_of_the_log(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 20)
    end = writer.rows[12].physical_offset
    layout = read_layout(tmp_path, end=end)
    assert len(read_all(layout)) == 12
    with pytest.raises(LogLayoutError, match="not the end"):
        read_layout(tmp_path, end=1 << 40)


def test_a_damaged_record_stops_the_read_or_is_stepped_over(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 300, segment_bytes=1 << 14)
    wounded = writer.rows[20]
    path = writer.path_of(wounded.physical_offset)
    data = bytearray(path.read_bytes())
    data[wounded.physical_offset + 4] ^= 1
    path.write_bytes(data)
    layout = read_layout(tmp_path)
    with pytest.raises(SegmentDamageError) as caught:
        read_all(layout)
    assert caught.value.physical_offset == wounded.physical_offset
    assert caught.value.segment == path.name
    for max_bytes in (0, 1000):
        found = read_all(layout, max_bytes, ReadOptions(fail_on_corrupt=False))
        kept = [row.record for row in writer.rows if row is not wounded]
        assert [row["record"] for row in found] == kept


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_damage_in_the_last_segment_is_no_end_of_the_log(tmp_path: Path, is_zeroed: bool) -> None:
    writer = write_log(tmp_path, 50)
    wounded = writer.rows[20]
    path = writer.path_of(wounded.physical_offset)
    data = bytearray(path.read_bytes())
    if is_zeroed:  # a page that never reached the disk
        size = len(wounded.record)
        data[wounded.physical_offset : wounded.physical_offset + size] = bytes(size)
    else:
        data[wounded.physical_offset + 4] ^= 1
    path.write_bytes(data)
    layout = read_layout(tmp_path)
    assert layout.end == writer.end
    with pytest.raises(SegmentDamageError):
        read_all(layout)
    assert len(read_all(layout, options=ReadOptions(fail_on_corrupt=False))) == 49
    # Who follows a log looks for its end in zeros alone.
    followed = read_layout(tmp_path, known_end=writer.rows[10].physical_offset)
    assert followed.end == (wounded.physical_offset if is_zeroed else writer.end)


@pytest.mark.parametrize("at", [90, -30])
def test_a_flipped_bit_is_found_with_crcs_and_stepped_over(tmp_path: Path, at: int) -> None:
    writer = write_log(tmp_path, 50)
    wounded = writer.rows[20]
    path = writer.path_of(wounded.physical_offset)
    data = bytearray(path.read_bytes())
    data[wounded.physical_offset + at % len(wounded.record)] ^= 4
    path.write_bytes(data)
    layout = read_layout(tmp_path)
    assert len(read_all(layout)) == 50
    with pytest.raises(SegmentDamageError, match="CRC mismatch"):
        read_all(layout, options=ReadOptions(verify_crc=True))
    found = read_all(layout, options=ReadOptions(verify_crc=True, fail_on_corrupt=False))
    assert len(found) == 49


def test_large_records_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from migration.columnar import decoder

    monkeypatch.setattr(decoder, "BATCH_BYTES", 1000)
    writer = write_log(tmp_path, 60)
    writer.append(Entry(body=bytes(3000)))
    writer.flush()
    layout = read_layout(tmp_path)
    (log_range,) = split(layout, 0, layout.end, 0)
    batches = list(read_batches(log_range, COMMITLOG, DEFAULTS, whole))
    assert len(batches) > 6
    assert sum(batch.num_rows for batch in batches) == 61
    assert max(batch.num_rows for batch in batches) < 12


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: (d / f"{1 << 14:020d}").unlink(), "a segment before it is missing"),
        (lambda d: (d / "notes.txt").write_text("x"), "not the 20 digits"),
        (lambda d: (d / f"{1 << 14:020d}").write_bytes(b"short"), "5 bytes, not 16384"),
        (lambda d: (d / f"{0:020d}").rename(d / f"{5:020d}"), "multiple of 16384"),
    ],
)
def test_a_directory_that_is_no_log_is_refused(
    tmp_path: Path, break_it: Callable[[Path], object], message: str
) -> None:
    write_log(tmp_path, 300, segment_bytes=1 << 14)
    break_it(tmp_path)
    with pytest.raises(LogLayoutError, match=message):
        read_layout(tmp_path)


def test_an_empty_log_is_no_error_and_a_missing_one_is(tmp_path: Path) -> None:
    assert read_layout(tmp_path).segments == ()
    with pytest.raises(LogLayoutError, match="no such directory"):
        read_layout(tmp_path / "missing")
