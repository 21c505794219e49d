"""kvcq lite, and kvcq put --lite, against a real server."""

from __future__ import annotations

import pytest

from tests.support.command_line import answer_of, kvcq

pytestmark = pytest.mark.integration


def test_lite_topics_are_made_filled_listed_and_deleted(target: str) -> None:
    made = kvcq("lite", "create", "agents", "--expire", "7d", server=target)
    assert made.exit_code == 0, made.output
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
    refused = kvcq("put", "agents", "hello", "--lite", "a b", server=target)
    assert refused.exit_code != 0
