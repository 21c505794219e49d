"""kvcq put --delay | --at, and kvcq timers, against a server of its own."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import answer_of, kvcq


def test_a_delayed_message_is_listed_and_recalled(target: str) -> None:
    put = answer_of("put", "later", "x", "--delay", "2h", server=target)
    at = answer_of("put", "later", "y", "--at", "2001-01-01T00:00", server=target)
    assert at["deliverAtMs"] < put["deliverAtMs"]
    assert "at once" in kvcq("put", "later", "y", "--at", "2001-01-01", server=target).stdout
    assert "at once" not in kvcq("put", "later", "y", "--delay", "2h", server=target).stdout
    (listed,) = [
        one
        for one in answer_of("timers", "list", "later", server=target)
        if one["handle"] == put["handle"]
    ]
    assert listed["deliverAtMs"] == put["deliverAtMs"]
    first = answer_of("timers", "recall", "later", put["handle"], server=target)
    assert first == {"outcomes": ["recalled"]}
    second = kvcq("timers", "recall", "later", put["handle"], server=target)
    assert second.exit_code == 1
    assert "recalled 0" not in second.stderr
    assert "1 message could not be recalled: already delivered or recalled" in second.stderr
    both = kvcq("put", "later", "z", "--delay", "1s", "--at", "now", server=target)
    assert both.exit_code == 2


def test_a_list_of_no_delayed_messages_says_whether_there_is_the_topic(target: str) -> None:
    answer_of("put", "prompt", "x", server=target)
    assert "no delayed messages" in kvcq("timers", "list", "prompt", server=target).stderr
    missing = kvcq("timers", "list", "nosuch", "--json", server=target)
    assert missing.exit_code == 1
    assert json.loads(missing.stderr)["error"]["code"] == "UNKNOWN_TOPIC"


def test_a_recall_that_comes_too_late_for_some_says_so(target: str) -> None:
    first, second = (
        answer_of("put", "some", "x", "--delay", "2h", server=target)["handle"] for _ in range(2)
    )
    answer_of("timers", "recall", "some", first, server=target)
    both = kvcq("timers", "recall", "some", first, second, server=target)
    assert both.exit_code == 1
    assert "recalled 1 message" in both.stderr
    assert "1 message could not be recalled" in both.stderr
    again = kvcq("timers", "recall", "some", first, second, "--json", server=target)
    assert again.exit_code == 1
    assert json.loads(again.stdout) == {"outcomes": ["not waiting"] * 2}
    assert json.loads(again.stderr)["error"]["code"] == "NOT_WAITING"


def test_what_is_no_handle_is_refused_with_the_command_that_lists_them(target: str) -> None:
    refused = kvcq("timers", "recall", "some", "forged", server=target)
    assert refused.exit_code == 2
    assert "error: HANDLES: 'forged' is not the handle" in refused.stderr
    assert "next:  kvcq timers list" in refused.stderr
    no_id = kvcq("get", "forged", server=target)
    assert "next:  kvcq query TOPIC KEY" in no_id.stderr
    assert "`kvcq trace` also takes handles" in no_id.stderr


@pytest.mark.parametrize(
    ("option", "value", "days"),
    [("--delay", "41d", "41 days"), ("--at", "2100-01-01T00:00", "days from now")],
)
def test_a_time_too_far_ahead_names_the_option_and_the_limit(
    target: str, option: str, value: str, days: str
) -> None:
    refused = kvcq("put", "far", "x", option, value, server=target)
    assert refused.exit_code == 2
    assert f"error: {option}: " in refused.stderr
    assert days in refused.stderr
    assert "more than 40 days ahead" in refused.stderr
    assert "far" not in kvcq("topic", "list", server=target).stdout
