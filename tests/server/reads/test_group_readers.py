"""server/reads/group_readers.py: who follows a queue of a group first."""

from __future__ import annotations

from server.reads.group_readers import (
    MAX_QUEUES_COMPARED,
    MAX_READERS_COMPARED,
    GroupReaders,
)

Q = ("orders", 0)


def test_the_later_of_two_hears_of_the_earlier_once() -> None:
    groups = GroupReaders()
    first = groups.join("g", "a", "host:1", {Q})
    second = groups.join("g", "b", "host:2", {Q})
    assert groups.shared(first, [Q]) is None
    found = groups.shared(second, [("orders", 1), Q])
    assert found == (first, Q)
    assert groups.shared(second, [Q]) is None
    groups.leave(first)
    third = groups.join("g", "c", "host:3", {Q})
    assert groups.shared(third, [Q]) == (second, Q)
    groups.leave(second)
    groups.leave(third)
    assert not groups._by_group


def test_a_stream_is_not_told_of_its_own_reader_but_of_one_without_a_name() -> None:
    groups = GroupReaders()
    groups.join("g", "a", "host:1", {Q})
    assert groups.shared(groups.join("g", "a", "host:2", {Q}), [Q]) is None
    groups.join("h", "", "host:1", {Q})
    assert groups.shared(groups.join("h", "", "host:2", {Q}), [Q]) is not None


def test_a_look_is_bounded() -> None:
    groups = GroupReaders()
    looked: list[object] = []

    class Follows:
        def __contains__(self, queue: object) -> bool:
            looked.append(queue)
            return False

    for number in range(1000):
        groups.join("g", str(number), "host:1", Follows())
    last = groups.join("g", "last", "host:1", ())
    assert groups.shared(last, (("t", number) for number in range(100_000))) is None
    assert len(looked) == MAX_QUEUES_COMPARED * MAX_READERS_COMPARED
