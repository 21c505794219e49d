"""Delayed messages: listed by when they are due, recalled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import timers_pb2 as pb
from server.console.visit import PAGE_ROWS

if TYPE_CHECKING:
    from tests.support.consoles import Answer, ConsoleClient
    from tests.support.serving import Served

HOUR_MS = 3_600_000


async def _delay(served: Served, count: int, topic: str = "orders") -> list[str]:
    messages = [
        pb.DelayedMessage(
            message=kvcq_pb2.Message(
                topic=topic, queue_id=1, body=b"x" * 10, tag="paid", keys=[f"{topic}-{number}"]
            ),
            delay_ms=(number + 1) * HOUR_MS,
        )
        for number in range(count)
    ]
    answer = await served.timers.PutDelayed(pb.PutDelayedRequest(messages=messages))
    return list(answer.handles)


def _keys(page: Answer) -> list[str]:
    return re.findall(r"(?:orders|other)-\d+", page.text)


async def test_those_that_are_due_first_come_first(served: Served, console: ConsoleClient) -> None:
    assert "No message waits." in (await console.get("/delayed")).text
    await _delay(served, 2)
    await _delay(served, 1, "other")
    page = await console.get("/delayed")
    assert "Waiting, all topics 3 Next due in 59 min" in page.text
    assert "Late no" in page.text
    assert sorted(_keys(page)) == ["orders-0", "orders-1", "other-0"]
    assert _keys(page)[-1] == "orders-1"
    assert "orders 1 paid orders-1 10 B" in page.text
    assert "Recall" not in page.text, "that is for administrators"
    page = await console.get("/delayed?topic=other")
    assert _keys(page) == ["other-0"]
    assert (await console.post("/delayed/recall", {})).status == 403


async def test_a_page_of_many_leads_to_the_next(served: Served, console: ConsoleClient) -> None:
    await _delay(served, PAGE_ROWS + 3)
    first = await console.get("/delayed?topic=orders")
    second = await console.get(first.link("Next page"))
    assert _keys(first) + _keys(second) == [f"orders-{number}" for number in range(PAGE_ROWS + 3)]
    assert "Next due in" not in second.text, "that is on the first page"
    assert "First page" in second.text


async def test_one_is_recalled_once(served: Served, admin: ConsoleClient) -> None:
    first, _ = await _delay(served, 2)
    page = await admin.get("/topic?name=orders")
    assert "/delayed?topic=orders" in page.links
    page = await admin.get("/delayed?topic=orders")
    assert f'name="handle" value="{first}"' in page.html
    form = {"topic": "orders", "handle": first, "shown": "orders"}
    page = await admin.follow(await admin.post("/delayed/recall", form))
    assert "The message was recalled." in page.text
    assert _keys(page) == ["orders-1"]
    page = await admin.follow(await admin.post("/delayed/recall", form))
    assert "Nothing has changed" in page.text
    forged = await admin.post("/delayed/recall", {**form, "handle": "no handle"})
    assert forged.status == 400
    assert served.store.timers.count() == 1


async def test_a_name_is_not_taken_for_markup(served: Served, admin: ConsoleClient) -> None:
    message = kvcq_pb2.Message(
        topic="orders", queue_id=0, keys=["<b>x"], tag="<i>y", light_queues=["%LMQ%z"]
    )
    later = pb.DelayedMessage(message=message, delay_ms=HOUR_MS)
    await served.timers.PutDelayed(pb.PutDelayedRequest(messages=[later]))
    page = await admin.get("/delayed")
    assert not {"<b>", "<i>"} & set(re.findall(r"<\w>", page.html))
    assert "<b>x" in page.text
