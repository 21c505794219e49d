"""kvcq put --delay | --at, and kvcq timers, against a server of its own."""

from __future__ import annotations

from tests.support.command_line import answer_of, kvcq


def test_a_delayed_message_is_listed_and_recalled(target: str) -> None:
    put = answer_of("put", "later", "x", "--delay", "2h", server=target)
    at = answer_of("put", "later", "y", "--at", "2001-01-01T00:00", server=target)
    assert at["deliverAtMs"] < put["deliverAtMs"]
    (listed,) = [
        one
        for one in answer_of("timers", "list", "later", server=target)
        if one["handle"] == put["handle"]
    ]
    assert listed["deliverAtMs"] == put["deliverAtMs"]
    first = answer_of("timers", "recall", "later", put["handle"], server=target)
    assert first == {"outcomes": ["recalled"]}
    second = kvcq("timers", "recall", "later", put["handle"], server=target)
    assert second.exit_code == 0
    assert "already delivered or recalled" in second.stderr
    both = kvcq("put", "later", "z", "--delay", "1s", "--at", "now", server=target)
    assert both.exit_code == 2
