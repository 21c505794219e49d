"""server/reads/receives.py over real gRPC: receives that acknowledge what came before them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.edge.call_gate import CallKind
from server.puts import Durability
from tests.server.reads.test_receives import bodies, parked, put, until_parked
from tests.server.services.test_shared_group import acknowledge, receive
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from tests.support.serving import Served


async def test_a_receive_that_waits_for_the_disk_leaves_what_it_got_to_its_attempt_made_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(served, b"a")
    first = await receive(served)
    await put(served, b"b")
    held, may_go = await _held_disk(monkeypatch)
    asked = {"acknowledge": [*first.handles], "attempt_id": "one"}
    gone = asyncio.create_task(receive(served, **asked))
    await until(lambda: len(held) == 1)
    made_again = asyncio.create_task(receive(served, **asked))
    await until(lambda: len(held) == 2)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL) == 1)
    may_go.set()
    again = await made_again
    assert (bodies(again), [*again.deliveries]) == ([b"b"], [1])
    await until(lambda: not served.serving.reads._receives._giving_back)
    assert await acknowledge(served, [*again.handles]) == [pb.HANDLE_OUTCOME_DONE]
    assert not served.serving.reads._receives._attempts


async def test_an_attempt_made_again_gets_its_messages_while_others_wait(served: Served) -> None:
    """Its first response was lost. Otherwise they would be nobody's until their leases end."""
    await put(served, b"a")
    first = await receive(served)
    await put(served, b"b")
    asked = {"acknowledge": [*first.handles], "attempt_id": "one"}
    lost = await receive(served, **asked)
    assert bodies(lost) == [b"b"]
    waiting = parked(served)
    await until_parked(served, 1)
    again = await receive(served, **asked)
    assert (bodies(again), [*again.handles]) == ([b"b"], [*lost.handles])
    await put(served, b"c")
    assert bodies(await waiting) == [b"c"]


async def test_what_a_receive_got_counts_while_it_waits_for_the_disk(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every caller had an answer in memory when the disk stands still."""
    await put(served, b"a")
    first = await receive(served)
    await put(served, bytes(512 << 10))
    held, may_go = await _held_disk(monkeypatch)
    asked = asyncio.create_task(receive(served, acknowledge=[*first.handles]))
    await until(lambda: len(held) == 1)
    memory = served.server._edge.memory
    assert memory._sent_bytes > 512 << 10
    may_go.set()
    assert len((await asked).messages) == 1
    await until(lambda: not memory._sent_bytes)


@pytest.mark.parametrize("is_at_append", [True, False])
async def test_acknowledgements_do_not_wait_for_room_for_messages(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_at_append: bool
) -> None:
    """Their time would be over meanwhile, and others get what is done."""
    await put(served, b"a")
    first = await receive(served)
    await put(served, b"b")
    monkeypatch.setattr(Durability, "is_at_append", is_at_append)
    memory = served.server._edge.memory
    crowd = 2 * memory._sent_limit_bytes
    memory.sends(crowd, "a slow reader")
    answer = await asyncio.wait_for(receive(served, acknowledge=[*first.handles]), LIMIT_S)
    assert ([*answer.outcomes], bodies(answer)) == ([pb.HANDLE_OUTCOME_DONE], [])
    memory.sent(crowd, "a slow reader")
    assert bodies(await receive(served)) == [b"b"]


async def _held_disk(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], asyncio.Event]:
    """What is to be durable waits for the event; the list has what waits."""
    held: list[int] = []
    may_go = asyncio.Event()

    async def wait(_: Durability, end_offset: int) -> None:
        held.append(end_offset)
        await may_go.wait()

    monkeypatch.setattr(Durability, "is_at_append", False)
    monkeypatch.setattr(Durability, "wait", wait)
    return held, may_go
