"""What no page sees: foreign hosts and origins, strangers, changes by those who may look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.guard import SECURITY_HEADERS, host_name
from store.errors import DamagedQueueError
from tests.support.consoles import console_of

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served

#: Each way to change something, with a form that would be taken.
CHANGES = {
    "/topics/create": {"name": "made", "queues": "2"},
    "/topics/keep": {"name": "orders", "messages": "1"},
    "/topics/delete": {"name": "orders", "typed": "orders"},
    "/groups/reset": {"group": "g", "topic": "orders", "to": "earliest"},
    "/groups/delete": {"name": "g", "typed": "g"},
    "/groups/reset-shared": {"group": "g", "topic": "orders", "to": "earliest"},
    "/groups/update": {"name": "g", "invisible": "1m", "flight": "10", "keep": "1d"},
    "/groups/pause": {"name": "g"},
    "/groups/resume": {"name": "g"},
    "/delayed/recall": {"topic": "orders", "handle": "h"},
    "/transactions/decide": {"id": "t", "decision": "commit"},
    "/lite-topics/make": {"topic": "chats"},
    "/lite-topics/delete": {"parent": "chats", "name": "a", "typed": "a"},
    "/dead-letters/redrive": {"group": "g"},
    "/jobs/start": {"kind": "compact"},
    "/jobs/cancel": {"job": "x"},
    "/migration/step": {"step": "start"},
}


def test_every_way_to_change_something_is_tried_here() -> None:
    from server.console import PAGES

    assert {path for page in PAGES for path in page.does} == set(CHANGES)


async def _topics(served: Served) -> list[str]:
    found = await served.topics.ListTopics(pb.ListTopicsRequest())
    return [topic.name for topic in found.topics]


async def _orders(served: Served) -> None:
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="orders")])
    )


async def test_who_may_not_administer_changes_nothing(
    served: Served, console: ConsoleClient
) -> None:
    await _orders(served)
    for path, form in CHANGES.items():
        answer = await console.post(path, form)
        assert answer.status == 403, path
        assert "only administrators" in answer.text
    assert await _topics(served) == ["orders"]


async def test_a_browser_of_another_origin_changes_nothing(
    served: Served, admin: ConsoleClient
) -> None:
    for headers in [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "-"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ]:
        await _orders(served)
        for path, form in CHANGES.items():
            answer = await admin.post(path, form, **headers)
            assert answer.status == 403, path
            assert "was not sent by a page of this console" in answer.text
        for path in ("/sign-in", "/sign-out", "/preferences"):
            answer = await admin.post(path, {"theme": "dark"}, **headers)
            assert answer.status == 403, path
            assert "Set-Cookie" not in answer.headers
        assert await _topics(served) == ["orders"]
        assert (await admin.get("/")).status == 200


async def test_a_name_that_leads_here_from_elsewhere_sees_nothing(console: ConsoleClient) -> None:
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "[::1",
    ]:
        answer = await console.get("/topics", Host=host)
        assert answer.status == 421
        assert "server.console_names" in answer.text


async def test_addresses_and_names_of_its_own_are_known(served: Served) -> None:
    for host in ["localhost", "LOCALHOST:9", "10.1.2.3:80", "[::1]:8088", "kv.q", "KV.q"]:
        async with console_of(served, names=["Kv.q"]) as console:
            assert (await console.get("/topics", Host=host)).status == 200


@pytest.mark.parametrize(
    ("host", "wanted"),
    [("a:1", "a"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("[::1", None), ("", None), ("A", "a")],
)
def test_the_name_in_a_host_header(host: str, wanted: str | None) -> None:
    assert host_name(host) == wanted


async def test_every_answer_keeps_other_origins_out(console: ConsoleClient) -> None:
    for path in ["/", "/topic?name=none", "/none", "/static/console.css", "/live"]:
        answer = await console.get(path, Origin="https://evil.example")
        assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert not any(name.startswith("Access-Control") for name in answer.headers)
        policy = answer.headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy


async def test_pages_have_no_script_or_style_of_their_own(console: ConsoleClient) -> None:
    for path in ["/", "/topics", "/none"]:
        html = (await console.get(path)).html
        assert "<script>" not in html
        assert " style=" not in html
        assert "<style" not in html
        assert " on" not in {part[:3] for part in html.split('"')}
        assert "hx-on" not in html


async def test_other_methods_are_refused(console: ConsoleClient) -> None:
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]:
        answer = await console._ask(method, "/topics", {"Origin": console.origin})
        assert answer.status == 405
        answer = await console._ask(method, "/topics", {"Origin": "https://evil.example"})
        assert answer.status == 403


async def test_a_form_that_is_too_large_is_refused(admin: ConsoleClient) -> None:
    answer = await admin.post("/topics/create", {"name": "x" * 100_000})
    assert answer.status == 413
    assert (await admin.get("/topics")).status == 200


async def test_an_error_of_the_server_is_told_and_counted(console: ConsoleClient) -> None:
    answer = await console.get("/topic?name=no-such")
    assert answer.status == 404
    assert "no topic 'no-such'" in answer.text
    assert "UNKNOWN_TOPIC" in answer.text
    assert "Console UNKNOWN_TOPIC 1" in (await console.get("/")).text


async def test_what_nobody_expected_is_told_without_its_details(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(served.store, "list_topics", broken)
    answer = await console.get("/topics")
    assert answer.status == 500
    assert "internal error" in answer.text
    assert "secret detail" not in answer.html


async def test_damage_is_told(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise DamagedQueueError("orders", 0, 3, "a hole")

    monkeypatch.setattr(served.store, "list_topics", damaged)
    answer = await console.get("/topics")
    assert answer.status == 500
    assert "DAMAGED_QUEUE" in answer.text


async def test_a_refused_chart_is_json(served: Served, console: ConsoleClient) -> None:
    answer = await console.get("/live", Host="evil.example")
    assert answer.status == 421
    assert answer.headers["Content-Type"].startswith("application/json")
