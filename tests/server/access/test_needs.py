"""server/access/needs.py over real gRPC: no method can be forgotten, and none is a way around."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass

from kvcq_client import Credentials
from kvcq_client.pb.v1 import access_pb2 as access
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.pb.v1 import shared_groups_pb2 as shared
from kvcq_client.pb.v1 import timers_pb2 as timers
from kvcq_client.pb.v1 import transactions_pb2 as transactions
from kvcq_client.transport import STREAM_OVER, connected, write_request
from kvcq_client.transport.secured import Signer
from server.access import NEEDS, is_laborious_batch
from server.app.service_table import SERVED
from server.rocketmq.pb import messaging_pb2 as rmq
from server.rocketmq.pb import values_pb2 as v2
from store.held.transaction_ids import pack_transaction_id
from tests.support.rocketmq import SERVICE, code_in
from tests.support.rpc_errors import error_info
from tests.support.users import ADMIN, guarded, right, secret_of, users_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from tests.support.serving import Served

EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
METHODS: list[MethodDescriptor] = [
    method for service in SERVED.values() for method in service.methods
]
_TOPIC = pb.Message(topic="T", queue_id=0, body=b"x")
_QUEUE = pb.Queue(topic="T")
_T, _G = v2.Resource(name="T"), v2.Resource(name="g")
_Q = v2.MessageQueue(topic=_T)

#: What any user may do, with what it sends; nothing of it shows or changes what is others'.
ANY_USER: dict[str, Message] = {
    "Echo": pb.EchoRequest(),
    "GetStatistics": pb.GetStatisticsRequest(),
    "GetProducer": pb.GetProducerRequest(producer_id="p"),
    "WhoAmI": access.WhoAmIRequest(),
    # Of RocketMQ's clients: about a client of the user's own.
    "Heartbeat": rmq.HeartbeatRequest(),
    "NotifyClientTermination": rmq.NotifyClientTerminationRequest(),
}
#: Opened by any user; what is on them is refused piece by piece.
STREAMS = {
    "WatchTransactions",
    "PutStream",
    "Subscribe",
    "Calls",
    "ServerReflectionInfo",
    "Telemetry",
}
#: What is found by a number shows its topic first.
BY_NUMBER = {"Get", "GetBatch", "Trace"}
OPEN = {"Check", "List", "Watch"}
#: Requests that name something, so that it is the right that is missing and nothing else.
REQUESTS: dict[str, Message] = {
    "Put": pb.PutRequest(message=_TOPIC),
    "PutBatch": pb.PutBatchRequest(messages=[_TOPIC]),
    "Pull": pb.PullRequest(topic="T"),
    "Query": pb.QueryRequest(topic="T", key="k"),
    "GetOffsets": pb.GetOffsetsRequest(queues=[_QUEUE]),
    "SearchTime": pb.SearchTimeRequest(topic="T"),
    "CreateTopics": pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="N")]),
    "UpdateTopic": pb.UpdateTopicRequest(name="T"),
    "DeleteTopic": pb.DeleteTopicRequest(name="T"),
    "DescribeTopic": pb.DescribeTopicRequest(name="T"),
    "CommitOffsets": pb.CommitOffsetsRequest(group="g", offsets=[pb.QueuePosition(topic="T")]),
    "FetchOffsets": pb.FetchOffsetsRequest(group="g", queues=[_QUEUE]),
    "ResetOffsets": pb.ResetOffsetsRequest(group="g", topic="T", earliest=True),
    "ListGroupOffsets": pb.ListGroupOffsetsRequest(group="g"),
    "DeleteGroup": pb.DeleteGroupRequest(group="g"),
    "Receive": shared.ReceiveRequest(group="g", topic="T"),
    "Acknowledge": shared.AcknowledgeRequest(group="g", handles=["h"]),
    "ChangeInvisibleTime": shared.ChangeInvisibleTimeRequest(group="g", handles=["h"]),
    "GiveBack": shared.GiveBackRequest(group="g", handles=["h"]),
    "CreateGroup": shared.CreateGroupRequest(group="g"),
    "UpdateGroup": shared.UpdateGroupRequest(group="g"),
    "DescribeGroup": shared.DescribeGroupRequest(group="g"),
    "ResetGroup": shared.ResetGroupRequest(group="g", topic="T", earliest=True),
    "Redrive": shared.RedriveRequest(group="g"),
    "ListDeadLetters": shared.ListDeadLettersRequest(group="g"),
    "DeleteDeadLetters": shared.DeleteDeadLettersRequest(group="g"),
    "PutDelayed": timers.PutDelayedRequest(messages=[timers.DelayedMessage(message=_TOPIC)]),
    "Recall": timers.RecallRequest(topic="T", handles=["h"]),
    "ListDelayed": timers.ListDelayedRequest(topic="T"),
    "BeginTransaction": transactions.BeginTransactionRequest(message=_TOPIC, group="g"),
    "DecideTransaction": transactions.DecideTransactionRequest(
        transaction_id=pack_transaction_id(0, 1, "T")
    ),
    "QueryRoute": rmq.QueryRouteRequest(topic=_T),
    "QueryAssignment": rmq.QueryAssignmentRequest(topic=_T, group=_G),
    "SendMessage": rmq.SendMessageRequest(messages=[v2.Message(topic=_T)]),
    "ReceiveMessage": rmq.ReceiveMessageRequest(group=_G, message_queue=_Q),
    "AckMessage": rmq.AckMessageRequest(topic=_T, group=_G),
    "ChangeInvisibleDuration": rmq.ChangeInvisibleDurationRequest(topic=_T, group=_G),
    "ForwardMessageToDeadLetterQueue": rmq.ForwardMessageToDeadLetterQueueRequest(
        topic=_T, group=_G
    ),
    "EndTransaction": rmq.EndTransactionRequest(topic=_T),
    "RecallMessage": rmq.RecallMessageRequest(topic=_T),
    "SyncLiteSubscription": rmq.SyncLiteSubscriptionRequest(topic=_T, group=_G),
    "PullMessage": rmq.PullMessageRequest(group=_G, message_queue=_Q),
    "UpdateOffset": rmq.UpdateOffsetRequest(group=_G, message_queue=_Q),
    "GetOffset": rmq.GetOffsetRequest(group=_G, message_queue=_Q),
    "QueryOffset": rmq.QueryOffsetRequest(message_queue=_Q),
    "RotateSecret": access.RotateSecretRequest(user="ops"),
    "GetUser": access.GetUserRequest(user="ops"),
}


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Besides the administrator: `nobody` without rights, `other` with all on what is not asked,
    and `writer`, who may not read what it puts."""
    rights = {
        "nobody": [],
        "other": ["admin topic X*", "admin group X*"],
        "writer": ["publish topic T", "publish topic X*"],
    }
    async with guarded(tmp_path / "store", rights) as running:
        yield running


def headers(name: str) -> Any:  # noqa: ANN401 - as grpc takes them
    secret = ADMIN.secret if name == ADMIN.access_key else secret_of(name)
    return Signer(Credentials(name, secret)).headers()


def request_of(method: MethodDescriptor) -> Message:
    made: Message = REQUESTS.get(method.name, GetMessageClass(method.input_type)())
    return made


async def call(
    served: Served, method: MethodDescriptor, request: Message, metadata: object
) -> grpc.StatusCode:
    """How the call ends; one that is let in is cancelled."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if not (method.client_streaming or method.server_streaming):
        alone: Any = served.channel.unary_unary(path, None, None)
        try:
            answer = await alone(request.SerializeToString(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return code_in(answer) if path.startswith(f"/{SERVICE}/") else grpc.StatusCode.OK
    stream: Any = served.channel.stream_stream(path, None, None)
    under_way = stream(metadata=metadata)
    try:
        with suppress(*STREAM_OVER):  # refused before it came
            await connected(under_way)
            await write_request(under_way, request.SerializeToString())
            await under_way.done_writing()
        while (answer := await under_way.read()) is not EOF:
            if path.startswith(f"/{SERVICE}/"):
                return code_in(answer)
            if method.name == "Watch":
                return grpc.StatusCode.OK
        found: grpc.StatusCode = await under_way.code()
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        under_way.cancel()
    return found


def test_each_method_has_a_row_and_each_row_a_method() -> None:
    names = {f"{method.containing_service.full_name}/{method.name}" for method in METHODS}
    assert names == set(NEEDS)


async def test_nobody_is_served_without_a_signature(served: Served) -> None:
    for method in METHODS:
        code = await call(served, method, request_of(method), ())
        if method.name in OPEN:
            assert code in (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND), method.name
        else:
            assert code is grpc.StatusCode.UNAUTHENTICATED, method.name


async def test_a_user_without_the_right_is_refused_by_every_method(served: Served) -> None:
    free = {*ANY_USER, *STREAMS, *BY_NUMBER, *OPEN}
    for user in ("nobody", "other"):
        for method in METHODS:
            if method.name not in free:
                code = await call(served, method, request_of(method), headers(user))
                assert code is grpc.StatusCode.PERMISSION_DENIED, (user, method.name)
    assert await served.admin.GetStatistics(pb.GetStatisticsRequest(), metadata=headers("ops"))
    topics = await served.topics.ListTopics(pb.ListTopicsRequest(), metadata=headers("ops"))
    assert not topics.topics, "nothing was made on the way"


async def test_what_any_user_may_do(served: Served) -> None:
    for method in METHODS:
        if method.name in ANY_USER:
            code = await call(served, method, ANY_USER[method.name], headers("nobody"))
            assert code is grpc.StatusCode.OK, method.name


async def test_an_administrator_gets_to_every_method(served: Served) -> None:
    """What then refuses the request, which is empty as a rule, is the method."""
    for method in METHODS:
        code = await call(served, method, GetMessageClass(method.input_type)(), headers("ops"))
        assert code not in (
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.INTERNAL,
        ), method.name


async def test_a_shared_stream_is_no_way_around(served: Served) -> None:
    """Every method that can be named on it, by a user without rights."""
    stub: Any = kvcq_pb2_grpc.CallServiceStub(served.channel)
    shared = [method for method in METHODS if method.name in served.server._edge.shared]
    assert len(shared) > 30
    stream = stub.Calls(metadata=headers("nobody"))
    refused: dict[str, int] = {}
    for method in shared:
        if method.name in {*ANY_USER, *BY_NUMBER, *OPEN}:
            continue
        wanted = pb.Call(id=1, method=method.name, request=request_of(method).SerializeToString())
        await stream.write(pb.CallsRequest(calls=[wanted]))
        answer = await stream.read()
        refused[method.name] = answer.results[0].error.code
    stream.cancel()
    denied = grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert set(refused.values()) == {denied}, refused


async def test_a_put_stream_refuses_batch_by_batch(served: Served) -> None:
    stream: Any = served.messages.PutStream(metadata=headers("other"))
    light = pb.MessageColumns(topics=["X1"], bodies=[b"x"], light_queues=["X2,%LMQ%theirs"])
    batches = {
        1: pb.PutBatchRequest(messages=[pb.Message(topic="X1", body=b"x")]),
        2: pb.PutBatchRequest(messages=[_TOPIC]),
        3: pb.PutBatchRequest(columns=pb.MessageColumns(topics=["T", "X1"], bodies=[b"x"])),
        4: pb.PutBatchRequest(columns=light),
        5: pb.PutBatchRequest(columns=pb.MessageColumns(topics=["X1"], bodies=[b"x"])),
    }
    codes = {}
    for number, batch in batches.items():
        await stream.write(pb.PutStreamRequest(request_id=number, batch=batch))
        answer = await stream.read()
        codes[answer.request_id] = answer.error.code
    stream.cancel()
    assert codes == {1: 0, 2: 7, 3: 7, 4: 7, 5: 0}


async def test_a_batch_of_very_many_names_is_looked_through_to_its_end(served: Served) -> None:
    """In a thread: it holds nobody up."""
    own = [pb.Message(topic="X1", queue_id=0, body=b"x")]
    batches = {
        "own": pb.PutBatchRequest(messages=own * 5000),
        "foreign": pb.PutBatchRequest(messages=own * 5000 + [_TOPIC]),
        "foreign column": pb.PutBatchRequest(
            columns=pb.MessageColumns(
                topics=["X1"],
                bodies=[b"x"] * 5000,
                light_queues=[""] * 4999 + ["%LMQ%theirs"],
            )
        ),
    }
    batches["foreign light queue"] = pb.PutBatchRequest(
        messages=[
            pb.Message(topic="X1", body=b"x", light_queues=[f"X{at}-{part}" for part in range(50)])
            for at in range(99)
        ]
        + [pb.Message(topic="X1", body=b"x", light_queues=["%LMQ%theirs"])]
    )
    batches["foreign light queue in a column"] = pb.PutBatchRequest(
        columns=pb.MessageColumns(
            topics=["X1"], bodies=[b"x"], light_queues=[",".join(["X"] * 20_000 + ["Y"])]
        )
    )
    stream: Any = served.messages.PutStream(metadata=headers("other"))
    bound: Any = SimpleNamespace(is_unbound=lambda role, kind: False)
    unbound: Any = SimpleNamespace(is_unbound=lambda role, kind: True)
    for case, batch in batches.items():
        assert is_laborious_batch(bound, batch)
        assert not is_laborious_batch(unbound, batch)
        wanted = grpc.StatusCode.OK if case == "own" else grpc.StatusCode.PERMISSION_DENIED
        [method] = [method for method in METHODS if method.name == "PutBatch"]
        assert await call(served, method, batch, headers("other")) is wanted, case
        await stream.write(pb.PutStreamRequest(request_id=1, batch=batch))
        assert (await stream.read()).error.code == wanted.value[0], case
    stream.cancel()


async def test_a_subscription_refuses_queue_by_queue(served: Served) -> None:
    put = pb.PutBatchRequest(messages=[_TOPIC, pb.Message(topic="X1", queue_id=0, body=b"theirs")])
    await served.messages.PutBatch(put, metadata=headers("ops"))
    stream: Any = served.messages.Subscribe(metadata=headers("other"))
    queues = [pb.QueuePosition(topic=topic, queue_id=0, offset=0) for topic in ("T", "X1")]
    await stream.write(pb.SubscribeRequest(add=queues, credit_bytes=1 << 20))
    seen: dict[str, pb.QueueBatch] = {}
    while len(seen) < 2:
        for queue in (await stream.read()).queues:
            seen[queue.topic] = queue
    stream.cancel()
    assert seen["T"].error.reason == "PERMISSION_DENIED"
    assert not seen["T"].batch.messages
    assert seen["X1"].batch.messages[0].body == b"theirs"


async def test_what_is_found_by_a_number_shows_its_topic_first(served: Served) -> None:
    batch = pb.PutBatchRequest(
        messages=[pb.Message(topic="X1", queue_id=0, body=b"a"), _TOPIC],
        producer=pb.ProducerSequence(producer_id="p", sequence=0),
    )
    for user in ("ops", "writer"):
        await served.messages.PutBatch(batch, metadata=headers(user))
    put = await served.messages.Put(pb.PutRequest(message=_TOPIC), metadata=headers("ops"))
    get = pb.GetRequest(message_id=put.placed.message_id)
    get_batch = pb.GetBatchRequest(producer=batch.producer)
    denied, unknown = "PERMISSION_DENIED", "MESSAGE_NOT_FOUND"
    asked: list[tuple[Any, Message, dict[str, str]]] = [
        (served.messages.Get, get, {"nobody": denied, "other": denied, "writer": denied}),
        # A producer id is its user's own.
        (served.messages.GetBatch, get_batch, {"nobody": unknown, "writer": denied}),
    ]
    for method, request, refusals in asked:
        await method(request, metadata=headers("ops"))
        for user, reason in refusals.items():
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(request, metadata=headers(user))
            assert error_info(refused.value).reason == reason, user
            assert "'T'" not in (refused.value.details() or ""), "it tells the topic"


async def test_topics_are_listed_as_far_as_rights_go(served: Served) -> None:
    names = [pb.CreateTopicRequest(name=name, queue_count=1) for name in ("T", "X1", "X2")]
    await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=names), metadata=headers("ops"))
    found = await served.topics.ListTopics(
        pb.ListTopicsRequest(prefix="X"), metadata=headers("other")
    )
    assert [topic.name for topic in found.topics] == ["X1", "X2"]


async def test_light_queues_are_listed_by_the_rights_on_their_whole_names(served: Served) -> None:
    users_of(served).grant("writer", [right("subscribe topic %LMQ%X*")])
    put = pb.Message(topic="T", queue_id=0, body=b"x", light_queues=["%LMQ%X1"])
    await served.messages.Put(pb.PutRequest(message=put), metadata=headers("ops"))
    for prefix in ("X", "%LMQ%X"):
        listing = pb.ListTopicsRequest(prefix=prefix, light_queues=True)
        found = await served.topics.ListTopics(listing, metadata=headers("writer"))
        assert [topic.name for topic in found.topics] == ["%LMQ%X1"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:  # it may see the topics X*
            await served.topics.ListTopics(listing, metadata=headers("other"))
        assert error_info(refused.value).reason == "PERMISSION_DENIED"


async def test_a_groups_offsets_are_shown_for_topics_that_the_caller_may_look_at(
    served: Served,
) -> None:
    """Two users share a group; neither rows nor page tokens tell one of the other's topics."""
    users = users_of(served)
    users.create("mate", secret=secret_of("mate"))
    users.grant("mate", map(right, ["subscribe group Xg", "subscribe topic Y*"]))
    topics = [*(f"X{number}" for number in range(5)), "Y0", *(f"Z{number}" for number in range(5))]
    made = [pb.CreateTopicRequest(name=name, queue_count=1) for name in [*topics, "Y1"]]
    await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=made), metadata=headers("ops"))
    positions = [pb.QueuePosition(topic=one.name) for one in made]
    commit = pb.CommitOffsetsRequest(group="Xg", offsets=positions)
    await served.groups.CommitOffsets(commit, metadata=headers("ops"))
    request = pb.ListGroupOffsetsRequest(group="Xg", page_size=1)
    seen, tokens = [], []
    while True:
        page = await served.groups.ListGroupOffsets(request, metadata=headers("mate"))
        seen += [one.topic for one in page.offsets]
        tokens.append(page.next_page_token)
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == ["Y0", "Y1"]
    assert tokens == ["0@Y0", ""]
