"""server/wire/batch_topics.py: whose messages a batch has."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.batch_topics import topics_of


def _messages(topics: list[str]) -> pb.PutBatchRequest:
    return pb.PutBatchRequest(messages=[pb.Message(topic=topic) for topic in topics])


def _columns(topics: list[str]) -> pb.PutBatchRequest:
    names = sorted(set(topics))
    columns = pb.MessageColumns(bodies=[b"x"] * len(topics), topics=names)
    columns.topic_indexes.extend(map(names.index, topics))
    return pb.PutBatchRequest(columns=columns)


@pytest.mark.parametrize("form", [_messages, _columns])
@pytest.mark.parametrize(
    "topics", [["a"], ["a", "b"] * 16, ["a", "b", "b", "c"], (["a"] * 3 + ["b"]) * 251 + ["c"]]
)
def test_every_message_is_counted(form: object, topics: list[str]) -> None:
    assert callable(form)
    assert topics_of(form(topics)) == Counter(topics)


def test_a_name_that_stands_twice_among_the_topics_is_one_topic() -> None:
    columns = pb.MessageColumns(bodies=[b"x"] * 3, topics=["a", "a"], topic_indexes=[0, 1, 1])
    assert topics_of(pb.PutBatchRequest(columns=columns)) == {"a": 3}


def test_columns_of_one_topic_have_no_indexes() -> None:
    columns = pb.MessageColumns(bodies=[b"x"] * 5000, topics=["a"])
    assert topics_of(pb.PutBatchRequest(columns=columns)) == {"a": 5000}
