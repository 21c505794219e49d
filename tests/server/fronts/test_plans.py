"""What a front reads from the plans of the owner is what the owner gives, and ends as it would."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from kvcq_client import AsyncClient, Start
from kvcq_client import Message as Sent
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from migration.opening import open_any
from server.fronts import FrontMethod, frames
from server.fronts.calls import FrontContext
from server.reads import reader
from store.errors import StoreError
from store.message import Message
from tests.server.readers.test_process import FORMS, QUEUES, fill
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from server.encoded import Encoded
    from server.fronts.front import Front
    from server.readers import Order
    from tests.support.serving import Served

STILL: dict[str, Any] = {
    "segment_bytes": SEGMENT_BYTES,
    "reserved_hours": 72,
    "disk_clean_ratio": 1.0,
    "disk_clean_forcibly_ratio": 1.0,
    "disk_full_ratio": 1.0,
    "delete_when_hours": (),
    "clean_interval_s": 1e6,
    "preallocate": False,
}


@pytest.fixture(autouse=True)
def all_by_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LEAST_FRONT_BYTES", 1)


@asynccontextmanager
async def behind_fronts(
    directory: Path, clock: FakeClock | None = None, *, damaged: bool = False
) -> AsyncIterator[Served]:
    """A server whose fronts are ready to read; what they hold, and count as sent, is gone in the
    end."""
    opener = partial(open_any, clock=clock or FakeClock())
    async with serving(directory, store=STILL, opener=opener, workers=2, damaged=damaged) as served:
        served.store.put([Message("first", b"body")])
        fronts = fronts_of(served)
        for front in fronts:  # each loads what it reads with when it is first asked
            front._plans.read(b"", lambda _: None)
            assert front._plans._loading is not None
            await front._plans._loading
        yield served
        await until(lambda: not any(front._calls for front in fronts))
        memory = served.server._edge.memory
        await until(lambda: not memory._sent_bytes)


def reads_of(served: Served) -> int:
    assert served.server._fronts is not None
    return int(served.server._fronts.statistics()["server.fronts.reads"])


def fronts_of(served: Served) -> list[Front]:
    assert served.server._fronts is not None
    found: list[Any] = [one for one in served.server._fronts._fronts if one is not None]
    return [one._process.front for one in found]


async def given(served: Served, request: pb.PullRequest) -> object:
    """By the front."""
    try:
        return await served.messages.Pull(request)
    except grpc.aio.AioRpcError as error:
        return error.details()


async def own(served: Served, request: pb.PullRequest) -> object:
    """By the owner."""
    try:
        answer = await served.serving.reads.pull(request, None, None)
    except StoreError as error:
        return str(error)
    return pb.PullResponse.FromString(answer) if isinstance(answer, bytes) else answer


@pytest.mark.parametrize("seed", range(4))
async def test_a_front_gives_what_the_owner_gives(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    clock = FakeClock()
    with checked(open_small(tmp_path / "store", clock, crc_item=seed != 3)) as store:
        fill(store, clock, rng)
    async with behind_fronts(tmp_path / "store", clock) as served:
        before, messages = reads_of(served), 0
        for topic, queue_id in QUEUES:
            [(low, high)] = served.store.bounds([(topic, queue_id)])
            for offset in {low, rng.randint(low, high), max(low, high - 1), high, high + 1}:
                for form in FORMS:
                    request = pb.PullRequest(
                        topic=topic,
                        queue_id=queue_id,
                        offset=offset,
                        max_messages=rng.choice((1, 7, 1000)),
                        max_bytes=rng.choice((1, 5000, 1 << 20)),
                        tag_filter=rng.choice(("", "Aa", "BB || other")),
                        form=form,
                    )
                    found = await given(served, request)
                    assert found == await own(served, request)
                    if isinstance(found, pb.PullResponse):
                        messages += len(found.queue_offsets) + len(found.messages)
        assert messages > 50
        assert reads_of(served) > before + 30


def numbered(served: Served, count: int) -> list[bytes]:
    bodies = [b"%04d" % number * 250 for number in range(count)]
    for body in bodies:
        served.store.put([Message("T", body, 0)])
    return bodies


def whole(offset: int = 0, form: pb.RecordForm = pb.RECORD_FORM_DECODED) -> pb.PullRequest:
    return pb.PullRequest(topic="T", offset=offset, max_messages=200, form=form)


async def test_what_is_being_written_is_seen_as_far_as_it_is_published(tmp_path: Path) -> None:
    async with behind_fronts(tmp_path) as served:
        offset = 0
        for _ in range(60):
            bodies = numbered(served, 7)  # over the ends of segments, too
            while offset < served.store.bounds([("T", 0)])[0].max_offset:
                pulled = await served.messages.Pull(whole(offset))
                expected = (bodies * 60)[offset : pulled.next_offset]
                assert [message.body for message in pulled.messages] == expected
                offset = pulled.next_offset
        assert offset == 420


def act_before_reading(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:  # noqa: ANN401
    """`act` is awaited, once, when a pull was planned and its front was not asked yet."""
    carry_out = FrontContext.carry_out

    async def acting(self: FrontContext, order: Order) -> Encoded | None:
        monkeypatch.setattr(FrontContext, "carry_out", carry_out)
        await act()
        return await self.carry_out(order)

    monkeypatch.setattr(FrontContext, "carry_out", acting)


@pytest.mark.parametrize("is_mapped", [True, False])
async def test_a_segment_that_is_removed_between_plan_and_read_is_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
    clock = FakeClock()
    async with behind_fronts(tmp_path, clock) as served:
        numbered(served, 200)
        maps = [front._plans._maps for front in fronts_of(served)]
        if is_mapped:
            await served.messages.Pull(whole())
        else:
            for one in maps:
                if one is not None:
                    one.let_go()
                    one.let_go()
        clock.advance(100 * 3600)
        served.store.put([Message("T", b"young", 0)])
        served.store.flush()

        async def expire() -> None:
            assert await asyncio.to_thread(served.store.expire)

        act_before_reading(monkeypatch, expire)
        if is_mapped:  # the pages are there until they are let go: what was planned is given
            assert len((await served.messages.Pull(whole())).messages) == 200
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Pull(whole())
        assert error_info(refused.value).reason == "OFFSET_OUT_OF_RANGE"
        for one in maps:
            if one is not None:
                one.let_go()
                one.let_go()
                assert one.count == 0


async def test_a_topic_that_is_deleted_between_plan_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_fronts(tmp_path) as served:
        bodies = numbered(served, 100)

        async def delete() -> None:
            await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="T"))

        act_before_reading(monkeypatch, delete)
        pulled = await served.messages.Pull(whole())  # it was there when the pull was planned
        assert [message.body for message in pulled.messages] == bodies
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Pull(whole())
        assert error_info(refused.value).reason == "UNKNOWN_TOPIC"


@pytest.mark.damages
async def test_a_damaged_record_is_the_same_error(tmp_path: Path) -> None:
    async with behind_fronts(tmp_path, damaged=True) as served:
        numbered(served, 200)
        plan = served.store.plan_pull(
            "T", 0, 0, max_messages=200, max_bytes=1 << 20, tag_filter=None
        )
        offset, size = plan.places[150]
        path = tmp_path / "commitlog" / f"{offset - offset % SEGMENT_BYTES:020d}"
        with path.open("r+b") as file:
            file.seek(offset % SEGMENT_BYTES + size // 2)
            file.write(b"?")
        for request in (whole(), whole(150), whole(151)):
            assert await given(served, request) == await own(served, request)
        assert len((await served.messages.Pull(whole())).messages) == 150
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Pull(whole(150))
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS


async def test_a_pull_that_is_given_up_leaves_nothing_in_its_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_fronts(tmp_path) as served, AsyncClient(served.target) as client:
        numbered(served, 100)
        await client.pull("T", 0, 0)  # the stream that calls share is open
        pulling: list[asyncio.Task[object]] = []

        async def give_up() -> None:
            pulling[0].cancel()
            # What comes behind it on the stream was taken behind it.
            await client.pull("first", 0, 0)

        act_before_reading(monkeypatch, give_up)
        pulling.append(asyncio.create_task(client.pull("T", 0, 0)))
        await asyncio.wait(pulling)
        assert len((await client.pull("T", 0, 0)).messages) == 100
        calls = [call for front in fronts_of(served) for call in front._calls.values()]
        assert [call.held for call in calls if call.held] == []


async def test_calls_that_share_a_stream_get_theirs(tmp_path: Path) -> None:
    async with behind_fronts(tmp_path) as served, AsyncClient(served.target) as client:
        bodies = numbered(served, 100)
        before = reads_of(served)
        await client.put(Sent("other", b"x"))
        pulls = [client.pull("T", 0, offset, max_messages=offset + 1) for offset in range(50)]
        for offset, pulled in enumerate(await asyncio.gather(*pulls)):
            found = [message.body for message in pulled.messages]
            assert found == bodies[offset : 2 * offset + 1]
        assert reads_of(served) >= before + 50


async def test_a_queue_that_moves_while_its_front_reads_it_answers_from_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_fronts(tmp_path) as served:
        bodies = numbered(served, 100)
        call = served.messages.Subscribe()

        async def move() -> None:
            there = pb.QueuePosition(topic="T", offset=98)
            await call.write(pb.SubscribeRequest(add=[there, pb.QueuePosition(topic="first")]))
            await until(lambda: served.serving.reads.growth.watched_queues >= 2)

        act_before_reading(monkeypatch, move)
        here = pb.QueuePosition(topic="T")
        await call.write(pb.SubscribeRequest(add=[here], credit_bytes=1 << 20))
        found: list[bytes] = []
        while len(found) < 3:
            for batch in (await call.read()).queues:
                found += [message.body for message in batch.batch.messages]
        assert sorted(found) == sorted([*bodies[98:], b"body"])
        held = [one.held for front in fronts_of(served) for one in front._calls.values()]
        assert [one for one in held if one] == []
        call.cancel()


async def test_a_consumer_gets_all_of_several_queues(tmp_path: Path) -> None:
    async with behind_fronts(tmp_path) as served, AsyncClient(served.target) as client:
        sent = set()
        for number in range(2000):
            body = b"%d" % number * 50
            sent.add(body)
            served.store.put([Message("T", body, number % 4)])
        consumer = await client.consumer("T", start=Start.EARLIEST)
        async with consumer:
            found = [message.body async for message in consumer.to_end()]
        assert len(found) == len(sent)
        assert set(found) == sent


async def test_what_fronts_are_to_read_counts_as_being_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_fronts(tmp_path) as served:
        numbered(served, 100)
        memory = served.server._edge.memory
        counted: list[int] = []

        async def look() -> None:
            counted.append(memory._sent_bytes)

        act_before_reading(monkeypatch, look)
        await served.messages.Pull(whole())
        assert counted[0] > 100 * 1000


async def test_a_front_that_dies_while_it_reads_ends_the_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_fronts(tmp_path) as served:
        numbered(served, 100)
        fronts = fronts_of(served)

        async def die() -> None:
            for one in served.server._fronts._fronts:  # type: ignore[union-attr]
                one._process.kill()  # type: ignore[union-attr]

        act_before_reading(monkeypatch, die)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.messages.Pull(whole())
        again = await served.messages.Pull(whole(), wait_for_ready=True)
        assert len(again.messages) == 100
        assert not any(front in fronts for front in fronts_of(served))


@pytest.mark.parametrize("comes", ["behind", "at that very moment"])
async def test_an_answer_that_nobody_waits_for_is_dropped(comes: str) -> None:
    sent: list[tuple[int, bytes]] = []

    class Noted:
        def send(self, kind: int, _: int, body: bytes = b"") -> None:
            sent.append((kind, body))

    opening = frames.Opening(0, frames.NEVER, "peer", b"", b"request")
    method = FrontMethod("/s/Unary", False, False, False, 1)
    context = FrontContext(cast("frames.Link", Noted()), 1, opening, method)
    asking = asyncio.create_task(context.carry_out(cast("Order", None)))
    await asyncio.sleep(0)
    planned = frames.Planned(1, 5, 500, 600)
    if comes == "behind":
        asking.cancel()
        await asyncio.wait([asking])
        context.planned(planned)
    else:
        context.planned(planned)
        asking.cancel()
        await asyncio.wait([asking])
    assert asking.cancelled()
    assert [kind for kind, _ in sent] == [frames.PLAN, frames.DROP]
    assert sent[1][1] == frames.NUMBER.pack(1)
