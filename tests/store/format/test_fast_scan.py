"""The quick way through records gives what the slow way gives."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from zlib_ng.zlib_ng import crc32

from store.consume_queue import DispatchRequest
from store.format.fast_scan import FastParser, are_whole, skip_whole
from store.format.layout import BORN_HOST_V6, STORE_HOST_V6
from store.format.properties import LMQ_NAMES, LMQ_OFFSETS
from store.format.record import (
    CRC_ITEM_BYTES,
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Found,
    check_record,
    crc_item,
    dispatch_request,
)

_BASE = 1 << 30
_FRONT = struct.Struct(">iiiiiqqiq")


class Entry(NamedTuple):
    """One record to be made, down to what no writer of ours would make."""

    topic: bytes = b"orders"
    properties: bytes = b""
    body: bytes = b"body"
    magic: int = MAGIC_V1
    sys_flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    store_time_ms: int = 1_700_000_000_000
    sealed: bool = True
    wrong_length: int = 0  # added to the properties length


def _record(entry: Entry, at: int) -> bytes:
    item_bytes = CRC_ITEM_BYTES if entry.sealed else 0
    length_bytes = 1 if entry.magic == MAGIC_V1 else 2
    properties_length = (len(entry.properties) + item_bytes + entry.wrong_length) & 0xFFFF
    born = bytes(20 if entry.sys_flag & BORN_HOST_V6 else 8)
    store = bytes(20 if entry.sys_flag & STORE_HOST_V6 else 8)
    rest = b"".join(
        (
            born,
            struct.pack(">q", entry.store_time_ms),
            store,
            struct.pack(">iqi", 0, 0, len(entry.body)),
            entry.body,
            len(entry.topic).to_bytes(length_bytes, "big"),
            entry.topic,
            properties_length.to_bytes(2, "big"),
            entry.properties,
        )
    )
    front = _FRONT.pack(
        _FRONT.size + len(rest) + item_bytes,
        entry.magic,
        crc32(entry.body) & CRC_MASK,
        entry.queue_id,
        0,
        entry.queue_offset,
        at,
        entry.sys_flag,
        0,
    )
    data = front + rest
    return data + crc_item(crc32(data) & CRC_MASK) if entry.sealed else data


def _log(entries: list[Entry]) -> tuple[bytes, list[int]]:
    """Records that follow each other from `_BASE` on, and where each begins."""
    data = b""
    starts = []
    for entry in entries:
        starts.append(_BASE + len(data))
        data += _record(entry, starts[-1])
    return data, starts


def _slowly(data: bytes, at: int) -> DispatchRequest:
    checked = check_record(data, at - _BASE, len(data), at)
    assert checked.found is Found.RECORD, checked.reason
    return dispatch_request(data, at - _BASE)


def _quickly(parser: FastParser, data: bytes, at: int) -> DispatchRequest | None:
    """The request of the record at `at`; None where the quick way ends."""
    found, after = parser.parse(memoryview(data), _BASE, at, _BASE + len(data), 1)
    again, after_again = parser.parse(data, _BASE, at, _BASE + len(data), 1)
    assert (found, after) == (again, after_again)
    if not found:
        assert after == at
        return None
    assert type(found[0]) is DispatchRequest
    assert after == at + found[0].record_size
    return found[0]


names = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", LMQ_NAMES, LMQ_OFFSETS, "MYKEYS", "KEYS2", "tags", "é"]
) | st.text(max_size=3)
values = (
    st.sampled_from(
        ("", "a", "a b", " a  b ", "a a", " ", "3", "0", "-1", "99", "x\x01y", "KEYS\x01k", "ключ")
    )
    | st.sampled_from(("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a,other", "1,2", "7", "-7", "٣", "9" * 30))
    | st.text(max_size=5)
)
items = st.builds(lambda name, value: f"{name}\x01{value}\x02", names, values)
well_formed = st.lists(items, max_size=6).map("".join)
malformed = st.lists(
    items | st.sampled_from(["\x01", "\x02", "KEYS", "TAGS\x01", "\x01v\x02", "KEYS\x01k"])
).map("".join)
properties = (
    (well_formed | malformed).map(lambda text: text.encode("utf-8", "ignore"))
    | st.binary(max_size=20)
    | st.just(b"WAIT\x01" + b"x" * 300 + b"\x02")
)
topics = st.sampled_from([b"orders", b"t", b"", SCHEDULE_TOPIC.encode(), "тема".encode(), b"\xff"])
flags = st.sampled_from(
    [0, 0, 0, 1, 1, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK]
) | st.sampled_from([0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6])
entries = st.builds(
    Entry,
    topic=topics | st.binary(max_size=127),
    properties=properties,
    body=st.binary(max_size=40),
    magic=st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V1, MAGIC_V2]),
    sys_flag=flags,
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    store_time_ms=st.integers(0, 2**42),
    sealed=st.sampled_from([True, True, True, False]),
)


@given(st.lists(entries, min_size=1, max_size=12))
@example([Entry(properties=b"KEYS\x01\x02KEYS\x01a\x02")])
@example([Entry(properties=b"KEYS\x01a\x02KEYS\x01\x02")])
@example([Entry(properties=b"A\x01KEYS\x01a\x02KEYS\x01b\x02")])
@example([Entry(properties=b"UNIQ_KEY\x01a\x02KEYS\x01a b a\x02TAGS\x01t\x02")] * 2)
@example([Entry(properties=b"TAGS\x01t")])  # the CRC item is a part of the tag
@example([Entry(SCHEDULE_TOPIC.encode(), b"DELAY\x013\x02TAGS\x01t\x02")] * 2)
def test_what_the_quick_way_accepts_is_the_same_the_slow_way(made: list[Entry]) -> None:
    parser = FastParser()
    data, starts = _log(made)
    for at in starts * 2:  # the second time names and strings are known
        found = _quickly(parser, data, at)
        if found is not None:
            assert found == _slowly(data, at)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01t\x02",
        b"KEYS\x01k\x02TAGS\x01t\x02",
        b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02WAIT\x01true\x02",
        b"DELAY\x013\x02",
        b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x017\x02",
        b"\x01\x02\x02KEYS\x02",
    ],
)
def test_the_usual_records_go_the_quick_way(properties: bytes) -> None:
    data, (first, second) = _log([Entry(properties=properties), Entry(properties=properties)])
    found, after = FastParser().parse(data, _BASE, first, _BASE + len(data), 99)
    assert found == [_slowly(data, first), _slowly(data, second)]
    assert after == _BASE + len(data)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(sealed=False),
        Entry(magic=MAGIC_V2),
        Entry(sys_flag=TRANSACTION_PREPARED),
        Entry(sys_flag=BORN_HOST_V6),
        Entry(sys_flag=STORE_HOST_V6),
        Entry(topic=b"\xff"),
        Entry(properties=b"KEYS\x01\xff\x02"),
        Entry(properties=b"KEYS\x01k"),
        Entry(queue_id=-1),
        Entry(queue_offset=-1),
        Entry(topic=b"t" * 128),
        Entry(wrong_length=1),
        Entry(properties=b"x" * 32767),
    ],
)
def test_the_quick_way_ends_at_a_record_of_another_kind(entry: Entry) -> None:
    data, (first, second, _) = _log([Entry(), entry, Entry()])
    found, after = FastParser().parse(memoryview(data), _BASE, first, _BASE + len(data), 99)
    assert found == [_slowly(data, first)]
    assert after == second


@given(st.data())
def test_a_flipped_bit_ends_the_quick_way(data: st.DataObject) -> None:
    whole, (first, second) = _log([Entry(), Entry(properties=b"KEYS\x01k\x02")])
    bit = data.draw(st.integers((second - _BASE) * 8, len(whole) * 8 - 1))
    broken = bytearray(whole)
    broken[bit // 8] ^= 1 << bit % 8
    found, after = FastParser().parse(bytes(broken), _BASE, first, _BASE + len(whole), 99)
    assert (len(found), after) == (1, second)
    assert skip_whole(memoryview(broken), _BASE, first, _BASE + len(whole), 99) == (
        second,
        1,
        first,
    )


def test_a_limit_and_an_end_hold() -> None:
    data, starts = _log([Entry(queue_offset=number) for number in range(10)])
    for view in (data, memoryview(data)):
        found, after = FastParser().parse(view, _BASE, starts[2], _BASE + len(data), 3)
        assert [request.queue_offset for request in found] == [2, 3, 4]
        assert after == starts[5]
        found, after = FastParser().parse(view, _BASE, starts[0], starts[4] - 1, 99)
        assert (len(found), after) == (3, starts[3])


def test_records_larger_than_the_window_go_the_quick_way() -> None:
    bodies = [b"x" * size for size in (10, 40 << 10, 10, 600 << 10, 10)]
    data, starts = _log([Entry(body=body) for body in bodies])
    found, after = FastParser().parse(memoryview(data), _BASE, _BASE, _BASE + len(data), 99)
    assert [request.physical_offset for request in found] == starts
    assert after == _BASE + len(data)


def test_equal_topics_are_the_same_object() -> None:
    data, _ = _log([Entry(properties=text) for text in (b"", b"TAGS\x01t\x02", b"KEYS\x01k\x02")])
    found, _ = FastParser().parse(data, _BASE, _BASE, _BASE + len(data), 99)
    assert len({id(request.topic) for request in found}) == 1


def _apart(entries: list[Entry]) -> tuple[list[bytes], list[tuple[int, int]]]:
    data, starts = _log(entries)
    ends = [*starts[1:], _BASE + len(data)]
    records = [data[s - _BASE : e - _BASE] for s, e in zip(starts, ends, strict=True)]
    return records, [(s, e - s) for s, e in zip(starts, ends, strict=True)]


def test_sealed_records_are_known_by_their_bytes_and_place() -> None:
    records, places = _apart([Entry(body=b"x" * size) for size in (0, 1, 5000)])
    assert are_whole(records, places)
    assert are_whole(records[1:2], places[1:2])
    assert not are_whole(records, places[::-1])
    assert not are_whole(records, places[:2])
    assert not are_whole(records[::-1], places)
    assert not are_whole([records[0][:-1], *records[1:]], places)
    assert not are_whole([], [])
    assert not are_whole([b""], [(0, 0)])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_record_without_a_seal_is_not_sealed(position: int) -> None:
    entries = [Entry()] * 3
    entries[position] = Entry(sealed=False)
    assert not are_whole(*_apart(entries))


@given(st.data())
def test_a_flipped_bit_breaks_a_seal(data: st.DataObject) -> None:
    records, places = _apart([Entry(), Entry(properties=b"KEYS\x01k\x02"), Entry()])
    which = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, len(records[which]) * 8 - 1))
    broken = bytearray(records[which])
    broken[bit // 8] ^= 1 << bit % 8
    records[which] = bytes(broken)
    assert not are_whole(records, places)
