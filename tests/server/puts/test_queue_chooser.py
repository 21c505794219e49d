"""server/puts/queue_chooser.py: messages without a queue go round the queues of their topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.puts.queue_chooser import QueueChooser, queue_of_key
from store.format import LONGEST_NAME
from store.metadata import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message_store import MessageStore


class Topics:
    """The two things of a store that the chooser asks for."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(default_queue_count=4)
        self.counts: dict[str, int] = {}
        self.asked = 0

    def describe_topics(self, names: Sequence[str]) -> list[TopicConfig | None]:
        self.asked += 1
        return [
            TopicConfig(name, self.counts[name], 0, 0) if name in self.counts else None
            for name in names
        ]


@pytest.mark.parametrize(
    ("key", "queues"),
    [("session-1", {4: 3, 8: 3, 16: 10}), ("alice", {4: 0, 8: 6, 16: 11})],
)
def test_a_key_has_the_queue_that_rocketmq_gives_a_message_group(
    key: str, queues: dict[int, int]
) -> None:
    assert {count: queue_of_key(key, count) for count in queues} == queues


@given(st.text(max_size=30), st.integers(1, 1000))
def test_with_one_queue_more_a_key_stays_or_goes_to_the_new_one(key: str, count: int) -> None:
    before, after = queue_of_key(key, count), queue_of_key(key, count + 1)
    assert 0 <= before < count
    assert after in (before, count)


def test_keys_are_spread_over_all_queues() -> None:
    found = [queue_of_key(f"user-{number}", 8) for number in range(8000)]
    assert all(700 < found.count(queue_id) < 1300 for queue_id in range(8))


def test_a_key_takes_no_turn_of_the_others() -> None:
    topics = Topics()
    topics.counts["orders"] = 4
    chooser = _chooser(topics)
    first = chooser.choose("orders", "")
    assert {chooser.choose("orders", "alice") for _ in range(5)} == {queue_of_key("alice", 4)}
    assert chooser.choose("orders", "") == (first + 1) % 4


def _chooser(topics: Topics, limit: int = 100) -> QueueChooser:
    return QueueChooser(cast("MessageStore", topics), limit)


def test_every_queue_has_its_turn() -> None:
    topics = Topics()
    topics.counts["orders"] = 3
    chooser = _chooser(topics)
    chosen = [chooser.choose("orders", "") for _ in range(9)]
    assert sorted(chosen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chosen[:3] == chosen[3:6]
    assert topics.asked == 1


def test_a_topic_that_is_not_there_yet_has_the_default_count() -> None:
    chooser = _chooser(Topics())
    assert sorted(chooser.choose("new", "") for _ in range(4)) == [0, 1, 2, 3]


def test_a_topic_made_again_is_asked_for_again() -> None:
    topics = Topics()
    topics.counts["orders"] = 8
    chooser = _chooser(topics)
    chooser.choose("orders", "")
    topics.counts["orders"] = 1
    chooser.forget("orders")
    assert [chooser.choose("orders", "") for _ in range(3)] == [0, 0, 0]


def test_memory_is_bounded() -> None:
    chooser = _chooser(Topics(), limit=10)
    for number in range(100):
        chooser.choose(f"topic-{number}", "")
    assert len(chooser._turns) == 10


def test_what_can_be_no_name_is_not_kept() -> None:
    chooser = _chooser(Topics())
    assert chooser.choose("t" * 256, "") in range(4)
    assert not chooser._turns
    chooser.choose("t" * 255, "")
    assert chooser._turns


def test_topics_of_a_batch_are_looked_up_together() -> None:
    topics = Topics()
    names = [f"orders-{number}" for number in range(100)]
    topics.counts = dict.fromkeys(names[:50], 7)
    chooser, longest = _chooser(topics), "x" * (LONGEST_NAME + 1)
    chooser.choose(names[0], "")
    chooser.look_up([*names, longest])
    assert topics.asked == 2
    found = {name: {chooser.choose(name, "") for _ in range(20)} for name in names}
    assert topics.asked == 2
    assert [len(found[name]) for name in names] == [7] * 50 + [4] * 50
    chooser.choose(longest, "")
    assert topics.asked == 3, "a text that names nothing is not kept"


def test_looking_up_remembers_no_more_topics_than_the_limit() -> None:
    topics = Topics()
    chooser = _chooser(topics, 10)
    chooser.look_up([f"orders-{number}" for number in range(100)])
    for number in range(90, 100):
        chooser.choose(f"orders-{number}", "")
    assert topics.asked == 1
    chooser.choose("orders-0", "")
    assert topics.asked == 2


def test_a_topic_that_does_not_exist_yet_follows_a_changed_default() -> None:
    topics = Topics()
    chooser = _chooser(topics)
    assert {chooser.choose("orders", "") for _ in range(8)} == {0, 1, 2, 3}
    topics.config.default_queue_count = 2
    assert {chooser.choose("orders", "") for _ in range(8)} == {0, 1}
    topics.counts["orders"] = 2
    topics.config.default_queue_count = 4
    assert {chooser.choose("orders", "") for _ in range(8)} == {0, 1}
    assert topics.asked == 3
