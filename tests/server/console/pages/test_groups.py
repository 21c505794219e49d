"""Groups with what they are behind; offsets reset, groups deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from server.console.pages.groups import SUMMED_QUEUES
from server.console.visit import PAGE_ROWS

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


async def _fill(served: Served, queues: int = 2) -> None:
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="orders", queue_count=queues)])
    )
    for number in range(6):
        message = pb.Message(topic="orders", queue_id=number % 2, body=b"x")
        await served.messages.Put(pb.PutRequest(message=message))


async def _commit(served: Served, group: str, *offsets: int) -> None:
    positions = [
        pb.QueuePosition(topic="orders", queue_id=queue_id, offset=offset)
        for queue_id, offset in enumerate(offsets)
    ]
    await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=positions))


async def _offsets(served: Served, group: str) -> list[int]:
    found = await served.groups.ListGroupOffsets(pb.ListGroupOffsetsRequest(group=group))
    return [one.offset for one in found.offsets]


async def test_groups_with_their_lag(served: Served, console: ConsoleClient) -> None:
    assert "No group has received messages or committed" in (await console.get("/groups")).text
    await _fill(served)
    await _commit(served, "billing", 1, 3)
    await _commit(served, "audit", 0)
    page = await console.get("/groups")
    assert "audit reader 1 1 3 0" in page.text
    assert "billing reader 1 2 2 0" in page.text
    page = await console.get("/group?name=billing")
    assert "orders 0 1 0 3 2 orders 1 3 0 3 0" in page.text
    assert "Reset" not in page.text
    assert "Reader group billing" in page.text


async def test_a_group_that_does_not_exist_is_not_found(console: ConsoleClient) -> None:
    page = await console.get("/group?name=nope")
    assert page.status == 404
    assert "no group 'nope'" in page.text
    assert (await console.get("/group")).status == 400


async def test_groups_of_both_kinds_are_called_groups(
    served: Served, console: ConsoleClient
) -> None:
    await _fill(served)
    await _commit(served, "audit", 0)
    await served.shared.CreateGroup(shared_pb.CreateGroupRequest(group="workers"))
    for path in ("/", "/groups", "/topic?name=orders", "/group?name=workers"):
        page = await console.get(path)
        assert page.status == 200
        assert "eader group" not in page.text, path


async def test_many_groups_stand_on_pages(served: Served, console: ConsoleClient) -> None:
    await _fill(served)
    for number in range(25):
        await _commit(served, f"g{number:02}", 0)
    page = await console.get("/groups")
    first = [link for link in page.links if link.startswith("/group?")]
    page = await console.get(page.link("Next page"))
    second = [link for link in page.links if link.startswith("/group?")]
    assert [*first, *second] == [f"/group?name=g{number:02}" for number in range(25)]
    assert "Next page" not in page.text


async def test_a_group_on_many_queues(served: Served, console: ConsoleClient) -> None:
    await _fill(served, queues=SUMMED_QUEUES + 1)
    await _commit(served, "wide", *[0] * (SUMMED_QUEUES + 1))
    assert f"wide reader 1+ {SUMMED_QUEUES}+ 6+" in " ".join(
        (await console.get("/groups")).text.split()
    )
    page = await console.get("/group?name=wide")
    assert page.text.count("orders") == PAGE_ROWS
    page = await console.get(page.link("Next page"))
    assert f"orders {PAGE_ROWS} " in page.text


@pytest.mark.parametrize(
    ("to", "wanted"), [("earliest", [0, 0]), ("latest", [3, 3]), ("-1h", [3, 3]), ("now", [3, 3])]
)
async def test_offsets_are_reset(
    served: Served, admin: ConsoleClient, to: str, wanted: list[int]
) -> None:
    await _fill(served)
    await _commit(served, "g", 1, 2)
    # The console's clock stands in 2033: everything was stored before an hour ago.
    answer = await admin.post("/groups/reset", {"group": "g", "topic": "orders", "to": to})
    page = await admin.follow(answer)
    assert "The offsets were reset." in page.text
    assert await _offsets(served, "g") == wanted


async def test_a_reset_that_is_refused(served: Served, admin: ConsoleClient) -> None:
    for form, status, text in [
        ({"group": "g", "topic": "orders", "to": ""}, 400, "to:"),
        ({"group": "g", "topic": "orders", "to": "soon"}, 400, "is not earliest, latest"),
        ({"group": "g", "topic": "none", "to": "latest"}, 404, "UNKNOWN_TOPIC"),
        ({"group": "a b", "topic": "orders", "to": "latest"}, 400, "group"),
        ({}, 400, "to"),
    ]:
        await _fill(served)
        await _commit(served, "g", 1, 2)
        answer = await admin.post("/groups/reset", form)
        assert answer.status == status
        assert text in answer.text
        assert await _offsets(served, "g") == [1, 2]


async def test_a_group_is_deleted(served: Served, admin: ConsoleClient) -> None:
    await _fill(served)
    await _commit(served, "g", 1, 2)
    answer = await admin.post("/groups/delete", {"name": "g", "typed": "x"})
    assert answer.status == 400
    assert await _offsets(served, "g") == [1, 2]
    answer = await admin.post("/groups/delete", {"name": "g", "typed": " g "})
    assert "The group was deleted." in (await admin.follow(answer)).text
    assert await _offsets(served, "g") == []
