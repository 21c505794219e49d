"""Messages by offset, time, key and id; one message with its properties and body."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Retention
from kvcq_client.format import COMPRESSED
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.pages.messages import MERGED_QUEUES
from store.message import Message
from tests.server.services.test_shared_group import acknowledge, receive

if TYPE_CHECKING:
    from tests.support.consoles import Answer, ConsoleClient
    from tests.support.serving import Served


async def _put(served: Served, **fields: object) -> pb.PutResponse:
    values = {"topic": "orders", "queue_id": 0, "body": b"hello", **fields}
    message = pb.Message(**values)  # type: ignore[arg-type]
    response: pb.PutResponse = await served.messages.Put(pb.PutRequest(message=message))
    return response


def _offsets(page: Answer) -> list[str]:
    """What stands in the column of offsets, which lead to the messages."""
    return re.findall(r'href="/message\?id=[^"]*">([^<]*)<', page.html)


async def test_the_newest_come_first_and_all_can_be_reached(
    served: Served, console: ConsoleClient
) -> None:
    for number in range(45):
        await _put(served, body=f"body-{number}".encode())
    page = await console.get("/messages?topic=orders&queue=0")
    assert "from 0 up to, but not including, 45" in page.text
    assert _offsets(page) == [str(number) for number in range(25, 45)]
    page = await console.get(page.link("Earlier"))
    assert _offsets(page) == [str(number) for number in range(5, 25)]
    page = await console.get(page.link("Earlier"))
    assert _offsets(page)[0] == "0"
    assert "Earlier" not in page.text
    page = await console.get(page.link("Later"))
    assert _offsets(page)[0] == "20"
    assert "body-20" in page.text
    page = await console.get(page.link("Oldest"))
    assert _offsets(page)[0] == "0"
    page = await console.get(page.link("Newest"))
    assert _offsets(page)[-1] == "44"


async def test_the_newest_of_a_whole_topic(served: Served, console: ConsoleClient) -> None:
    for number in range(30):
        await _put(served, queue_id=number % 3, body=f"body-{number}".encode())
    page = await console.get((await console.get("/topic?name=orders")).link("Newest messages"))
    shown = [int(one) for one in re.findall(r"body-(\d+)", page.text)]
    assert shown == list(range(29, 9, -1)), "the newest first, over all queues"
    assert (await console.get("/messages?topic=orders")).text == page.text
    page = await console.get("/messages?topic=none")
    assert page.status == 404
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="empty")])
    )
    assert "No messages." in (await console.get("/messages?topic=empty")).text


async def test_the_newest_leave_out_what_later_messages_hide(
    served: Served, console: ConsoleClient
) -> None:
    async with AsyncClient(served.target) as client:
        await client.create_topic("prices", 1, retention=Retention(latest=True))
        for number in range(60):
            await _put(served, topic="prices", keys=["b" if number in (3, 40) else "a"])
        begun = await client.jobs.keep_latest("prices")
        *_, ended = [job async for job in client.jobs.watch(begun.job_id)]
    assert ended.numbers["hidden_messages"] == 58
    assert _offsets(await console.get("/messages?topic=prices")) == ["59", "40"]


async def test_the_newest_of_a_light_queue_are_those_of_its_one_queue(
    served: Served, console: ConsoleClient
) -> None:
    await _put(served, light_queues=["%LMQ%alice"])
    page = await console.get("/messages?by=recent&topic=%25LMQ%25alice")
    assert _offsets(page) == ["0"]


async def test_of_a_very_wide_topic_the_first_queues_are_looked_at(
    served: Served, console: ConsoleClient
) -> None:
    wide = pb.CreateTopicRequest(name="wide", queue_count=MERGED_QUEUES + 1)
    await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=[wide]))
    for queue_id in (3, MERGED_QUEUES):
        await _put(served, topic="wide", queue_id=queue_id)
    page = await console.get("/messages?topic=wide")
    assert f"Only the first {MERGED_QUEUES} queues" in page.text
    assert len(_offsets(page)) == 1


@pytest.mark.parametrize(("offset", "first"), [("0", "0"), ("3", "3"), ("9223372036854775807", "")])
async def test_by_offset(served: Served, console: ConsoleClient, offset: str, first: str) -> None:
    for _ in range(5):
        await _put(served)
    page = await console.get(f"/messages?by=offset&topic=orders&queue=0&offset={offset}")
    assert page.status == 200
    if first:
        assert _offsets(page)[0] == first
    else:
        assert "No messages." in page.text


async def test_what_is_no_offset(served: Served, console: ConsoleClient) -> None:
    for offset in ["-1", "x", "1e3", "9" * 20, "٣"]:
        await _put(served)
        page = await console.get(f"/messages?topic=orders&queue=0&offset={offset}")
        assert page.status == 400
        assert "offset" in page.text


async def test_by_time(served: Served, console: ConsoleClient) -> None:
    first = (await _put(served)).store_time_ms
    while (later := (await _put(served)).store_time_ms) == first:
        pass
    answer = await console.get(f"/messages?by=time&topic=orders&queue=0&time={first}")
    assert answer.headers["Location"] == "/messages?by=offset&topic=orders&queue=0&offset=0"
    answer = await console.get(f"/messages?by=time&topic=orders&queue=0&time={later}")
    page = await console.follow(answer)
    assert _offsets(page)[0] != "0"
    page = await console.get("/messages?by=time&topic=orders&queue=0")
    assert page.status == 200
    assert 'name="time"' in page.html
    page = await console.get("/messages?by=time&topic=orders&queue=0&time=soon")
    assert page.status == 400
    assert "is not a time such as" in page.text


async def test_by_key(served: Served, console: ConsoleClient) -> None:
    for number in range(30):
        await _put(served, keys=["a key".replace(" ", "_"), f"k{number}"])
    page = await console.get("/messages?by=key&topic=orders&key=a_key")
    assert len(_offsets(page)) == 20
    page = await console.get(page.link("Later"))
    assert len(_offsets(page)) == 10
    page = await console.get("/messages?by=key&topic=orders&key=k7")
    assert _offsets(page) == ["7"]
    assert "No messages." in (await console.get("/messages?by=key&topic=orders&key=x")).text
    page = await console.get("/messages?by=key&topic=orders&key=k7&after=zz")
    assert page.status == 400


async def test_by_id(served: Served, console: ConsoleClient) -> None:
    put = await _put(served, tag="created", keys=["k1", "k2"], properties={"who": "<b>&"})
    placed = put.placed
    answer = await console.get(f"/messages?by=id&id={placed.message_id}")
    page = await console.follow(answer)
    assert page.status == 200
    assert placed.message_id in page.text
    assert "queue 0, offset 0" in page.text
    assert "created" in page.text
    assert "/messages?by=key&topic=orders&key=k2" in page.links
    assert "who <b>&" in page.text
    assert "<b>&" not in page.html
    assert "hello" in page.text
    assert "68 65 6c 6c 6f" in page.text


async def test_what_is_no_id(served: Served, console: ConsoleClient) -> None:
    for message_id in ["x", "", "0" * 31, "F" * 32, "é"]:
        await _put(served)
        assert (await console.get(f"/message?id={message_id}")).status in (400, 404)


async def test_a_body_is_never_markup(served: Served, console: ConsoleClient) -> None:
    evil = b"</pre><script>alert(1)</script>"
    placed = (await _put(served, body=evil, tag="<i>", keys=["<u>"])).placed
    for path in ("/messages?topic=orders&queue=0", f"/message?id={placed.message_id}"):
        page = await console.get(path)
        assert page.status == 200
        assert "alert(1)" in page.text
        assert "<script>alert" not in page.html
        assert "<i>" not in page.html
        assert "<u>" not in page.html


async def test_bodies_that_are_no_text(served: Served, console: ConsoleClient) -> None:
    placed = (await _put(served, body=b"\xff\x00\x01" * 10_000)).placed
    page = await console.get("/messages?topic=orders&queue=0")
    assert "ff 00 01" in page.text
    page = await console.get(f"/message?id={placed.message_id}")
    assert "Not UTF-8 text." in page.text
    assert f"kvcq get {placed.message_id}" in page.text
    assert len(page.body) < 200_000


async def test_a_compressed_body_is_shown_plain(served: Served, console: ConsoleClient) -> None:
    appended = served.store.put(
        [
            Message("orders", zlib.compress(b"plain words"), sys_flag=COMPRESSED),
            Message("orders", b"not really compressed", sys_flag=COMPRESSED),
        ]
    )
    served.store.wait_visible()
    page = await console.get("/messages?topic=orders&queue=0")
    assert "compressed" in page.text
    assert len(appended.placed) == 2
    links = [link for link in page.links if link.startswith("/message?")]
    page = await console.get(links[0])
    assert "plain words" in page.text
    assert "11 B, stored as 19 B" in page.text
    page = await console.get(links[1])
    assert "It is shown as stored" in page.text
    assert "not really compressed" in page.text


async def test_times_that_a_producer_made_up(served: Served, console: ConsoleClient) -> None:
    placed = (await _put(served, born_time_ms=(1 << 62))).placed
    page = await console.get(f"/message?id={placed.message_id}")
    assert page.status == 200
    assert f"{1 << 62} ms" in page.text


async def test_what_is_not_there(served: Served, console: ConsoleClient) -> None:
    for path, status, reason in [
        ("/messages?topic=none&queue=0", 404, "UNKNOWN_TOPIC"),
        ("/messages?topic=orders&queue=99", 404, "UNKNOWN_QUEUE"),
        ("/messages?topic=orders&queue=9999999999", 400, "INVALID_ARGUMENT"),
        ("/messages?by=key&topic=none&key=k", 404, "UNKNOWN_TOPIC"),
        ("/messages?by=time&topic=none&queue=0&time=now", 404, "UNKNOWN_TOPIC"),
    ]:
        await _put(served)
        page = await console.get(path)
        assert page.status == status
        assert reason in page.text


async def test_the_form_before_it_is_filled_in(console: ConsoleClient) -> None:
    for by in ["offset", "time", "key", "id", "nothing"]:
        page = await console.get(f"/messages?by={by}")
        assert page.status == 200
        assert "<tbody>" not in page.html
        assert page.html.count('aria-current="true"') == 1


async def test_a_message_says_what_became_of_it(served: Served, console: ConsoleClient) -> None:
    placed = (await _put(served)).placed
    page = await console.get(f"/message?id={placed.message_id}")
    assert "No group has received or read" in page.text
    found = await receive(served, max_messages=1)
    page = await console.get(f"/message?id={placed.message_id}")
    assert "in flight (1)" in page.text
    await acknowledge(served, [*found.handles])
    page = await console.get(f"/message?id={placed.message_id}")
    assert "g orders 0 acknowledged" in page.text
    assert page.text.index("delivered g 1") < page.text.index("acknowledged g")
