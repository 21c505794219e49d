"""server/process/line_limit.py by a clock that stands still."""

from __future__ import annotations

import pytest

from server.process.line_limit import ALL_AT_ONCE, REMEMBERED, LineLimit, machine_of

AT_ONCE = 100


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


def test_the_first_are_all_there_and_then_one_a_second_with_a_count() -> None:
    clock = Clock()
    limit = LineLimit(AT_ONCE, clock)
    assert [limit.take(("a",)) for _ in range(AT_ONCE + 3)] == [0] * AT_ONCE + [None] * 3
    assert limit.take(("b",)) == 0, "another caller is not held back"
    clock.s += 1.0
    assert limit.take(("a",)) == 3
    assert limit.take(("a",)) is None
    clock.s += 3600.0
    assert limit.take(("a",)) == 1
    assert [limit.take(("a",)) for _ in range(AT_ONCE)] == [0] * (AT_ONCE - 1) + [None]


def test_callers_are_not_remembered_without_end() -> None:
    clock = Clock()
    limit = LineLimit(AT_ONCE, clock)
    for number in range(REMEMBERED + 50):
        clock.s += 1.0
        assert limit.take((str(number),)) == 0
    assert len(limit._callers) == REMEMBERED


def test_new_callers_without_end_do_not_fill_the_log_either_and_are_counted() -> None:
    clock = Clock()
    limit = LineLimit(1, clock)
    callers = [(str(number),) for number in range(ALL_AT_ONCE + 3 * REMEMBERED)]
    written = [limit.take(caller) for caller in callers].count(0)
    assert written == ALL_AT_ONCE
    clock.s += 1.0
    told = [limit.take((f"later {number}",)) for number in range(100)]
    assert [one for one in told if one is not None] == [2 * REMEMBERED + 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("peer", "machine"),
    [
        ("ipv4:10.0.0.7:51234", "ipv4:10.0.0.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:443", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff::1]:80", "ipv6:2001:db8:1:2::/64"),
        ("http:10.0.0.7", "http:10.0.0.7"),
        ("http:2001:db8:1:2::9", "http:2001:db8:1:2::/64"),
        ("unix:", "unix:"),
        ("", ":"),
    ],
)
def test_a_caller_is_its_machine_whatever_port_or_address_it_takes(peer: str, machine: str) -> None:
    assert machine_of(peer) == machine
