"""Dead letters are kept as long as their group says, whatever the log keeps, and no longer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import inspect_store
from store.errors import DiskFullError
from store.held import moving, rolling
from store.log.disk import DiskLevel
from store.message import Message
from store.metadata import SharedGroup
from store.state import Tables
from tests.store.groups.test_dead_letters import DLQ, bury, letters, put_letter, said
from tests.store.groups.test_shared import put, receive, texts
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

HOUR = 3600.0
DAYS_30 = 30 * 24 * HOUR


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store", clock, reserved_hours=1) as opened:
        yield opened


def fill(store: MessageStore, segments: int = 1) -> None:
    """Other messages, so many segments of them."""
    for _ in range(segments):
        store.put([Message("filler", bytes(20_000)) for _ in range(4)])


def drop(store: MessageStore) -> int:
    """Segments that went in one run."""
    with store._upkeep.checkpoints.lock:
        store._upkeep.checkpoints.flush()
    return store._services.retention.run_once(now=True)


def drop_all(store: MessageStore, clock: FakeClock) -> None:
    """All but the last segment go."""
    fill(store)
    clock.advance(2 * HOUR)
    count = 0
    while drop(store):
        count += 1
    assert count, "nothing went"
    store.wait_visible()


def test_dead_letters_outlive_their_segments(store: MessageStore, clock: FakeClock) -> None:
    put(store, *[f"{n}" for n in range(10)])
    bury(store, clock)
    before = store.groups.list_dead_letters("g")
    store.groups.redrive("g", [2])
    store.groups.delete_dead_letters("g", [3])
    for _ in range(3):
        drop_all(store, clock)
        assert letters(store) == [f"{n}" for n in range(10) if n not in (2, 3)]
        after = store.groups.list_dead_letters("g")
        same = [each for each in before if each.offset not in (2, 3)]
        assert [each[:1] + each[2:8] for each in after] == [each[:1] + each[2:8] for each in same]
        assert differences(store) == []
    assert store.statistics()["store.dead_letters_moved"] == 24
    assert store.groups.list_dead_letters("g", after=4, limit=2)[1].offset == 6


@pytest.mark.parametrize("was_moved", [False, True])
@pytest.mark.parametrize("is_looked_at_before", [False, True])
def test_letters_that_are_moved_while_they_are_listed_are_listed_once(
    store: MessageStore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    was_moved: bool,
    is_looked_at_before: bool,
) -> None:
    put(store, *[f"{n}" for n in range(10)])
    bury(store, clock)
    if was_moved:
        drop_all(store, clock)
    live_places = Tables.live_places

    def moving(tables: Tables, topic: str, first: int, end: int) -> Iterator[int]:
        monkeypatch.undo()
        before = list(live_places(tables, topic, first, end))
        store.rolling.keep_below(store.log.appended_offset, is_pressed=False)
        store.wait_visible()
        return iter(before) if is_looked_at_before else live_places(tables, topic, first, end)

    monkeypatch.setattr(Tables, "live_places", moving)
    assert letters(store) == [f"{n}" for n in range(10)]
    assert store.statistics()["store.dead_letters_moved"] == 10 + 10 * was_moved


def test_what_was_moved_is_redriven_and_deleted_by_its_name(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, *[f"{n}" for n in range(6)])
    bury(store, clock)
    drop_all(store, clock)
    put(store, "new")
    bury(store, clock)
    assert [each.offset for each in store.groups.list_dead_letters("g")] == [0, 1, 2, 3, 4, 5, 12]
    assert said(store.groups.redrive("g", [1])) == (1, 0, True)
    place = store.groups.list_dead_letters("g")[0].place
    assert store.groups.delete_dead_letters("g", [2, place])[0] == 1
    assert said(store.groups.redrive("g", [1, 2, place])) == (0, 0, True)
    assert letters(store) == ["0", "3", "4", "5", "new"]
    assert said(store.groups.redrive("g")) == (5, 0, True)
    assert sorted(texts(receive(store))) == ["0", "1", "3", "4", "5", "new"]
    assert differences(store) == []


def test_they_end_when_their_time_is_over(store: MessageStore, clock: FakeClock) -> None:
    put(store, "old")
    bury(store, clock)
    for _ in range(5):
        drop_all(store, clock)
    put(store, "new")
    bury(store, clock)
    store.groups.keeping.look()
    assert letters(store) == ["old", "new"]
    clock.advance(DAYS_30 - 10 * HOUR)
    assert store.groups.dead_letters("g") == 2
    store.groups.keeping.look()
    assert letters(store) == ["new"]
    clock.advance(10 * HOUR)
    drop_all(store, clock)  # its time is over when its segment goes
    assert letters(store) == []
    assert store.statistics()["store.dead_letters_expired"] == 2
    assert said(store.groups.redrive("g", [0])) == (0, 0, True)
    assert differences(store) == []


def test_a_clock_that_jumps_ends_none(store: MessageStore, clock: FakeClock) -> None:
    put(store, "a")
    bury(store, clock)
    clock.jump(100 * DAYS_30)
    store.groups.keeping.look()
    assert letters(store) == ["a"]


def test_a_clock_that_is_set_back_ends_none(store: MessageStore, clock: FakeClock) -> None:
    """Neither those from before, nor those that come while it is behind."""
    put(store, "before")
    bury(store, clock)
    clock.jump(-2 * DAYS_30)
    put(store, "behind")
    bury(store, clock)
    store.groups.keeping.look()
    assert letters(store) == ["before", "behind"]
    clock.jump(2 * DAYS_30)
    clock.advance(HOUR)
    store.groups.keeping.look()
    assert letters(store) == ["before", "behind"]


def test_a_change_of_the_time_counts_for_those_that_are_there(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, "a")
    bury(store, clock)
    clock.advance(HOUR)
    store.groups.update("g", SharedGroup(dead_letters_keep_ms=60_000))
    store.groups.keeping.look()
    assert letters(store) == []
    store.groups.update("g", SharedGroup())
    store.groups.keeping.look()
    assert letters(store) == []


def test_other_groups_letters_go_with_the_log(store: MessageStore, clock: FakeClock) -> None:
    put(store, "a")
    bury(store, clock)
    store.delete_group("g")
    drop_all(store, clock)
    assert store.groups.dead_letters("g") == 0
    assert store.groups.list_dead_letters("g") == []


def test_work_is_bounded_and_the_segment_waits_for_the_rest(
    store: MessageStore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rolling, "_MOST_MOVED", 40)
    put(store, *[f"{n}" for n in range(100)])
    bury(store, clock)
    fill(store, 2)
    clock.advance(2 * HOUR)
    with caplog.at_level(logging.WARNING):
        assert drop(store) == 0
    assert "is kept until dead letters of group 'g' are appended again" in caplog.text
    assert store.statistics()["store.dead_letters_moved"] == 40
    assert letters(store) == [f"{n}" for n in range(100)]
    assert drop(store) == 0
    assert drop(store) > 0
    assert store.statistics()["store.dead_letters_moved"] == 100
    assert letters(store) == [f"{n}" for n in range(100)]
    assert differences(store) == []


def test_a_full_disk_waits_for_none(
    store: MessageStore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What fits into one run is kept all the same; the rest is given up, and counted."""
    monkeypatch.setattr(rolling, "_MOST_MOVED", 32)
    put(store, *[f"{n}" for n in range(100)])
    bury(store, clock)
    fill(store, 2)
    clock.advance(2 * HOUR)
    guard = store._services.retention._guard
    monkeypatch.setattr(guard, "measure", lambda: DiskLevel.CLEAN_FORCIBLY)
    assert drop(store) > 0
    assert "36 dead letters of group 'g' are lost with the dropped log" in caplog.text
    assert store.statistics()["store.dead_letters_given_up"] == 36
    assert letters(store) == [f"{n}" for n in range(64)]
    assert said(store.groups.redrive("g")) == (64, 0, True)
    assert differences(store) == []


def test_many_dead_letters_cost_no_transaction_and_no_delayed_message(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_MOST_MOVED", 32)
    put(store, *[f"{n}" for n in range(100)])
    bury(store, clock)
    store.timers.put([Message("later", b"x")], [clock.now_ms() + 100 * 3_600_000])
    transaction_id = store.halves.begin(Message("later", b"y"), "shop")
    fill(store, 2)
    clock.advance(2 * HOUR)
    guard = store._services.retention._guard
    monkeypatch.setattr(guard, "measure", lambda: DiskLevel.CLEAN_FORCIBLY)
    while drop(store):
        pass
    assert store.statistics()["store.dead_letters_given_up"] > 0
    assert store.statistics()["store.timers_given_up"] == 0
    store.halves.end(transaction_id, commit=True)
    assert differences(store) == []


@pytest.mark.parametrize("takes_some", [True, False], ids=["pressed", "full"])
def test_a_full_disk_gives_up_what_is_in_the_first_segment_and_no_more(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, takes_some: bool
) -> None:
    """The next run has room again, and moves what is in the next one."""
    monkeypatch.setattr(rolling, "_MOST_MOVED", 40)
    monkeypatch.setattr(moving, "_TOGETHER", 40)
    for _ in range(4):
        due_ms = clock.now_ms() + 100 * 3_600_000
        store.timers.put([Message("later", b"x") for _ in range(30)], [due_ms] * 30)
        fill(store)
    clock.advance(2 * HOUR)

    def full(*_: object, **__: object) -> int:
        raise DiskFullError("no space")

    guard = store._services.retention._guard
    monkeypatch.setattr(guard, "measure", lambda: DiskLevel.FULL)
    with monkeypatch.context() as patched:
        if not takes_some:
            patched.setattr(store._appends, "decide_steps", full)
        assert drop(store) > 0
    while drop(store):
        pass
    given_up = 0 if takes_some else 30
    assert store.statistics()["store.timers_given_up"] == given_up
    assert store.statistics()["store.timers_moved"] == 120 - given_up
    assert differences(store) == []


def test_a_disk_that_takes_nothing_holds_no_segment(
    store: MessageStore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(store, *[f"{n}" for n in range(10)])
    bury(store, clock)
    drop_all(store, clock)
    moved = [each.place for each in store.groups.list_dead_letters("g")]
    assert moved == list(range(10, 20))
    fill(store, 2)
    clock.advance(2 * HOUR)

    def full(*_: object, **__: object) -> int:
        raise DiskFullError("no space")

    guard = store._services.retention._guard
    monkeypatch.setattr(guard, "measure", lambda: DiskLevel.FULL)
    with monkeypatch.context() as patched:
        patched.setattr(store._appends, "decide_steps", full)
        assert drop(store) > 0
    assert "cannot be appended again to keep them: no space" in caplog.text
    assert store.statistics()["store.dead_letters_given_up"] == 10
    assert letters(store) == []
    # Nothing is left of them but where they were moved, and that goes.
    assert store.tables.moved_letters(DLQ, -1, 99)
    store.groups.keeping.look()
    assert store.tables.moved_letters(DLQ, -1, 99) == []
    assert store.statistics()["store.dead_letters_expired"] == 0


def test_with_room_a_lack_holds_the_segment(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "a")
    bury(store, clock)
    fill(store, 2)
    clock.advance(2 * HOUR)

    def full(*_: object, **__: object) -> int:
        raise DiskFullError("no space for a moment")

    with monkeypatch.context() as patched:
        patched.setattr(store._appends, "decide_steps", full)
        assert drop(store) == 0
    assert drop(store) > 0
    assert letters(store) == ["a"]


def test_somebody_puts_to_the_topic_of_dead_letters_meanwhile(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place that a letter moves to is that of its record, whoever came first."""
    put(store, "a", "b")
    bury(store, clock)
    fill(store, 2)
    clock.advance(2 * HOUR)
    decide = store._appends.decide_steps
    calls = []

    def other_first(steps: object, *, wait: bool) -> int:
        calls.append(steps)
        if len(calls) == 1:
            put_letter(store, b"by hand")
        return decide(steps, wait=wait)  # type: ignore[arg-type]

    monkeypatch.setattr(store._appends, "decide_steps", other_first)
    assert drop(store) > 0
    store.wait_visible()
    found = store.groups.list_dead_letters("g")
    assert [(each.offset, each.place) for each in found] == [(0, 3), (1, 4), (2, 2)]
    assert letters(store) == ["a", "b", "by hand"]


def test_forged_names_change_no_other_letter(store: MessageStore, clock: FakeClock) -> None:
    put(store, "a", "b")
    bury(store, clock)
    drop_all(store, clock)
    forged = {"DLQ_LETTER_OFFSET": "0", "DLQ_LETTER_TIME": "9" * 18, "DLQ_ORIGIN_TOPIC": "T"}
    put_letter(store, b"forged", forged)
    store.wait_visible()
    found = store.groups.list_dead_letters("g")
    assert [(each.offset, each.place) for each in found] == [(0, 2), (1, 3), (4, 4)]
    assert found[-1].time_ms == clock.now_ms()
    drop_all(store, clock)
    assert letters(store) == ["a", "b", "forged"]
    assert said(store.groups.redrive("g", [0, 4])) == (2, 0, True)
    assert letters(store) == ["b"]


def test_it_is_the_same_after_a_restart_and_in_the_check(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_small(root, clock, reserved_hours=1) as store:
        put(store, *[f"{n}" for n in range(5)])
        bury(store, clock)
        drop_all(store, clock)
        store.groups.redrive("g", [1])
    assert not [each for each in inspect_store(root).findings if each.is_fault]
    with open_small(root, clock, reserved_hours=1) as store:
        assert letters(store) == ["0", "2", "3", "4"]
        drop_all(store, clock)
        assert letters(store) == ["0", "2", "3", "4"]
        assert said(store.groups.redrive("g", [0, 1])) == (1, 0, True)
        assert differences(store) == []


def test_what_its_topic_dropped_is_counted(store: MessageStore, clock: FakeClock) -> None:
    """What was in flight, and what the group was never given; not what was there before it."""
    put(store, "a", "b", "c")
    receive(store, max_messages=1, invisible_ms=1)
    fill(store, 2)
    drop_all(store, clock)
    put(store, "d")
    assert texts(receive(store)) == ["d"]
    store.groups.receive("late", "T")
    found = store.statistics()
    assert (found["store.shared_gone"], found["store.shared_expired"]) == (1, 2)
    assert differences(store) == []
