"""Clients of shared groups that do what nobody should: limits hold, and others go on."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2, shared_groups_pb2_grpc
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.errors import TooManyGroupsError
from server.reads import new_groups
from server.reads.new_groups import NewGroups
from tests.server.reads.test_receives import bodies, drained, put
from tests.server.services.test_shared_group import DONE, LATE, acknowledge, receive, refusal
from tests.support.loop_stops import watched_server
from tests.support.rpc_errors import error_info
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


async def test_who_never_acknowledges_is_given_no_more_than_may_be_in_flight(
    served: Served,
) -> None:
    settings = pb.SharedGroupSettings(most_in_flight=10)
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g", settings=settings))
    await put(served, *[b"x"] * 100)
    found = await asyncio.gather(*(receive(served, max_messages=7) for _ in range(20)))
    assert sum(len(answer.messages) for answer in found) == 10
    # Another group of the topic notices nothing.
    assert len((await receive(served, group="other", max_messages=100)).messages) == 100


async def test_forged_handles_end_nothing(served: Served) -> None:
    await put(served, b"a", b"b")
    found = await receive(served)
    good = found.handles[0]
    draw = random.Random(38)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    forged = [
        "",
        "x" * 100_000,
        good + "A",
        good[:-1],
        "\0" * 60,
        "é" * 60,
        "".join(draw.choices(letters, k=len(good))),
    ]
    forged += [
        good[:at] + draw.choice(letters.replace(good[at], "")) + good[at + 1 :]
        for at in range(len(good))
    ]
    fields: list[str] = []
    for handle in forged:
        try:
            outcomes = await acknowledge(served, [handle])
        except grpc.aio.AioRpcError as error:
            fields.append(error_info(error).metadata["field"])
        else:
            # The last character of Base64 has bits that stand for nothing.
            assert outcomes == [LATE] or handle[:-1] == good[:-1]
    assert len(fields) >= len(forged) - 1
    assert set(fields) == {"handles[0]"}
    assert (await acknowledge(served, [found.handles[1]])) == [DONE]


async def test_who_renews_for_ever_holds_one_message_and_a_reset_ends_it(served: Served) -> None:
    await put(served, b"held")
    found = await receive(served)
    hold = pb.ChangeInvisibleTimeRequest(
        group="g", handles=found.handles, invisible_ms=12 * 3_600_000
    )
    for _ in range(30):
        assert [*(await served.shared.ChangeInvisibleTime(hold)).outcomes] == [DONE]
    hold.invisible_ms += 1
    info = await refusal(served.shared.ChangeInvisibleTime(hold))
    assert info.metadata["field"] == "invisible_ms"
    await put(served, b"another")
    assert bodies(await receive(served)) == [b"another"]
    reset = pb.ResetGroupRequest(group="g", topic="orders", earliest=True)
    assert (await served.shared.ResetGroup(reset)).ended_in_flight == 2
    hold.invisible_ms = 1000
    assert [*(await served.shared.ChangeInvisibleTime(hold)).outcomes] == [LATE]
    assert bodies(await receive(served)) == [b"held", b"another"]


async def five_groups_a_second(served: Served, monkeypatch: pytest.MonkeyPatch) -> NewGroups:
    """A message to receive, and one moment in which a caller may make five groups."""
    monkeypatch.setattr(new_groups, "OF_ONE", 5)
    await put(served, b"x")
    made = served.serving.reads._receives._new_groups
    monkeypatch.setattr(made, "_now_s", lambda: 7.0)
    return made


async def test_receives_make_only_so_many_groups_a_second(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await five_groups_a_second(served, monkeypatch)
    for number in range(5):
        assert len((await receive(served, group=f"g{number}")).messages) == 1
    refused = await refusal(receive(served, group="one-more"))
    assert refused.reason == "TOO_MANY_GROUPS"
    assert not (await receive(served, group="g1")).messages, "groups that exist go on"
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="made"))
    assert len((await receive(served, group="made")).messages) == 1
    monkeypatch.setattr(now, "_now_s", lambda: 8.0)
    assert len((await receive(served, group="one-more")).messages) == 1


def test_one_who_makes_many_groups_leaves_room_for_others() -> None:
    groups = NewGroups(lambda: 1.0)
    for number in range(new_groups.OF_ONE):
        groups.check("loop", f"{number}")
        groups.made("loop", f"{number}")
    with pytest.raises(TooManyGroupsError):
        groups.check("loop", "another")
    groups.check("other", "another")
    for number in range(new_groups.OF_ALL - new_groups.OF_ONE):
        groups.made(f"other {number}", f"g{number}")
    with pytest.raises(TooManyGroupsError):
        groups.check("one more", "another")


async def test_receives_that_make_one_group_before_it_is_visible_count_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await five_groups_a_second(served, monkeypatch)
    with served.store._appends._reput.paused():
        answers = [await receive(served) for _ in range(10)]
    assert sum(len(answer.messages) for answer in answers) == 1


@pytest.mark.slow
async def test_ten_thousand_who_wait_hold_up_nobody(tmp_path: Path) -> None:
    """They come, one message comes, all go as the topic is deleted: no callback of the loop takes
    more than 20 ms of processor time."""
    count, connections = 10_000, 3
    # The memory of the calls' other ends, in this process as well, is no reason to refuse one.
    async with watched_server(tmp_path / "store", memory_limit_bytes=4 << 30) as server:
        served = server.served
        await drained(served)
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            grpc.aio.insecure_channel(served.target, options=options) for _ in range(connections)
        ]
        stubs = [shared_groups_pb2_grpc.SharedGroupServiceStub(each) for each in channels]
        request = pb.ReceiveRequest(group="g", topic="orders", wait_ms=60_000, max_messages=1)
        lines = served.serving.reads._receives.lines
        waiting: list[asyncio.Task[pb.ReceiveResponse]] = []
        server.watch.longest_s = 0.0
        for first in range(0, count, 500):
            waiting += [
                asyncio.create_task(_call(stubs[number % connections], request))
                for number in range(first, first + 500)
            ]
            await asyncio.sleep(0)
        await until(lambda: len(getattr(lines.find("g", "orders"), "_waiting", ())) == count)
        await put(served, b"one")
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(each.result()) for each in done] == [[b"one"]]
        await until(lambda: lines.find("g", "orders")._looks == 0)  # type: ignore[union-attr]
        await served.topics.DeleteTopic(kvcq_pb2.DeleteTopicRequest(name="orders"))
        await asyncio.wait(left)
        assert all(isinstance(each.exception(), grpc.aio.AioRpcError) for each in left)
        assert server.watch.longest_s < 0.05, "the client's work is in the same loop"
        for channel in channels:
            await channel.close(None)


async def _call(
    stub: shared_groups_pb2_grpc.SharedGroupServiceStub, request: pb.ReceiveRequest
) -> pb.ReceiveResponse:
    answer: pb.ReceiveResponse = await stub.Receive(request)
    return answer
