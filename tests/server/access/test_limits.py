"""server/access/limits.py by a clock that stands still."""

from __future__ import annotations

import pytest

from server.access.limits import NO_LIMITS, Limits, Usage, check_limits
from server.errors import UserLimitError
from store.errors import InvalidArgumentError


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def usage(limits: Limits) -> tuple[Usage, Clock]:
    clock = Clock()
    return Usage("u", limits, clock), clock


def test_a_second_of_messages_may_go_at_once_and_the_rest_is_waited_for() -> None:
    used, clock = usage(Limits(messages_per_s=100))
    used.count(1 << 30, 60)
    used.check()
    used.count(0, 90)  # what is taken at once may overdraw
    with pytest.raises(UserLimitError, match="100 messages per s"):
        used.check()
    assert used.wait_s() == pytest.approx(0.5)
    clock.s += 0.51
    used.check()
    assert used.wait_s() == 0
    clock.s += 3600
    used.count(0, 100)
    assert used.wait_s() > 0, "an idle hour is not saved up"


def test_bytes_and_messages_are_kept_apart() -> None:
    used, clock = usage(Limits(bytes_per_s=1000, messages_per_s=10))
    used.count(3000, 5)
    with pytest.raises(UserLimitError) as refused:
        used.check()
    assert refused.value.limit == "bytes_per_s"
    clock.s += 2.1
    used.check()


def test_calls_and_connections_are_counted_while_they_are_under_way() -> None:
    used, _ = usage(Limits(connections=2, calls=3))
    used.begin("a")
    used.begin("b")
    with pytest.raises(UserLimitError) as refused:
        used.begin("c")
    assert refused.value.limit == "connections"
    used.begin("b")
    with pytest.raises(UserLimitError) as refused:
        used.begin("a")
    assert refused.value.limit == "calls"
    used.end("a")
    used.begin("c")
    for peer in "bbc":
        used.end(peer)
    assert used.is_idle


def test_a_stream_that_carries_calls_takes_the_place_of_none() -> None:
    used, _ = usage(Limits(connections=1, calls=1))
    for _ in range(4):
        used.begin("a", carries=True)
    used.begin("a")
    for carries in (True, False):
        with pytest.raises(UserLimitError) as refused:
            used.begin("a", carries=carries)
        assert refused.value.limit == "calls"
    used.end("a")
    used.begin("a")
    used.end("a")
    assert not used.is_idle
    for _ in range(4):
        used.end("a", carries=True)
    assert used.is_idle


def test_limits_hold_from_the_moment_they_are_set() -> None:
    used, clock = usage(NO_LIMITS)
    used.count(1 << 40, 1 << 40)
    used.check()
    used.limits = Limits(messages_per_s=10)
    used.check()
    used.count(0, 11)
    with pytest.raises(UserLimitError):
        used.check()
    used.limits = Limits(messages_per_s=1000)
    clock.s += 0.01
    used.check()
    used.limits = NO_LIMITS
    used.check()


async def test_a_pause_ends_when_the_limit_does() -> None:
    used = Usage("u", Limits(messages_per_s=1000))
    used.count(0, 1010)
    assert used.wait_s() > 0
    await used.pause()
    assert used.wait_s() == 0


@pytest.mark.parametrize("name", Limits._fields)
def test_bounds(name: str) -> None:
    for value in (-1, (1 << 50) + 1):
        with pytest.raises(InvalidArgumentError) as refused:
            check_limits(NO_LIMITS._replace(**{name: value}))
        assert refused.value.field == f"limits.{name}"
    assert check_limits(NO_LIMITS._replace(**{name: 1 << 50}))
