"""Open transactions: shown, found, decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2
from server.console.visit import PAGE_ROWS
from store.message import Message
from store.state import HalfChecked
from store.state.half_entries import NEVER

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


async def _begin(served: Served, group: str = "billing", topic: str = "orders") -> str:
    return await asyncio.to_thread(
        served.store.halves.begin, Message(topic, b"half", 0), group, 3_600_000
    )


async def _give_up(served: Served) -> None:
    """As after the last check."""
    (half, *_) = served.store.halves.list()[0]
    entry = HalfChecked(half.half, 15, NEVER)
    await asyncio.to_thread(served.store.halves._appends.append_entries, [entry])
    await asyncio.to_thread(served.store.wait_visible)


async def _messages(served: Served) -> int:
    await asyncio.to_thread(served.store.wait_visible)
    found = await served.messages.GetOffsets(
        kvcq_pb2.GetOffsetsRequest(queues=[kvcq_pb2.Queue(topic="orders", queue_id=0)])
    )
    return int(found.queues[0].max_offset)


async def test_open_ones_are_shown(served: Served, console: ConsoleClient) -> None:
    assert "No transaction is open." in (await console.get("/transactions")).text
    one = await _begin(served)
    two = await _begin(served, "shipping")
    await _give_up(served)
    page = await console.get("/transactions")
    assert "Open 2 Given up 1" in page.text
    assert "billing orders 15 given up" in page.text
    assert "shipping orders 0 2" in page.text, "the next check has a time"
    assert one in page.text
    assert two in page.text
    assert "Roll back" not in page.text, "that is for administrators"
    page = await console.get("/transactions?group=shipping")
    assert "Open 1 Given up 0" in page.text
    assert one not in page.text
    page = await console.get("/transactions?given_up=true")
    assert one in page.text
    assert two not in page.text
    assert (await console.post("/transactions/decide", {})).status == 403


@pytest.mark.parametrize(("decision", "delivered"), [("commit", 1), ("rollback", 0)])
async def test_one_is_decided(
    served: Served, admin: ConsoleClient, decision: str, delivered: int
) -> None:
    one = await _begin(served)
    page = await admin.get("/transactions")
    assert f'name="id" value="{one}"' in page.html
    form = {"id": one, "group": "billing", "given_up": "", "decision": decision}
    page = await admin.follow(await admin.post("/transactions/decide", form))
    assert {"commit": "was committed", "rollback": "was rolled back"}[decision] in page.text
    assert "No transaction is open." in page.text
    other = {"commit": "rollback", "rollback": "commit"}[decision]
    answer = await admin.post("/transactions/decide", {**form, "decision": other})
    assert answer.status == 409
    if delivered:
        assert await _messages(served) == 1
    else:
        assert served.store.halves.count().open == 0


@pytest.mark.parametrize("changed", [{"decision": "maybe"}, {"decision": ""}, {"id": "x"}])
async def test_a_form_that_is_wrong_decides_nothing(
    served: Served, admin: ConsoleClient, changed: dict[str, str]
) -> None:
    one = await _begin(served)
    form = {"id": one, "decision": "commit", **changed}
    assert (await admin.post("/transactions/decide", form)).status == 400
    assert served.store.halves.count().open == 1


async def test_a_page_of_many_leads_to_the_next(served: Served, console: ConsoleClient) -> None:
    ids = [await _begin(served) for _ in range(PAGE_ROWS + 2)]
    first = await console.get("/transactions?group=billing")
    second = await console.get(first.link("Next page"))
    assert [one for one in ids if one in first.text] == ids[:PAGE_ROWS]
    assert [one for one in ids if one in second.text] == ids[PAGE_ROWS:]
