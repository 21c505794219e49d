"""Behind a damaged record the next whole one is found, and nothing that merely looks like one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from store.format.preparing import prepare
from store.format.record import pack_blank
from store.log.batch_encoder import BatchEncoder
from store.log.log_bytes import PreadWindow, mapped
from store.log.queue_offsets import Hot
from store.log.resync import find_next_record, next_record
from store.log.segment import Segment, segment_name
from store.log.segment_set import SegmentSet
from store.message import Message

BASE = 16 << 20


def segment(
    bodies: list[bytes], size: int = 1 << 16, base: int = BASE
) -> tuple[bytearray, list[int]]:
    """A segment at `base` with these messages and a blank record, and where each lies."""
    encoder = BatchEncoder(("127.0.0.1", 8081), crc_item=True)
    hot = Hot()
    hot.queues["T", 0] = 0
    messages = [Message("T", body) for body in bodies]
    prepared = [prepare(message, 0, 1 << 20, 10) for message in messages]
    encoded = encoder.encode(messages, prepared, 0, hot, base, size, 1)
    assert encoded.count == len(bodies)
    data = bytearray(b"".join(encoded.parts))
    data += pack_blank(size - len(data))
    data += bytes(size - len(data))
    return data, [request.physical_offset for request in encoded.requests]


def behind(raw: bytes | bytearray, at: int) -> int | None:
    """The next record in a segment of these bytes; mapped and read alike."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / segment_name(BASE)
        path.write_bytes(raw)
        opened = Segment.open(path, len(raw))
        found = next_record(opened, at, BASE + len(raw), mapped)
        assert found == next_record(opened, at, BASE + len(raw), PreadWindow())
        opened.close()
        return found


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=8), st.data())
def test_the_next_whole_record_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    raw, places = segment(bodies)
    broken = data.draw(st.integers(0, len(bodies) - 2))
    at = places[broken]
    length = places[broken + 1] - at
    raw[at - BASE : at - BASE + length] = data.draw(st.binary(min_size=length, max_size=length))
    found = behind(raw, at)
    assert found == places[broken + 1]


def test_behind_the_last_record_the_blank_one_is_found() -> None:
    raw, places = segment([b"a", b"b"])
    end = places[1] + (places[1] - places[0])
    assert behind(raw, places[1]) == end


def test_a_record_copied_into_a_body_is_not_taken_for_one() -> None:
    """It says it lies elsewhere."""
    inner, _ = segment([b"inner"])
    raw, places = segment([bytes(inner[:300]), b"next"])
    found = behind(raw, places[0])
    assert found == places[1]


def test_zeros_hold_nothing() -> None:
    assert behind(bytes(1 << 16), BASE) is None


def on_disk(directory: Path, *segments: bytes) -> SegmentSet:
    """A log that begins at BASE, open for reading only."""
    size = len(segments[0])
    for number, data in enumerate(segments):
        (directory / segment_name(BASE + number * size)).write_bytes(data)
    return SegmentSet.load(directory, size, read_only=True)


def broken(data: bytearray, start: int, end: int) -> bytes:
    data[start - BASE : end - BASE] = b"x" * (end - start)
    return bytes(data)


def test_the_log_goes_on_at_the_next_record_however_far_away(tmp_path: Path) -> None:
    raw, places = segment([b"a", *[bytes(1 << 20)] * 9, b"b"], 16 << 20)
    with_damage = on_disk(tmp_path, broken(raw, places[0], places[10]))
    assert find_next_record(with_damage, places[0]) == places[10]
    with_damage.close()


def test_the_log_goes_on_at_the_blank_record_when_none_but_that_is_left(tmp_path: Path) -> None:
    raw, places = segment([b"a", b"b"])
    blank = places[1] + (places[1] - places[0])
    with_damage = on_disk(tmp_path, broken(raw, places[1], blank), bytes(1 << 16))
    assert find_next_record(with_damage, places[1]) == blank
    with_damage.close()


def test_the_log_goes_on_with_the_first_record_of_a_later_segment(tmp_path: Path) -> None:
    size = 1 << 16
    first, places = segment([b"a", b"b"], size)
    third, _ = segment([b"c"], size, BASE + 2 * size)
    with_damage = on_disk(
        tmp_path, broken(first, places[1], BASE + size), b"x" * size, bytes(third)
    )
    assert find_next_record(with_damage, places[1]) == BASE + 2 * size
    with_damage.close()


def test_the_log_ends_where_nothing_follows(tmp_path: Path) -> None:
    size = 1 << 16
    raw, places = segment([b"a", b"b"], size)
    torn = broken(raw, places[1] + 50, BASE + size)
    log = on_disk(tmp_path, torn, bytes(size))
    assert find_next_record(log, places[1]) is None
    log.close()
