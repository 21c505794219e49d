"""The checksum of a batch is that of its content: whatever a consumer would see another way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.batch_checksum import checksum_of
from server.wire.messages_in import request_in
from server.wire.put_limits import Budget
from store.message import FEW


def checksum(request: pb.PutBatchRequest, port: int = 1, chosen: int = 3) -> int:
    return checksum_of(
        request, request_in(request, ("10.0.0.1", port), lambda *_: chosen, Budget())
    )


def batch(*messages: dict[str, Any]) -> pb.PutBatchRequest:
    return pb.PutBatchRequest(messages=[pb.Message(**each) for each in messages])


FIRST: dict[str, Any] = {
    "topic": "t",
    "body": b"body",
    "queue_id": 0,
    "tag": "tag",
    "keys": ["a", "b"],
    "light_queues": ["%LMQ%a"],
    "properties": {"x": "1", "y": "2"},
    "flag": 4,
}
SECOND: dict[str, Any] = {"topic": "t", "body": b"ab"}


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "u"},
        {"body": b"bodY"},
        {"queue_id": 1},
        {"queue_id": None},
        {"tag": ""},
        {"keys": ["a"]},
        {"keys": ["a b"]},
        {"light_queues": []},
        {"properties": {"x": "1"}},
        {"properties": {"x": "1", "y": "3"}},
        {"flag": 0},
        {"queue_id": None, "ordering_key": "a"},
    ],
)
def test_other_content_has_another_checksum(change: dict[str, Any]) -> None:
    assert checksum(batch(FIRST | change, SECOND)) != checksum(batch(FIRST, SECOND))


@pytest.mark.parametrize(
    "other", [[FIRST], [SECOND, FIRST], [FIRST, SECOND, SECOND], [SECOND], [SECOND, SECOND]]
)
def test_other_messages_have_another_checksum(other: list[dict[str, Any]]) -> None:
    assert checksum(batch(*other)) != checksum(batch(FIRST, SECOND))


def test_bytes_that_move_over_from_one_body_to_the_next_count() -> None:
    one = batch({"topic": "t", "body": b"ab"}, {"topic": "t", "body": b"c"})
    other = batch({"topic": "t", "body": b"a"}, {"topic": "t", "body": b"bc"})
    assert checksum(one) != checksum(other)


def test_when_and_by_whom_a_batch_was_sent_does_not_count() -> None:
    sent = checksum(batch(FIRST, SECOND))
    assert checksum(batch(FIRST | {"born_time_ms": 77}, SECOND), port=2, chosen=0) == sent
    swapped = dict(reversed(FIRST["properties"].items()))
    assert checksum(batch(FIRST | {"properties": swapped}, SECOND)) == sent


plain = st.fixed_dictionaries(
    {"topic": st.sampled_from(["t", "u"]), "body": st.binary(max_size=4)},
    optional={
        "queue_id": st.integers(0, 2),
        "tag": st.sampled_from(["", "a"]),
        "keys": st.lists(st.sampled_from(["k", "l"]), max_size=2),
        "light_queues": st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b"]), max_size=2),
        "flag": st.integers(0, 1),
    },
)


def by_columns(messages: list[dict[str, Any]]) -> pb.PutBatchRequest:
    topics = list(dict.fromkeys(each["topic"] for each in messages))
    columns = pb.MessageColumns(
        topics=topics,
        topic_indexes=[topics.index(each["topic"]) for each in messages],
        queue_ids=[each.get("queue_id", -1) for each in messages],
        bodies=[each["body"] for each in messages],
        tags=[each.get("tag", "") for each in messages],
        keys=[" ".join(each.get("keys", ())) for each in messages],
        light_queues=[",".join(each.get("light_queues", ())) for each in messages],
        flags=[each.get("flag", 0) for each in messages],
    )
    return pb.PutBatchRequest(columns=columns)


@given(one=st.lists(plain, min_size=1, max_size=4), other=st.lists(plain, min_size=1, max_size=4))
def test_both_forms_of_a_request_have_the_same_checksum(
    one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> None:
    assert checksum(batch(*one)) == checksum(by_columns(one))
    same = by_columns(one) == by_columns(other)
    assert (checksum(batch(*one)) == checksum(batch(*other))) == same


@given(
    st.lists(
        st.tuples(
            st.sampled_from("tu"),
            st.binary(max_size=4),
            st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b"]), max_size=2),
        ),
        min_size=FEW,
        max_size=FEW + 8,
    )
)
def test_plain_messages_have_one_checksum_whatever_their_form(
    sent: list[tuple[str, bytes, list[str]]],
) -> None:
    whole = [{"topic": topic, "body": body, "light_queues": names} for topic, body, names in sent]
    columns = pb.MessageColumns(
        topics="tu",
        topic_indexes=["tu".index(topic) for topic, *_ in sent],
        bodies=[body for _, body, _ in sent],
        light_queues=[",".join(names) for *_, names in sent],
    )
    assert checksum(batch(*whole)) == checksum(pb.PutBatchRequest(columns=columns))


def test_ordering_keys_count_in_either_form() -> None:
    def columns(*keys: str) -> pb.PutBatchRequest:
        bodies = [b"%d" % at for at in range(len(keys))]
        return pb.PutBatchRequest(
            columns=pb.MessageColumns(topics=["t"], bodies=bodies, ordering_keys=keys)
        )

    def messages(*keys: str) -> pb.PutBatchRequest:
        return batch(
            *(
                {"topic": "t", "body": b"%d" % at, "ordering_key": key}
                for at, key in enumerate(keys)
            )
        )

    assert checksum(columns("a", "", "b")) == checksum(messages("a", "", "b"))
    assert checksum(columns("a", "", "b")) != checksum(columns("a", "", "c"))
    assert checksum(columns("a", "a")) == checksum(messages("a", "a"))
    assert checksum(columns("", "")) == checksum(messages("", ""))
