"""Keys: RocketMQ's bytes for units and bounds, and an order that follows the fields."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcq.tables import keys
from tests.support.rows import index_key

NAMES = st.text(min_size=1, max_size=40)
#: Of messages: what begins with 02 is the mark of a numbered batch, which has no topic.
KEYS = NAMES.filter(lambda key: not key.startswith("\x02"))
IDS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)


def test_rocketmqs_vectors() -> None:
    topic = "TopicTest"
    assert keys.unit_key(topic, 3, 7).hex() == (
        "0000000901546f70696354657374010000000301" + "0000000000000007"
    )
    assert keys.max_key(topic, 3).hex() == "0000000901546f70696354657374016d61780100000003"
    assert keys.DISPATCHED_KEY.hex() == (
        "0000001001434845434b504f494e545f544f504943016d61780100000000"
    )
    assert keys.unit_key("%LMQ%dev1", 0, 5).hex() == (
        "0000000901254c4d512564657631010000000001" + "0000000000000005"
    )


@given(NAMES, IDS, OFFSETS)
def test_unit_keys_read_back(topic: str, queue_id: int, offset: int) -> None:
    key = keys.unit_key(topic, queue_id, offset)
    assert keys.unpack_unit_key(key) == (topic, queue_id, offset)
    assert keys.queue_offset_of(key) == offset
    assert len(key) == 19 + len(topic.encode())


@given(NAMES, IDS)
def test_both_ways_to_a_queues_keys_agree(topic: str, queue_id: int) -> None:
    assert keys.queue_keys(topic, queue_id) == (
        keys.unit_prefix(topic, queue_id),
        keys.max_key(topic, queue_id),
    )
    assert keys.unpack_bounds_key(keys.max_key(topic, queue_id)) == (topic, "max", queue_id)


@given(NAMES, KEYS, OFFSETS, OFFSETS)
def test_index_keys_read_back(topic: str, key: str, time_ms: int, offset: int) -> None:
    packed = index_key(topic, key, time_ms, offset)
    assert keys.unpack_index_key(packed) == (topic, key, time_ms, offset)
    assert keys.time_and_offset_of(packed) == (time_ms, offset)


@given(NAMES, NAMES, OFFSETS, OFFSETS)
def test_the_mark_of_a_batch_is_of_no_topic(
    topic: str, name: str, time_ms: int, offset: int
) -> None:
    packed = index_key(topic, f"\x02{name}", time_ms, offset)
    assert keys.unpack_index_key(packed) == ("", f"\x02{name}", time_ms, offset)


@given(NAMES, st.lists(NAMES, max_size=4), OFFSETS, OFFSETS)
def test_both_ways_to_index_keys_agree(
    topic: str, names: list[str], time_ms: int, offset: int
) -> None:
    assert keys.index_keys_of(topic, names, time_ms, offset) == [
        index_key(topic, name, time_ms, offset) for name in names
    ]


@given(st.lists(st.tuples(NAMES, IDS, OFFSETS), min_size=2, max_size=8))
def test_unit_keys_sort_by_their_fields(rows: list[tuple[str, int, int]]) -> None:
    by_key = sorted(rows, key=lambda row: keys.unit_key(*row))
    by_field = sorted(rows, key=lambda row: (len(row[0].encode()), row[0].encode(), *row[1:]))
    assert by_key == by_field


@given(NAMES, NAMES, IDS, OFFSETS, KEYS)
def test_a_topics_range_holds_its_rows_and_no_others(
    topic: str, other: str, queue_id: int, offset: int, key: str
) -> None:
    start, end = keys.topic_range(topic)

    def inside(packed: bytes) -> bool:
        return start <= packed < end

    for name in (topic, other):
        expected = name == topic
        assert inside(keys.unit_key(name, queue_id, offset)) == expected
        assert inside(keys.max_key(name, queue_id)) == expected
        assert inside(index_key(name, key, offset, offset)) == expected


@given(NAMES, NAMES)
def test_two_keys_of_one_hash_never_share_a_prefix(first: str, second: str) -> None:
    """The whole key is in the row, so rows of `Aa` and `BB` do not mix."""
    one, two = keys.index_prefix("t", first), keys.index_prefix("t", second)
    assert one.startswith(two) == (first == second)


@given(NAMES, st.integers(1, 255))
def test_a_name_range_holds_names_of_that_length_with_the_prefix(prefix: str, extra: int) -> None:
    name = prefix + "x" * extra
    start, end = keys.name_range(prefix, len(name.encode()))
    assert start <= keys.max_key(name, 0) < end
    assert not start <= keys.max_key(name + "y", 0) < end
