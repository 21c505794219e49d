"""server/wire/batch_topics.py: whose messages a batch has."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.batch_topics import SAMPLE, topics_of


def _messages(topics: list[str]) -> pb.PutBatchRequest:
    return pb.PutBatchRequest(messages=[pb.Message(topic=topic) for topic in topics])


def _columns(topics: list[str]) -> pb.PutBatchRequest:
    names = sorted(set(topics))
    columns = pb.MessageColumns(bodies=[b"x"] * len(topics), topics=names)
    columns.topic_indexes.extend(map(names.index, topics))
    return pb.PutBatchRequest(columns=columns)


@pytest.mark.parametrize("form", [_messages, _columns])
@pytest.mark.parametrize("topics", [["a"], ["a", "b"] * (SAMPLE // 2), ["a", "b", "b", "c"]])
def test_a_small_batch_is_counted_exactly(form: object, topics: list[str]) -> None:
    assert callable(form)
    assert topics_of(form(topics)) == Counter(topics)


def test_columns_of_one_topic_are_counted_exactly_however_many_they_are() -> None:
    columns = pb.MessageColumns(bodies=[b"x"] * 5000, topics=["a"])
    assert topics_of(pb.PutBatchRequest(columns=columns)) == {"a": 5000}


@pytest.mark.parametrize("form", [_messages, _columns])
def test_a_large_batch_of_several_topics_is_sampled_and_none_is_left_over(form: object) -> None:
    assert callable(form)
    topics = (["a"] * 3 + ["b"]) * 251 + ["c"]
    found = topics_of(form(topics))
    assert sum(found.values()) == len(topics)
    assert found["a"] > found["b"] > 0
