"""A queue whose messages all left the log goes on where it ended, whatever else is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store.derive.queue_ends import QueueEnds
from store.errors import StoreBusyError
from store.light_queue import LMQ_PREFIX
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.consume_queue import LastUnit
    from store.message_store import MessageStore

LIGHT = f"{LMQ_PREFIX}light"


def fill(store: MessageStore) -> None:
    """A and a light queue end in the first of several segments, which has expired then."""
    store.put([Message("A", b"x", light_queues=(LIGHT,))] * 3)
    for _ in range(200):
        store.put([Message("B", b"x" * 1000)])
    store.flush()


def expire(store: MessageStore, clock: FakeClock) -> int:
    clock.advance(100 * 3600)
    return store._services.retention.run_once(now=True)


def kept(store: MessageStore) -> list[LastUnit]:
    return sorted(unit for page in store.metadata.last_units() for unit in page)


def lose(root: Path) -> None:
    shutil.rmtree(root / "kvcq")


def test_offsets_go_on_when_the_database_is_lost_after_a_removal(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        assert expire(store, clock) > 0
        before = store.bounds([("A", 0), ("B", 0), (LIGHT, 0)])
        assert before[0] == before[2] == (3, 3)
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), ("B", 0), (LIGHT, 0)]) == before
        assert store.put([Message("A", b"y", light_queues=(LIGHT,))]).requests[0][:3] == ("A", 0, 3)
    # They go on in the log now, and that is what counts.
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(3, 4), (3, 4)]
        assert store.pull(LIGHT, 0, 3).records


@pytest.mark.parametrize("moment", ["before it goes", "when it is gone"])
def test_a_kill_around_a_removal_and_the_loss_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root, image, clock = tmp_path / "store", tmp_path / "killed", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        drop = store.log._segments.drop_first

        def killed() -> None:
            if moment == "when it is gone":
                drop()
            copy_open(root, image)
            raise OSError("killed")

        monkeypatch.setattr(store.log._segments, "drop_first", killed)
        with pytest.raises(OSError, match="killed"):
            expire(store, clock)
        ends = [store.queues.next_offsets([queue])[0] for queue in (("A", 0), (LIGHT, 0))]
    lose(image)
    with open_small(image, clock) as store:
        assert store.queues.next_offsets([("A", 0), (LIGHT, 0)]) == ends == [3, 3]
        low = 0 if moment == "before it goes" else 3
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(low, 3), (low, 3)]


def test_a_queue_whose_last_message_a_power_loss_takes_goes_on_where_it_ended(
    tmp_path: Path,
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        assert expire(store, clock) > 0
    with open_small(root, clock) as store:  # one that has removed segments before
        store.put([Message("Q", b"x")] * 10)
        for _ in range(200):
            store.put([Message("B", b"x" * 1000)])
        store.flush()
        clock.advance(100 * 3600)
        store.put([Message("Q", b"last")])  # acknowledged, and not durable yet
        assert store.expire() > 0
        durable = store.flushed_offset
        copy_open(root, tmp_path / "lost")
    # The power fails right behind the removal: what was not flushed is gone.
    for segment in (tmp_path / "lost" / "commitlog").iterdir():
        zero_from(segment, durable - int(segment.name))
    with open_small(tmp_path / "lost", clock) as store:
        end = store.bounds([("Q", 0)])[0].max_offset
        assert end >= 10
    lose(tmp_path / "lost")
    with open_small(tmp_path / "lost", clock) as store:
        assert store.bounds([("Q", 0)])[0].max_offset == end
        assert store.put([Message("Q", b"y")]).requests[0].queue_offset == end


def zero_from(segment: Path, position: int) -> None:
    with segment.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(min(size, max(0, position)))
        file.write(bytes(size - file.tell()))


def test_nothing_goes_when_the_ends_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)

        def fail() -> None:
            raise OSError("no sync")

        with monkeypatch.context() as patched:
            patched.setattr(store.metadata, "sync", fail)
            with pytest.raises(OSError, match="no sync"):
                expire(store, clock)
        assert store.log.start_offset == 0
        assert expire(store, clock) > 0


def test_a_stall_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        put = store.metadata.put_last_units
        calls: list[int] = []

        def stall(units: Sequence[LastUnit]) -> None:
            calls.append(len(units))
            if len(calls) < 3:
                raise StoreBusyError("stalls")
            put(units)

        monkeypatch.setattr(store.metadata, "put_last_units", stall)
        assert expire(store, clock) > 0
        assert len(calls) == 3
        assert {unit.topic for unit in kept(store)} == {"A", LIGHT}


def test_only_queues_that_end_in_what_goes_are_kept_and_each_once(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        expire(store, clock)
        first = kept(store)
        assert [(unit.topic, unit.queue_offset) for unit in first] == [(LIGHT, 2), ("A", 2)]
        for _ in range(200):
            store.put([Message("C", b"x" * 1000)])
        store.flush()
        expire(store, clock)
        assert [(unit.topic, unit.queue_offset) for unit in kept(store)] == [
            (LIGHT, 2),
            ("A", 2),
            ("B", 199),
        ]


@pytest.mark.parametrize("name", ["A", LIGHT])
def test_p9_a_deleted_topic_takes_its_end_along(tmp_path: Path, name: str) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        expire(store, clock)
        store.delete_topic(name)
        assert name not in {unit.topic for unit in kept(store)}
    lose(root)
    with open_small(root, clock) as store:
        assert store.queues.next_offsets([(name, 0)]) == [0]


@pytest.mark.parametrize("name", ["A", LIGHT])
def test_p9_a_topic_deleted_while_ends_are_kept_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Between the look at the queues and the row that is put."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        look: Callable[..., object] = store.queues.last_units_between

        def look_and_delete(start: int, end: int) -> object:
            for page in look(start, end):  # type: ignore[attr-defined]
                store.delete_topic(name)
                yield page

        monkeypatch.setattr(store.queues, "last_units_between", look_and_delete)
        assert expire(store, clock) > 0
        assert {unit.topic for unit in kept(store)} == {"A", LIGHT} - {name}


def test_an_end_of_an_earlier_topic_of_the_name_is_not_taken(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        expire(store, clock)
        ends = kept(store)
        store.delete_topic("A")
        store.create_topics([("A", 1)])
        store.metadata.put_last_units(ends)  # as if the deletion had left them
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0)]) == [(0, 0)]


def test_ends_from_before_anything_kept_them_are_kept_on_opening(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        store._services.retention._before_drop = lambda _start, _end: None  # an older release
        assert expire(store, clock) > 0
        assert kept(store) == []
    with open_small(root, clock) as store:
        assert {unit.topic for unit in kept(store)} == {"A", LIGHT}
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(3, 3), (3, 3)]


def test_ends_from_before_are_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        expire(store, clock)
    with open_small(root, clock):
        pass
    looks: list[tuple[int, int]] = []
    monkeypatch.setattr(QueueEnds, "keep", lambda _self, *place: looks.append(place))
    with open_small(root, clock):
        assert looks == []
