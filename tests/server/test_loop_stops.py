"""No call holds the event loop for more than 20 ms of processor time, at its limits and above them.

Each call of the table is made against a real server over real gRPC; a refusal is an answer too.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import lite_topics_pb2 as lite_pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from kvcq_client.pb.v1 import timers_pb2 as timers_pb
from kvcq_client.pb.v1 import transactions_pb2 as transactions_pb
from server.edge.request_fields import MAX_CALLS, MAX_SUBSCRIBED, MAX_TOPICS
from server.wire.fields import MAX_ACKNOWLEDGED, MAX_QUEUES
from server.wire.put_limits import INLINE_PARTS, MAX_MESSAGES, MAX_PARTS
from store.format.limits import MAX_KEYS
from store.groups import MOST_HANDLES, MOST_RECEIVED
from store.held import MOST_TIMERS
from store.lite import MOST_SYNCED
from store.reads.filters import MAX_FILTER_CHARACTERS
from tests.support.loop_stops import LONGEST_STOP_S, watched_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from google.protobuf.message import Message

    from tests.support.loop_stops import Watched

REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)

PROPERTIES = 2500
LIGHT_QUEUES = 1800


class Call(NamedTuple):
    """A call that is legal, or is refused for its size."""

    name: str
    make: Callable[[Watched], object]


def _batch(count: int, **fields: Any) -> pb.PutBatchRequest:  # noqa: ANN401
    fields = {"topic": "t", "queue_id": 0, "body": b"x", **fields}
    return pb.PutBatchRequest(messages=[pb.Message(**fields)] * count)


def _light(count: int) -> list[str]:
    return [f"%LMQ%{number}" for number in range(count)]


def _properties(count: int) -> dict[str, str]:
    return {f"p{number}": "v" for number in range(count)}


def _keys(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


def _columns(count: int, body: bytes = b"x", **fields: Any) -> pb.PutBatchRequest:  # noqa: ANN401
    columns = pb.MessageColumns(
        topics=["t"], queue_ids=[0] * count, bodies=[body] * count, **fields
    )
    return pb.PutBatchRequest(columns=columns)


def _puts() -> Iterator[tuple[str, pb.PutBatchRequest]]:
    light = MAX_PARTS // LIGHT_QUEUES
    yield "light queues at the limit", _batch(light, light_queues=_light(LIGHT_QUEUES))
    yield "light queues above it", _batch(2 * light, light_queues=_light(LIGHT_QUEUES))
    yield (
        "properties at the limit",
        _batch(MAX_PARTS // PROPERTIES, properties=_properties(PROPERTIES)),
    )
    yield "properties far above it", _batch(1500, properties=_properties(PROPERTIES))
    yield "many keys", _batch(MAX_PARTS // 50, keys=_keys(50))
    yield "too many keys", _batch(MAX_MESSAGES, keys=_keys(50))
    yield "parts that the loop takes", _batch(100, light_queues=_light(5))
    yield "messages that the loop takes", _batch(1000, body=bytes(200))
    yield "all messages", _batch(MAX_MESSAGES)
    yield "all messages by columns", _columns(MAX_MESSAGES, keys=["a b c"] * MAX_MESSAGES)
    yield "empty messages above it", _batch(160_000, topic="", body=b"", queue_id=None)
    yield (
        "many topics",
        pb.PutBatchRequest(
            messages=[pb.Message(topic=f"new-{number}", body=b"x") for number in range(1000)]
        ),
    )
    yield (
        "long tags",
        pb.PutBatchRequest(
            messages=[
                pb.Message(topic="t", queue_id=0, tag=f"{number}" + "x" * 300)
                for number in range(1000)
            ]
        ),
    )
    yield (
        "numbered",
        pb.PutBatchRequest(
            messages=_batch(MAX_MESSAGES).messages, producer=pb.ProducerSequence(producer_id="p")
        ),
    )
    yield "15 MiB of bodies", _columns(15 << 8, bytes(4096))
    yield "60 MiB of bodies", _columns(60 << 8, bytes(4096))


def _unary(name: str, method: str, request: Message) -> Call:
    """One call of `service.Method`."""
    service, _, rpc = method.partition(".")
    return Call(name, lambda server: getattr(getattr(server, service), rpc)(request))


def _stream(name: str, rpc: str, request: Message) -> Call:
    """A stream with one request, whose responses are read to their end."""
    return Call(name, lambda server: [*getattr(server.messages, rpc)(iter([request]))])


def _calls() -> Iterator[Call]:
    puts = dict(_puts())
    for name, request in puts.items():
        yield _unary(f"PutBatch: {name}", "messages.PutBatch", request)
    name = "all messages"
    yield _stream(f"PutStream: {name}", "PutStream", pb.PutStreamRequest(batch=puts[name]))
    one_message: dict[str, dict[str, Any]] = {
        "light queues": {"light_queues": _light(2600)},
        "keys": {"keys": _keys(MAX_KEYS)},
        "properties": {"properties": _properties(PROPERTIES)},
        "a body of 4 MiB": {"body": bytes(4 << 20)},
    }
    for name, fields in one_message.items():
        message = pb.Message(topic="t", queue_id=0, **fields)
        yield _unary(f"Put: {name}", "messages.Put", pb.PutRequest(message=message))
    yield from _shared()
    yield from _subscriptions()
    yield from _reads()
    yield from _lists()
    yield from _shared_groups()
    yield from _timers()
    yield from _transactions()
    yield from _lite_topics()


def _shared() -> Iterator[Call]:
    """Calls that share a stream, as many as one message of it may have."""
    one: dict[str, tuple[str, Message]] = {
        "puts": ("Put", pb.PutRequest(message=pb.Message(topic="t", queue_id=0, body=bytes(1024)))),
        "light queues": (
            "Put",
            pb.PutRequest(message=pb.Message(topic="t", light_queues=_light(INLINE_PARTS))),
        ),
        "pulls": ("Pull", pb.PullRequest(topic="many", max_messages=2048)),
        "properties": ("Pull", pb.PullRequest(topic="wide", max_messages=256)),
        "offsets": ("GetOffsets", pb.GetOffsetsRequest(queues=[pb.Queue(topic="t")] * 16)),
        "refused": ("Put", pb.PutRequest()),
    }
    for name, (method, request) in one.items():
        data = request.SerializeToString()
        calls = [pb.Call(id=at, method=method, request=data) for at in range(MAX_CALLS)]
        shared = pb.CallsRequest(calls=calls[: (300 << 10) // len(data) if data else MAX_CALLS])
        yield Call(
            f"Calls: {name}",
            lambda server, shared=shared: [*server.calls.Calls(iter([shared]))],  # type: ignore[misc]
        )


def _subscriptions() -> Iterator[Call]:
    for name, count in (("many queues", MAX_SUBSCRIBED), ("too many", 2 * MAX_SUBSCRIBED)):
        add = [pb.QueuePosition(topic=f"%LMQ%s{number}") for number in range(count)]
        yield _stream(f"Subscribe: {name}", "Subscribe", pb.SubscribeRequest(add=add))
    wide = pb.SubscribeRequest(
        add=[pb.QueuePosition(topic="wide")], credit_bytes=8 << 20, max_messages=256
    )
    yield _stream("Subscribe: properties", "Subscribe", wide)
    filtered = pb.SubscribeRequest(
        add=[pb.QueuePosition(topic="many")], credit_bytes=8 << 20, tag_filter=_filter()
    )
    yield _stream("Subscribe: a long filter", "Subscribe", filtered)


def _filter() -> str:
    return "||".join(map(str, range(6000)))[:MAX_FILTER_CHARACTERS]


def _reads() -> Iterator[Call]:
    whole = pb.RECORD_FORM_WHOLE
    for name, request in {
        "whole": pb.PullRequest(topic="many", max_messages=10_000, form=whole),
        "whole, in the loop": pb.PullRequest(topic="many", max_messages=2048, form=whole),
        "decoded": pb.PullRequest(topic="many", max_messages=10_000),
        "decoded, in the loop": pb.PullRequest(topic="many", max_messages=256),
        "properties": pb.PullRequest(topic="wide", max_messages=256),
        "properties and a tag": pb.PullRequest(topic="wide", max_messages=256, tag_filter="a"),
        "properties and a condition": pb.PullRequest(
            topic="wide", max_messages=256, sql_filter="a = 1 OR a > 5"
        ),
        "a long condition": pb.PullRequest(
            topic="many", max_messages=2048, sql_filter=" OR ".join(["a = 1"] * 227)
        ),
        "nothing meets the condition": pb.PullRequest(topic="many", sql_filter="a = 1"),
        "nothing has the tag": pb.PullRequest(topic="many", tag_filter="b || c"),
        "a long filter": pb.PullRequest(topic="many", tag_filter=_filter()),
        "a filter that is too long": pb.PullRequest(topic="many", tag_filter=_filter() * 2000),
    }.items():
        yield _unary(f"Pull: {name}", "messages.Pull", request)
    query = pb.QueryRequest(topic="wide", key="key", max_messages=1000)
    yield _unary("Query", "messages.Query", query)


def _lists() -> Iterator[Call]:
    topics = [pb.CreateTopicRequest(name=f"made-{number}") for number in range(MAX_TOPICS)]
    yield _unary("CreateTopics", "topics.CreateTopics", pb.CreateTopicsRequest(topics=topics))
    page = pb.ListTopicsRequest(page_size=10_000)
    yield _unary("ListTopics", "topics.ListTopics", page)
    page = pb.ListTopicsRequest(page_size=10_000, light_queues=True)
    yield _unary("ListTopics: light queues", "topics.ListTopics", page)
    positions = [pb.QueuePosition(topic="t")] * MAX_QUEUES
    queues = [pb.Queue(topic="t")] * MAX_QUEUES
    commit = pb.CommitOffsetsRequest(group="g", offsets=positions)
    yield _unary("CommitOffsets", "groups.CommitOffsets", commit)
    fetch = pb.FetchOffsetsRequest(group="g", queues=queues)
    yield _unary("FetchOffsets", "groups.FetchOffsets", fetch)
    yield _unary("GetOffsets", "messages.GetOffsets", pb.GetOffsetsRequest(queues=queues))
    echo = pb.EchoRequest(batch=_batch(MAX_MESSAGES, keys=["k"]))
    yield _unary("Echo", "messages.Echo", echo)


def _shared_groups() -> Iterator[Call]:
    whole = pb.RECORD_FORM_WHOLE
    receives: dict[str, shared_pb.ReceiveRequest] = {
        "whole": shared_pb.ReceiveRequest(
            group="s", topic="many", max_messages=MOST_RECEIVED, form=whole
        ),
        "decoded": shared_pb.ReceiveRequest(group="s", topic="many", max_messages=MOST_RECEIVED),
        "properties": shared_pb.ReceiveRequest(group="s", topic="wide", max_messages=256),
        "nothing has the tag": shared_pb.ReceiveRequest(group="t", topic="many", tag_filter="b"),
    }
    for name, receive in receives.items():
        yield _unary(f"Receive: {name}", "shared.Receive", receive)
    handles = ["A" * 500] * MOST_HANDLES
    acknowledge = shared_pb.AcknowledgeRequest(group="s", handles=handles)
    yield _unary("Acknowledge: forged handles", "shared.Acknowledge", acknowledge)
    receive = shared_pb.ReceiveRequest(
        group="s", topic="many", acknowledge=handles[:MAX_ACKNOWLEDGED]
    )
    yield _unary("Receive: forged handles", "shared.Receive", receive)
    acknowledge = shared_pb.AcknowledgeRequest(group="s", handles=handles * 2)
    yield _unary("Acknowledge: too many handles", "shared.Acknowledge", acknowledge)
    describe = shared_pb.DescribeGroupRequest(group="s", page_size=10_000)
    yield _unary("DescribeGroup", "shared.DescribeGroup", describe)
    letters = shared_pb.ListDeadLettersRequest(group="s", page_size=1000)
    yield _unary("ListDeadLetters", "shared.ListDeadLetters", letters)

    def settled(server: Watched) -> None:
        request = shared_pb.ReceiveRequest(group="u", topic="many", max_messages=MOST_RECEIVED)
        handles = server.shared.Receive(request).handles
        for change in (
            lambda: shared_pb.ChangeInvisibleTimeRequest(
                group="u", handles=handles, invisible_ms=1000
            ),
            lambda: shared_pb.ReceiveRequest(
                group="u",
                topic="many",
                max_messages=MOST_RECEIVED,
                form=whole,
                acknowledge=handles[:MAX_ACKNOWLEDGED],
            ),
            lambda: shared_pb.AcknowledgeRequest(group="u", handles=handles),
        ):
            made = change()
            rpc = type(made).__name__.removesuffix("Request")
            getattr(server.shared, rpc)(made)

    yield Call("all that was received is renewed, and acknowledged", settled)


def _delayed(count: int, **fields: Any) -> timers_pb.PutDelayedRequest:  # noqa: ANN401
    fields = {"topic": "t", "queue_id": 0, "body": b"x", **fields}
    message = timers_pb.DelayedMessage(message=pb.Message(**fields), delay_ms=86_400_000)
    return timers_pb.PutDelayedRequest(messages=[message] * count)


def _timers() -> Iterator[Call]:
    for name, request in {
        "at the limit": _delayed(MOST_TIMERS, body=bytes(1024)),
        "above it": _delayed(100 * MOST_TIMERS),
        "properties": _delayed(MAX_PARTS // PROPERTIES, properties=_properties(PROPERTIES)),
        "light queues": _delayed(MAX_PARTS // LIGHT_QUEUES, light_queues=_light(LIGHT_QUEUES)),
    }.items():
        yield _unary(f"PutDelayed: {name}", "timers.PutDelayed", request)
    for count in (MOST_TIMERS, 100 * MOST_TIMERS):
        recall = timers_pb.RecallRequest(topic="t", handles=["A" * 80] * count)
        yield _unary(f"Recall: {count} forged handles", "timers.Recall", recall)
    listed = timers_pb.ListDelayedRequest(page_size=1000)
    yield _unary("ListDelayed", "timers.ListDelayed", listed)

    def recalled(server: Watched) -> None:
        handles = server.timers.PutDelayed(_delayed(MOST_TIMERS)).handles
        server.timers.Recall(timers_pb.RecallRequest(topic="t", handles=handles))

    yield Call("all that was delayed is recalled", recalled)

    def due_at_once(server: Watched) -> None:
        request = _delayed(MOST_TIMERS)
        due_ms = time.time_ns() // 1_000_000 + 300
        for each in request.messages:
            each.deliver_at_ms = due_ms
        for _ in range(20):
            server.timers.PutDelayed(request)
        while server.timers.ListDelayed(listed).messages[0].deliver_at_ms <= due_ms:
            server.messages.Put(pb.PutRequest(message=pb.Message(topic="t", queue_id=0)))

    yield Call("20,000 are due at once, beside puts", due_at_once)


def _transactions() -> Iterator[Call]:
    for name, fields in {
        "a body of 3 MiB": {"body": bytes(3 << 20)},
        "properties": {"properties": _properties(PROPERTIES)},
        "light queues": {"light_queues": _light(1000)},
    }.items():
        begin = transactions_pb.BeginTransactionRequest(
            message=pb.Message(topic="t", queue_id=0, **fields),  # type: ignore[arg-type]
            group="producers",
        )

        def decided(
            server: Watched, begin: transactions_pb.BeginTransactionRequest = begin
        ) -> None:
            one = server.transactions.BeginTransaction(begin).transaction_id
            server.transactions.DecideTransaction(
                transactions_pb.DecideTransactionRequest(transaction_id=one, commit=True)
            )

        yield Call(f"a transaction is begun and committed: {name}", decided)

    def many_begin(server: Watched) -> None:
        small = transactions_pb.BeginTransactionRequest(
            message=pb.Message(topic="t", queue_id=0, body=b"x"), group="producers"
        )
        calls = [server.transactions.BeginTransaction.future(small) for _ in range(2000)]
        for call in calls:
            call.result()

    yield Call("2,000 transactions begin together", many_begin)
    listed = transactions_pb.ListTransactionsRequest(page_size=1000)
    yield _unary("ListTransactions", "transactions.ListTransactions", listed)


def _lite_topics() -> Iterator[Call]:
    make = lite_pb.CreateLiteParentRequest(topic="parent")
    yield _unary("CreateLiteParent", "lite.CreateLiteParent", make)
    for group, is_wildcard in (("by-name", False), ("wild", True)):
        settings = shared_pb.SharedGroupSettings(
            lite=shared_pb.LiteSettings(
                parent="parent",
                wildcard=is_wildcard,
                client_quota=None if is_wildcard else 100_000,
            )
        )
        made = shared_pb.CreateGroupRequest(group=group, settings=settings)
        yield _unary(f"CreateGroup: {group}", "shared.CreateGroup", made)
    # All may be put to one by one, and in 10 batches.
    names = [f"s{number}" for number in range(MOST_SYNCED)]
    for first in range(0, len(names), 2000):
        some = [f"%LMQ%$parent${name}" for name in names[first : first + 2000]]
        put = _batch(1, topic="parent", light_queues=some)
        yield _unary(f"PutBatch: lite topics from {first}", "messages.PutBatch", put)
    for name, count in (("at the limit", MOST_SYNCED), ("a million", 1_000_000)):
        sync = lite_pb.SyncLiteSubscriptionsRequest(
            group="by-name",
            client_id="c",
            action=lite_pb.LITE_ACTION_COMPLETE,
            lite_topics=[f"s{number}" for number in range(count)],
        )
        yield _unary(f"SyncLiteSubscriptions: {name}", "lite.SyncLiteSubscriptions", sync)
    wild = lite_pb.SyncLiteSubscriptionsRequest(
        group="wild", client_id="c", action=lite_pb.LITE_ACTION_COMPLETE
    )
    yield _unary("SyncLiteSubscriptions: wildcard", "lite.SyncLiteSubscriptions", wild)
    for group in ("by-name", "wild"):
        receive = shared_pb.ReceiveRequest(
            group=group, topic="parent", client_id="c", max_messages=MOST_RECEIVED
        )
        yield _unary(f"Receive: lite topics, {group}", "shared.Receive", receive)
    listed = lite_pb.ListLiteTopicsRequest(topic="parent", page_size=10_000)
    yield _unary("ListLiteTopics", "lite.ListLiteTopics", listed)
    states = lite_pb.ListLiteTopicsRequest(topic="parent", page_size=1000, with_states=True)
    yield _unary("ListLiteTopics: with states", "lite.ListLiteTopics", states)
    parents = lite_pb.ListLiteParentsRequest(page_size=100)
    yield _unary("ListLiteParents", "lite.ListLiteParents", parents)
    described = pb.DescribeTopicRequest(name="parent")
    yield _unary("DescribeTopic: a parent of lite topics", "topics.DescribeTopic", described)
    delete = lite_pb.DeleteLiteTopicsRequest(topic="parent", lite_topics=names)
    yield _unary("DeleteLiteTopics", "lite.DeleteLiteTopics", delete)


def _fill(server: Watched) -> None:
    """Some warmth: each way was gone once; and what the reads read."""
    put = server.messages.PutBatch
    put(_batch(3, light_queues=["%LMQ%w"], keys=["w"], properties={"w": "w"}, tag="w"))
    server.messages.Put(pb.PutRequest(message=pb.Message(topic="t", queue_id=0)))
    for _ in range(2):
        put(_batch(MAX_MESSAGES, topic="many", tag="a"))
    for _ in range(2):
        put(_batch(20, topic="wide", tag="a", keys=["key"], properties=_properties(PROPERTIES)))
    for form in (pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED):
        server.messages.Pull(pb.PullRequest(topic="t", form=form, tag_filter="w"))


def _answered(make: Callable[[Watched], object], server: Watched) -> None:
    try:
        make(server)
    except grpc.RpcError as error:
        if error.code() not in REFUSALS:
            raise


@pytest.mark.slow
@pytest.mark.timeout(600)  # of more than a hundred calls
async def test_no_call_holds_the_loop_for_long(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {"segment_bytes": 64 << 20}, "drain_grace_s": 60.0}
    stops_ms: dict[str, float] = {}
    async with watched_server(tmp_path / "store", **settings) as server:
        await server.longest_stop_s(lambda: _fill(server))
        for name, make in _calls():
            call = functools.partial(_answered, make, server)
            stops_ms[name] = round(await server.shortest_stop_s(call) * 1000, 1)
    print(stops_ms)  # noqa: T201 - the figures, for who runs it with -s
    broken = {name: ms for name, ms in stops_ms.items() if ms > LONGEST_STOP_S * 1000}
    if broken:
        pytest.fail(f"the loop stood still for more than 20 ms in: {broken}")
