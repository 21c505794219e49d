"""server/wire/messages_in.py: messages as they come, whole or in columns, within their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire import messages_in
from server.wire.put_limits import MAX_MESSAGES, Budget, TooMuchError, parts_of
from store.errors import InvalidArgumentError
from store.message import FEW, PlainMessages


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:54321", ("10.0.0.1", 54321)),
        ("ipv6:[2001:db8::1]:54321", ("2001:db8::1", 54321)),
        ("ipv6:%5B2001:db8::1%5D:54321", ("2001:db8::1", 54321)),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", ("fe80::1", 7)),
        ("unix:/run/kvcq.sock", ("127.0.0.1", 0)),
        ("unix:", ("127.0.0.1", 0)),
        ("", ("127.0.0.1", 0)),
        ("ipv4:nonsense", ("127.0.0.1", 0)),
    ],
)
def test_the_peer_is_the_born_host(peer: str, host: tuple[str, int]) -> None:
    assert messages_in.host_of_peer(peer) == host


def test_a_message_keeps_every_field() -> None:
    message = messages_in.message_in(
        pb.Message(
            topic="orders",
            queue_id=0,
            body=b"b",
            tag="t",
            keys=["k1", "k2"],
            light_queues=["%LMQ%a"],
            properties={"p": "v"},
            flag=7,
            born_time_ms=123,
        ),
        ("10.0.0.1", 5),
        lambda *_: pytest.fail("queue 0 was named"),
        Budget(max_parts=4),
    )
    assert (message.topic, message.queue_id, message.body) == ("orders", 0, b"b")
    assert (message.tag, message.keys, message.light_queues) == ("t", ("k1", "k2"), ("%LMQ%a",))
    assert (message.properties, message.flag, message.born_time_ms) == ({"p": "v"}, 7, 123)
    assert message.born_host == ("10.0.0.1", 5)


def test_a_message_without_a_queue_gets_one() -> None:
    message = messages_in.message_in(pb.Message(topic="t"), ("::1", 1), lambda *_: 3, Budget())
    assert message.queue_id == 3


@pytest.mark.parametrize("count", [0, MAX_MESSAGES + 1])
def test_a_batch_has_some_messages_but_not_too_many(count: int) -> None:
    with pytest.raises(InvalidArgumentError, match="messages"):
        messages_in.batch_in([pb.Message(queue_id=0)] * count, ("::1", 1), lambda *_: 0, Budget())


@pytest.mark.parametrize("count", [1, FEW, FEW + 8])
@pytest.mark.parametrize("tag", ["", "a"])
@pytest.mark.parametrize("born_time_ms", [0, 7])
@pytest.mark.parametrize("light", [[], ["%LMQ%a", "%LMQ%b"]])
def test_columns_are_the_messages_they_stand_for(
    count: int, tag: str, born_time_ms: int, light: list[str]
) -> None:
    whole = [
        pb.Message(
            topic="tu"[at % 2],
            body=bytes([at]),
            queue_id=None if at % 3 else at,
            tag=tag,
            born_time_ms=born_time_ms,
            light_queues=light[: at % 3],
        )
        for at in range(count)
    ]
    columns = pb.MessageColumns(
        topics="tu" if count > 1 else "t",
        topic_indexes=[at % 2 for at in range(count)],
        bodies=[each.body for each in whole],
        queue_ids=[-1 if at % 3 else at for at in range(count)],
        tags=[tag] * count if tag else (),
        born_times_ms=[born_time_ms] * count if born_time_ms else (),
        light_queues=[",".join(light[: at % 3]) for at in range(count)] if light else (),
    )
    found = [
        messages_in.request_in(request, ("::1", 1), lambda topic, _: ord(topic), Budget())
        for request in (pb.PutBatchRequest(messages=whole), pb.PutBatchRequest(columns=columns))
    ]
    assert [*found[0]] == [*found[1]]
    assert isinstance(found[1], PlainMessages) == (count >= FEW and not tag)


@pytest.mark.parametrize("ordering_keys", [(), ["k"]])
@pytest.mark.parametrize("queue_ids", [[0, 1], [-1, -1]])
def test_a_column_of_another_length_is_refused(
    queue_ids: list[int], ordering_keys: list[str]
) -> None:
    columns = pb.MessageColumns(
        topics=["t"], bodies=[b"x"], queue_ids=queue_ids, ordering_keys=ordering_keys
    )
    request = pb.PutBatchRequest(columns=columns)
    with pytest.raises(InvalidArgumentError, match="2 values for 1 messages") as refused:
        messages_in.request_in(request, ("::1", 1), lambda _topic, _key: 0, Budget())
    assert refused.value.field == "columns.queue_ids"


def _of_parts(form: str, counts: list[int]) -> pb.PutBatchRequest:
    """Messages with so many parts each, of all kinds that the form has."""
    words = [[f"w{number}" for number in range(count)] for count in counts]
    if form == "columns":
        columns = pb.MessageColumns(topics=["t"], bodies=[b""] * len(counts))
        columns.keys.extend(" ".join(each[1::2]) for each in words)
        columns.light_queues.extend(",".join(each[::2]) for each in words)
        return pb.PutBatchRequest(columns=columns)
    return pb.PutBatchRequest(
        messages=[
            pb.Message(
                topic="t",
                keys=each[::3],
                light_queues=each[1::3],
                properties=dict.fromkeys(each[2::3], "v"),
            )
            for each in words
        ]
    )


@pytest.mark.parametrize("form", ["messages", "columns"])
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=9), limit=st.integers(0, 40))
def test_a_put_is_refused_by_its_parts_over_all_messages(
    form: str, counts: list[int], limit: int
) -> None:
    request = _of_parts(form, counts)
    budget = Budget(max_parts=limit)
    if sum(counts) <= limit:
        taken = messages_in.request_in(request, ("::1", 1), lambda *_: 0, budget)
        assert [parts_of(message) for message in taken] == counts
    else:
        with pytest.raises(TooMuchError, match=f"{form}.*: more than {limit} light queues"):
            messages_in.request_in(request, ("::1", 1), lambda *_: 0, budget)
