"""kvcq lite, and kvcq put --lite, against a real server."""

from __future__ import annotations

import pytest

from kvcq_client import Client, LiteSettings
from tests.support.command_line import answer_of, kvcq

pytestmark = pytest.mark.integration


def test_lite_topics_are_made_filled_listed_and_deleted(target: str) -> None:
    made = answer_of("lite", "create", "agents", "--expire", "7d", server=target)
    assert made == {"topic": "agents", "expiryMs": 7 * 86_400_000}
    for session in ("one", "two", "other"):
        kvcq("put", "agents", "hello", "--lite", session, server=target)
    assert answer_of("lite", "list", "agents", server=target) == ["one", "two", "other"]
    assert answer_of("lite", "list", "agents", "--prefix", "o", server=target) == ["one", "other"]
    asked = kvcq("lite", "delete", "agents", "one", server=target)
    assert asked.exit_code != 0
    assert "kvcq lite delete agents one --yes" in asked.output
    done = answer_of("lite", "delete", "agents", "one", "never", "--yes", server=target)
    assert done == {"deleted": 1}
    short = kvcq("lite", "list", "agents", "--limit", "1", server=target)
    assert "there are more" in short.output
    short = kvcq("lite", "list", "agents", "--limit", "1", "--json", server=target)
    assert "there are more" in short.stderr
    refused = kvcq("put", "agents", "hello", "--lite", "a b", server=target)
    assert refused.exit_code != 0
    assert "error: --lite: " in refused.stderr
    soon = kvcq("lite", "create", "agents", "--expire", "1s", server=target)
    assert "error: --expire: 1 s is outside 1 min to 3650 d" in soon.stderr


def test_a_message_for_a_lite_topic_of_no_parent_is_refused(target: str) -> None:
    """Nobody could receive it."""
    kvcq("topic", "create", "plain", server=target)
    for topic, why in (("plain", "is not made for lite topics"), ("nowhere", "does not exist")):
        for more in ((), ("--lines",), ("--delay", "1h")):
            body = () if "--lines" in more else ("hello",)
            put = "put", topic, *body, "--lite", "one", *more
            refused = kvcq(*put, server=target, stdin="a\nb\n")
            assert refused.exit_code == 2
            assert f"--lite: topic {topic!r} {why}" in refused.stderr
            assert f"next:  kvcq lite create {topic}" in refused.stderr
    listed = kvcq("lite", "list", "plain", server=target)
    assert listed.exit_code == 2
    assert "topic: 'plain' is not made for lite topics" in listed.stderr
    assert "nowhere" not in kvcq("topic", "list", server=target).stdout


def test_what_is_advised_where_there_is_no_parent(target: str) -> None:
    kvcq("topic", "create", "other", server=target)
    kvcq("put", "other", "x", "--light-queue", "%LMQ%$nope$tea-1", server=target)
    refused = kvcq("lite", "list", "nope", server=target)
    assert refused.exit_code == 1
    assert "`kvcq lite create nope` creates it" in refused.stderr


def test_what_is_advised_to_who_consumes_for_a_group_of_lite_topics(target: str) -> None:
    with Client(target) as client:
        client.create_lite_parent("chats")
        client.create_group("agents", in_order=True, lite=LiteSettings("chats"))
    refused = kvcq("consume", "chats", "--group", "agents", server=target)
    assert refused.exit_code == 1
    assert "lite topics of 'chats' only: use lite_receiver" in refused.stderr
    assert "kvcq consume '%LMQ%$chats$NAME'" in refused.stderr
    assert "next:  kvcq lite list chats" in refused.stderr
