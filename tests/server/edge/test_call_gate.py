"""server/edge/call_gate.py, and bursts over real gRPC: taken, or refused in words."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client import AsyncClient, Message
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge.call_gate import QUIET_CALLS, CallGate, CallKind, Places
from server.edge.request_limits import PLACES
from server.errors import TooManyCallsError
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

SHORT = CallKind.SHORT


def _gate(of_peer: int, in_all: int) -> CallGate:
    return CallGate({SHORT: Places(of_peer, in_all)})


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=200))
def test_places_are_bounded_and_all_come_back(steps: list[tuple[bool, str]]) -> None:
    gate = _gate(20, 40)
    held: Counter[str] = Counter()
    for enters, peer in steps:
        if enters:
            try:
                gate.enter(SHORT, peer)
            except TooManyCallsError:
                assert held[peer] == 20 or held.total() >= 35
            else:
                held[peer] += 1
        elif held[peer]:
            gate.leave(SHORT, peer)
            held[peer] -= 1
        assert gate.under_way(SHORT) == held.total() <= 40
        assert max(held.values(), default=0) <= 20
    for peer in held.elements():
        gate.leave(SHORT, peer)
    assert gate.under_way(SHORT) == 0


def test_a_quiet_peer_gets_a_place_when_loud_ones_have_taken_all_others() -> None:
    gate = _gate(1000, 400)
    for loud in ("a", "b"):
        with suppress(TooManyCallsError):
            while True:
                gate.enter(SHORT, loud)
    assert gate.under_way(SHORT) == 350 + QUIET_CALLS
    for _ in range(QUIET_CALLS):
        gate.enter(SHORT, "quiet")
    with pytest.raises(TooManyCallsError):
        gate.enter(SHORT, "quiet")


def test_a_user_with_many_connections_leaves_the_others_their_places() -> None:
    gate = _gate(1000, 400)
    with suppress(TooManyCallsError):
        for connection in range(1000):
            gate.enter(SHORT, str(connection), "loud")
    assert gate.under_way(SHORT) == 350
    for connection in range(QUIET_CALLS):
        gate.enter(SHORT, f"other {connection}", "quiet")
    with pytest.raises(TooManyCallsError):
        gate.enter(SHORT, "one more", "quiet")
    gate.leave(SHORT, "7", "loud")
    gate.leave(SHORT, "other 0", "quiet")
    gate.enter(SHORT, "one more", "quiet")


async def test_three_thousand_puts_at_once_are_all_stored(served: Served) -> None:
    async with AsyncClient(served.target) as client, AsyncClient(served.target) as quiet:
        burst = asyncio.gather(*(client.put(Message("orders", b"x")) for _ in range(3000)))
        neighbour = asyncio.gather(*(quiet.put(Message("quiet", b"x")) for _ in range(20)))
        placed = await burst
        await neighbour
    assert len({one.physical_offset for one in placed}) == 3000


async def test_a_burst_of_a_raw_client_is_never_cancelled(served: Served) -> None:
    request = pb.PutRequest(message=pb.Message(topic="orders", queue_id=0, body=b"x"))
    calls = [served.messages.Put(request) for _ in range(3000)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [one for one in answers if isinstance(one, BaseException)] == []


async def test_calls_above_the_limit_are_refused_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLACES, CallKind.PULL, Places(10, 12_288))
    async with (
        serving(tmp_path) as served,
        grpc.aio.insecure_channel(served.target, options=(("grpc.channel_id", 2),)) as other,
    ):
        await served.messages.Put(
            pb.PutRequest(message=pb.Message(topic="orders", queue_id=0, body=b"x"))
        )
        pull = pb.PullRequest(topic="orders", queue_id=0, offset=1, wait_ms=60_000)
        parked = [served.messages.Pull(pull) for _ in range(20)]
        done, waiting = await asyncio.wait(
            map(asyncio.ensure_future, parked), timeout=None, return_when="FIRST_COMPLETED"
        )
        while len(done) < 10:
            more, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
            done |= more
        for one in done:
            error = one.exception()
            assert isinstance(error, grpc.aio.AioRpcError)
            info = error_info(error)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (info.reason, info.metadata["kind"], info.metadata["limit"]) == (
                "TOO_MANY_CALLS",
                "pulls",
                "10",
            )
        # Neither another kind of call of this peer nor another peer is concerned.
        await served.messages.Put(
            pb.PutRequest(message=pb.Message(topic="others", queue_id=0, body=b"x"))
        )
        stub = other.unary_unary("/kvcq.v1.MessageService/Pull", None, None)
        await stub(pb.PullRequest(topic="orders", queue_id=0).SerializeToString())
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
