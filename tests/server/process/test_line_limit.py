"""server/process/line_limit.py by a clock that stands still."""

from __future__ import annotations

from server.process.line_limit import REMEMBERED, LineLimit

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
    limit = LineLimit(AT_ONCE, Clock())
    for number in range(REMEMBERED + 50):
        assert limit.take((str(number),)) == 0
    assert len(limit._callers) == REMEMBERED
