"""Shared groups: where they are, their settings, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from tests.server.services.test_group_positions import dead, letters
from tests.server.services.test_shared_group import receive

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


async def _fill(served: Served, count: int = 4) -> None:
    messages = [kvcq_pb2.Message(topic="orders", queue_id=0, body=b"x")] * count
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=messages))


async def _settings(served: Served) -> pb.SharedGroupSettings:
    answer = await served.shared.DescribeGroup(pb.DescribeGroupRequest(group="g"))
    found: pb.SharedGroupSettings = answer.settings
    return found


async def test_both_kinds_stand_in_the_list(served: Served, console: ConsoleClient) -> None:
    await _fill(served)
    await receive(served, max_messages=1)
    offset = kvcq_pb2.QueuePosition(topic="orders", queue_id=0, offset=1)
    commit = kvcq_pb2.CommitOffsetsRequest(group="audit", offsets=[offset])
    await served.groups.CommitOffsets(commit)
    page = await console.get("/groups")
    assert "audit reader 1 1 3 0 g shared 1 4 4 0" in page.text


async def test_where_a_group_is(served: Served, console: ConsoleClient) -> None:
    await _fill(served)
    found = await receive(served, max_messages=3)
    given = pb.GiveBackRequest(group="g", handles=found.handles[:1], delay_ms=60_000)
    await served.shared.GiveBack(given)
    page = await console.get("/group?name=g")
    assert "Shared group g" in page.text
    assert "2 in flight · 0 dead letters" in page.text
    assert "orders 0 3 4 2 1 4" in page.text
    assert "Members Address User Since" in page.text
    assert "127.0.0.1:" in page.text
    assert "Pause" not in page.text, "that is for administrators"


async def test_settings_are_changed_by_a_form(served: Served, admin: ConsoleClient) -> None:
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g"))
    page = await admin.get("/group?name=g")
    assert 'name="invisible" value="1m"' in page.html
    form = {
        "name": "g",
        "deliveries": "5",
        "invisible": "10m",
        "flight": "100",
        "keep": "7d",
        "backoff": "1s 1m",
    }
    page = await admin.follow(await admin.post("/groups/update", form))
    assert "The settings of the group were changed." in page.text
    settings = await _settings(served)
    assert (settings.max_deliveries, settings.invisible_ms) == (5, 600_000)
    assert (settings.most_in_flight, [*settings.backoff.delays_ms]) == (100, [1000, 60_000])
    assert settings.dead_letters_keep_ms == 7 * 86_400_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deliveries", "x"),
        ("deliveries", "0"),
        ("invisible", "13h"),
        ("invisible", ""),
        ("flight", "0"),
        ("keep", "soon"),
        ("backoff", "1s x"),
    ],
)
async def test_a_form_that_is_wrong_changes_nothing(
    served: Served, admin: ConsoleClient, field: str, value: str
) -> None:
    made = await served.shared.CreateGroup(pb.CreateGroupRequest(group="g"))
    form = {"name": "g", "invisible": "10m", "flight": "100", "keep": "7d", field: value}
    answer = await admin.post("/groups/update", form)
    assert answer.status == 400
    assert await _settings(served) == made.settings


async def test_a_group_is_paused_and_goes_on(served: Served, admin: ConsoleClient) -> None:
    await served.shared.CreateGroup(pb.CreateGroupRequest(group="g"))
    page = await admin.follow(await admin.post("/groups/pause", {"name": "g"}))
    assert "Paused: nothing is delivered" in page.text
    assert (await _settings(served)).paused
    page = await admin.follow(await admin.post("/groups/resume", {"name": "g"}))
    assert "Paused: nothing is delivered" not in page.text
    assert not (await _settings(served)).paused


async def test_a_group_is_reset_and_deleted(served: Served, admin: ConsoleClient) -> None:
    await _fill(served)
    await receive(served)
    form = {"group": "g", "topic": "orders", "to": "earliest"}
    page = await admin.follow(await admin.post("/groups/reset-shared", form))
    assert "orders 0 0 4 0 0 4" in page.text
    answer = await admin.post("/groups/reset-shared", {**form, "to": "soon"})
    assert answer.status == 400
    answer = await admin.post("/groups/delete", {"name": "g", "typed": "g"})
    assert "The group was deleted." in (await admin.follow(answer)).text
    assert served.store.list_groups(None, 10) == []


async def test_dead_letters_are_shown_and_put_back(served: Served, admin: ConsoleClient) -> None:
    await dead(served, 3)
    page = await admin.get("/group?name=g")
    page = await admin.get(page.link("3 dead letters"))
    assert page.text.count("orders") == 3
    [first, *_] = (await letters(served)).letters
    shown = await admin.get(page.link(str(first.offset)))
    assert "%DLQ%g" in shown.text
    form = {"group": "g", "offset": str(first.offset)}
    page = await admin.follow(await admin.post("/dead-letters/redrive", form))
    assert "Put back into the topics that they came from." in page.text
    assert page.text.count("orders") == 2
    page = await admin.follow(await admin.post("/dead-letters/redrive", form))
    assert "Nothing was put back" in page.text
    page = await admin.follow(await admin.post("/dead-letters/redrive", {"group": "g"}))
    assert "The group has no dead letters." in page.text


async def test_who_may_not_administer_sees_no_button(
    served: Served, console: ConsoleClient
) -> None:
    await dead(served, 1)
    page = await console.get("/dead-letters?group=g")
    assert "orders" in page.text
    assert "Redrive" not in page.text
    assert (await console.post("/dead-letters/redrive", {"group": "g"})).status == 403
