"""The quick way through records gives what the slow way gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.consume_queue import DispatchRequest
from store.format.fast_scan import FastParser, skip_whole
from store.format.layout import BORN_HOST_V6, STORE_HOST_V6
from store.format.properties import LMQ_NAMES, LMQ_OFFSETS
from store.format.record import (
    MAGIC_V1,
    MAGIC_V2,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Found,
    check_record,
    dispatch_request,
)
from tests.support.log_entries import BASE, Entry, log_of


def _slowly(data: bytes, at: int) -> DispatchRequest:
    checked = check_record(data, at - BASE, len(data), at)
    assert checked.found is Found.RECORD, checked.reason
    return dispatch_request(data, at - BASE)


def _quickly(parser: FastParser, data: bytes, at: int) -> DispatchRequest | None:
    """The request of the record at `at`; None where the quick way ends."""
    found, after = parser.parse(memoryview(data), BASE, at, BASE + len(data), 1)
    again, after_again = parser.parse(data, BASE, at, BASE + len(data), 1)
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
    data, starts = log_of(made)
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
    data, (first, second) = log_of([Entry(properties=properties), Entry(properties=properties)])
    found, after = FastParser().parse(data, BASE, first, BASE + len(data), 99)
    assert found == [_slowly(data, first), _slowly(data, second)]
    assert after == BASE + len(data)


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
    data, (first, second, _) = log_of([Entry(), entry, Entry()])
    found, after = FastParser().parse(memoryview(data), BASE, first, BASE + len(data), 99)
    assert found == [_slowly(data, first)]
    assert after == second


@given(st.data())
def test_a_flipped_bit_ends_the_quick_way(data: st.DataObject) -> None:
    whole, (first, second) = log_of([Entry(), Entry(properties=b"KEYS\x01k\x02")])
    bit = data.draw(st.integers((second - BASE) * 8, len(whole) * 8 - 1))
    broken = bytearray(whole)
    broken[bit // 8] ^= 1 << bit % 8
    found, after = FastParser().parse(bytes(broken), BASE, first, BASE + len(whole), 99)
    assert (len(found), after) == (1, second)
    assert skip_whole(memoryview(broken), BASE, first, BASE + len(whole), 99) == (
        second,
        1,
        first,
    )


def test_a_limit_and_an_end_hold() -> None:
    data, starts = log_of([Entry(queue_offset=number) for number in range(10)])
    for view in (data, memoryview(data)):
        found, after = FastParser().parse(view, BASE, starts[2], BASE + len(data), 3)
        assert [request.queue_offset for request in found] == [2, 3, 4]
        assert after == starts[5]
        found, after = FastParser().parse(view, BASE, starts[0], starts[4] - 1, 99)
        assert (len(found), after) == (3, starts[3])


def test_records_larger_than_the_window_go_the_quick_way() -> None:
    bodies = [b"x" * size for size in (10, 40 << 10, 10, 600 << 10, 10)]
    data, starts = log_of([Entry(body=body) for body in bodies])
    found, after = FastParser().parse(memoryview(data), BASE, BASE, BASE + len(data), 99)
    assert [request.physical_offset for request in found] == starts
    assert after == BASE + len(data)


def test_equal_topics_are_the_same_object() -> None:
    data, _ = log_of([Entry(properties=text) for text in (b"", b"TAGS\x01t\x02", b"KEYS\x01k\x02")])
    found, _ = FastParser().parse(data, BASE, BASE, BASE + len(data), 99)
    assert len({id(request.topic) for request in found}) == 1
