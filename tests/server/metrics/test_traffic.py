"""server/metrics/traffic.py: rows of the busiest topics, and one of the others."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from server.metrics.traffic import OTHERS, RANK_S, GroupTraffic, TopicTraffic, Traffic


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def _later(now: Now, rows: TopicTraffic) -> dict[str, Traffic]:
    now.seconds += RANK_S
    return rows.read()


def test_messages_and_bytes_are_counted_both_ways() -> None:
    rows = TopicTraffic(2)
    rows.put("a", 3, 300)
    rows.pulled("a", 2, 210)
    rows.put("a", 1, 50)
    assert rows.read() == {"a": Traffic(4, 350, 2, 210), OTHERS: Traffic(0, 0, 0, 0)}


def test_light_queues_are_one_row() -> None:
    rows = TopicTraffic(5)
    for number in range(10):
        rows.pulled(f"%LMQ%{number}", 1, 10)
    assert rows.read()["%LMQ%"] == Traffic(0, 0, 10, 100)
    assert len(rows.read()) == 2


def test_a_busier_topic_takes_the_row_of_a_quiet_one_and_starts_at_nothing() -> None:
    now = Now()
    rows = TopicTraffic(1, now)
    rows.put("quiet", 1, 100)
    rows.put("busy", 9, 900)
    assert rows.read() == {"quiet": Traffic(1, 100, 0, 0), OTHERS: Traffic(9, 900, 0, 0)}
    assert _later(now, rows) == {"busy": Traffic(0, 0, 0, 0), OTHERS: Traffic(9, 900, 0, 0)}
    rows.put("busy", 1, 100)
    rows.put("quiet", 1, 100)
    assert rows.read() == {"busy": Traffic(1, 100, 0, 0), OTHERS: Traffic(10, 1000, 0, 0)}


def test_a_topic_keeps_its_row_unless_another_has_twice_its_traffic() -> None:
    now = Now()
    rows = TopicTraffic(1, now)
    rows.put("first", 1, 100)
    rows.put("other", 1, 199)
    assert "first" in _later(now, rows)
    rows.put("other", 1, 199)
    assert "other" in _later(now, rows)


def test_an_idle_topic_loses_its_row_in_time() -> None:
    now = Now()
    rows = TopicTraffic(3, now)
    rows.put("once", 1, 100)
    for _ in range(20):
        _later(now, rows)
    assert list(rows.read()) == [OTHERS]


def test_without_rows_everything_is_of_the_others() -> None:
    rows = TopicTraffic(0)
    rows.put("a", 1, 10)
    assert rows.read() == {OTHERS: Traffic(1, 10, 0, 0)}


def test_memory_is_bounded_and_a_late_topic_still_gets_a_row() -> None:
    now = Now()
    rows = TopicTraffic(2, now, candidates=10)
    for number in range(1000):
        rows.put(f"t{number}", 1, 10)
    assert len(rows._rows._shares) == 12
    rows.put("late", 1, 10_000)  # there is no room to remember it
    _later(now, rows)
    rows.put("late", 1, 10_000)
    assert "late" in _later(now, rows)
    assert len(rows._rows._shares) <= 12


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9)), max_size=9),
    st.integers(0, 3),
)
def test_topics_of_a_batch_count_as_each_by_itself(
    batches: list[dict[str, int]], most: int
) -> None:
    together, apart = (TopicTraffic(most, Now(), candidates=2) for _ in range(2))
    for topics in batches:
        together.put_all(topics, 10.5)
        for topic, messages in topics.items():
            apart.put(topic, messages, int(messages * 10.5))
    assert together.read() == apart.read()
    assert together._rows._shares == apart._rows._shares


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 1000), st.booleans()), max_size=60
    ),
    st.integers(0, 4),
)
def test_no_row_ever_falls_and_each_message_is_in_one(
    puts: list[tuple[str, int, bool]], most: int
) -> None:
    now = Now()
    rows = TopicTraffic(most, now)
    before = rows.read()
    gone: Counter[str] = Counter()
    for topic, size, rank in puts:
        rows.put(topic, 1, size)
        after = _later(now, rows) if rank else rows.read()
        for name, row in before.items():
            if name in after and gone[name] == 0:
                assert after[name].bytes_in >= row.bytes_in
        gone = Counter(name for name in before if name not in after)
        assert len(after) <= most + 1
        before = after
    assert before[OTHERS].messages_in <= len(puts)
    if not any(rank for _, _, rank in puts):
        assert sum(row.messages_in for row in before.values()) == len(puts)
        assert sum(row.bytes_in for row in before.values()) == sum(size for _, size, _ in puts)


def test_deliveries_of_groups_are_counted_apart_as_far_as_there_are_rows() -> None:
    groups = GroupTraffic(1)
    groups.delivered("a", 5, 2)
    groups.acknowledged("a", 3)
    groups.given_back("a", 1)
    groups.delivered("b", 7, 0)
    assert groups.read() == {"a": (5, 2, 3, 1), OTHERS: (7, 0, 0, 0)}
