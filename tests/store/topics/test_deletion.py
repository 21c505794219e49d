"""A deletion is a record: all of it or nothing, in the log's order, and no crash undoes it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.engine.rocks import RocksEngine
from store.config import FlushMode
from store.derive.endings import state_records
from store.errors import DiskFullError, SegmentNotReadyError, StoreBusyError, UnknownTopicError
from store.message import Message
from store.state import MOST_ENDED, STATE_TOPIC, TopicEnded
from tests.support.checked import assert_whole
from tests.support.interrupts import interrupt
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.log import LogAppend
    from store.message_store import MessageStore
    from store.state import Changes, Entry

LIGHT = "%LMQ%a"


def fill(store: MessageStore) -> None:
    store.put([Message("T", b"old", 1, keys=("k",), light_queues=(LIGHT,)), Message("U", b"x")])
    store.commit_offsets("g", [("T", 1, 1), (LIGHT, 0, 1), ("U", 0, 1)])


@pytest.mark.parametrize("mode", list(FlushMode))
@pytest.mark.parametrize("is_flushed", [False, True])
def test_what_is_deleted_stays_so_after_a_kill_at_any_moment_behind_it(
    tmp_path: Path, mode: FlushMode, is_flushed: bool
) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root, flush_mode=mode) as store:
        fill(store)
        if is_flushed:
            store.flush()  # the rows are durable, the deletion of them is not
        store.delete_topics(["T", LIGHT])
        copy_open(root, image)
        shutil.copytree(image, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost" / "kvcq")
    for path in (image, tmp_path / "lost"):
        with open_small(path, flush_mode=mode) as store:
            assert [topic.name for topic in store.list_topics("", None, 9)] == ["U"]
            assert store.list_light_queues("", None, 9) == []
            assert store.list_committed("g", None, 9) == [("U", 0, 1)]
            assert differences(store) == []
            store.put([Message("T", b"new", 1, keys=("k",), light_queues=(LIGHT,))])
            assert bodies(store.pull("T", 1, 0).records) == [b"new"]
            assert bodies(store.pull(LIGHT, 0, 0).records) == [b"new"]
            assert bodies(store.query("T", "k").records) == [b"new"]
        assert_whole(path)


def test_a_message_decides_whether_its_topic_is_of_before_or_after(tmp_path: Path) -> None:
    """Who puts beside a deletion has a message of the old topic, or begins a new one."""
    with open_small(tmp_path / "store") as store, ThreadPoolExecutor() as pool:
        for number in range(60):
            putting = [
                pool.submit(store.put, [Message("T", b"%d" % number, light_queues=(LIGHT,))])
                for _ in range(3)
            ]
            deleting = [pool.submit(store.delete_topic, name) for name in ("T", LIGHT)]
            for each in putting:
                each.result(60)
            for deleted in deleting:
                with suppress(UnknownTopicError):
                    deleted.result(60)
        assert differences(store) == []
    assert_whole(tmp_path / "store")


def test_without_room_for_the_record_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        fill(store)
        append = store.log.append

        def full(messages: list[Message], *args: Any, **how: Any) -> object:  # noqa: ANN401
            if messages[0].topic == STATE_TOPIC:
                raise DiskFullError("no room for the record")
            return append(messages, *args, **how)

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "append", full)
            with pytest.raises(DiskFullError):
                store.delete_topic("T")
        assert bodies(store.pull("T", 1, 0).records) == [b"old"]
        assert store.put([Message("T", b"y", 1)]).placed[0].queue_offset == 1
        store.delete_topic("T")
        with pytest.raises(UnknownTopicError):
            store.delete_topic("T")


@pytest.mark.parametrize("step", [293, pytest.param(13, marks=pytest.mark.slow)])
def test_an_interrupt_anywhere_is_mended_by_the_next_deletion(tmp_path: Path, step: int) -> None:
    at, reached = 1, True
    while reached:
        with open_small(tmp_path / f"at-{at}") as store:
            store.put([Message("T", b"1")])
            reached = interrupt(partial(store.delete_topic, "T"), at, packages=("store",))
            with suppress(UnknownTopicError):  # it was deleted
                store.delete_topic("T")
            end = store.put([Message("T", b"2")]).end_offset
            store.wait_visible()
            assert len(store.pull("T", 0, 0, max_messages=9).records) == 1, (at, end)
            assert differences(store) == [], at
        at += step
    assert at > 100


@pytest.mark.parametrize("step", [421, pytest.param(31, marks=pytest.mark.slow)])
def test_an_interrupted_deletion_is_done_or_not(tmp_path: Path, step: int) -> None:
    at, reached = 3, True
    seen: set[bool] = set()
    while reached:
        root = tmp_path / f"at-{at}"
        with open_small(root) as store:
            fill(store)
            reached = interrupt(partial(store.delete_topic, "T"), at, packages=("store",))
            store.wait_visible()
            left = [topic.name for topic in store.list_topics("T", None, 9)]
            copy_open(root, tmp_path / "image", None)
            assert differences(store) == [], at
        with open_small(tmp_path / "image") as store:  # a kill does not decide it anew
            assert [topic.name for topic in store.list_topics("T", None, 9)] == left
            assert store.list_committed("g", None, 9) == [
                *([("T", 1, 1)] if left else []),
                ("U", 0, 1),
                (LIGHT, 0, 1),
            ]
        shutil.rmtree(tmp_path / "image")
        seen.add(bool(left))
        at += step
    assert seen == {True, False}


def test_while_a_deletion_waits_for_dispatch_nothing_of_it_is_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        fill(store)
        stalled, over = Event(), Event()
        apply = store.state.apply

        def stall(changes: Changes, end_offset: int) -> None:
            if changes.ended and not over.is_set():
                stalled.set()
                raise StoreBusyError("RocksDB stalls writes")
            apply(changes, end_offset)

        monkeypatch.setattr(store.state, "apply", stall)
        with ThreadPoolExecutor() as pool:
            try:
                deleting = pool.submit(store.delete_topics, ["T", LIGHT])
                assert stalled.wait(60)
                # Readers are at the dispatch point, decisions at the log's end.
                assert store.bounds([(LIGHT, 0)]) == [(0, 1)]
                for name in ("T", LIGHT):
                    with pytest.raises(UnknownTopicError):
                        store.commit_offsets("g", [(name, 0, 0)])
                appended = store.append([Message("T", b"new", 1, light_queues=(LIGHT,))])
                assert appended.placed[0].queue_offset == 0
                assert appended.placed[0].light_queue_offsets == (0,)
                assert not deleting.done()
            finally:
                over.set()
            deleting.result(60)
        store.wait_visible()
        assert bodies(store.pull("T", 1, 0).records) == [b"new"]
        assert bodies(store.pull(LIGHT, 0, 0).records) == [b"new"]
        assert store.list_committed("g", None, 9) == [("U", 0, 1)]
        assert differences(store) == []


def test_what_dispatch_has_before_the_appender_settles_it_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatching thread, busy with what lies before it, may have a deletion's record in the
    rows as soon as it is in the log."""
    with open_small(tmp_path / "store") as store:
        fill(store)
        append = store.log.append
        reput = store._services.reput

        def dispatched_first(
            messages: list[Message], details: Sequence[Any], publish: Callable[[LogAppend], None]
        ) -> LogAppend:
            def faster(done: LogAppend) -> None:
                reput.dispatch_to(done.end_offset)
                assert reput.dispatched.value == done.end_offset
                publish(done)

            return append(messages, details, faster)

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "append", dispatched_first)
            store.delete_topics(["T", LIGHT])
        put = store.put([Message("T", b"new", 1, light_queues=(LIGHT,))])
        assert put.placed[0].queue_offset == 0
        assert put.placed[0].light_queue_offsets == (0,)
        assert bodies(store.pull("T", 1, 0).records) == [b"new"]
        assert bodies(store.pull(LIGHT, 0, 0).records) == [b"new"]
        assert differences(store) == []


def test_many_light_queues_are_deleted_in_few_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        names = [f"%LMQ%{number:05}" for number in range(2500)]
        for first in range(0, 2500, 500):
            store.put([Message("T", b"x", light_queues=tuple(names[first : first + 500]))])
        before = store.bounds_in_log([(STATE_TOPIC, 0)])[0].max_offset
        with pytest.raises(UnknownTopicError):
            store.delete_topics(["%LMQ%00001", "%LMQ%none"])
        assert store.bounds_in_log([(STATE_TOPIC, 0)])[0].max_offset == before
        assert store.bounds([("%LMQ%00001", 0)]) == [(0, 1)]
        ended: list[int] = []
        store._services.reput._applier.add_listener(lambda done, _at: ended.append(len(done.ended)))
        store.delete_topics([*names[1:], names[1]])
        assert sum(ended) == 2499
        # A record is one step of dispatch: it must not hold it up.
        assert max(ended) <= 64
        assert store.list_light_queues("", None, 9) == names[:1]
        store.put([Message("T", b"y", light_queues=(names[1],))])
        assert store.bounds([(names[1], 0)]) == [(0, 1)]
        differing = differences(store)
        assert differing == []


def test_the_append_lock_is_held_for_some_deletions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        names = [f"%LMQ%{number}" for number in range(700)]
        store.put([Message("T", b"x", light_queues=tuple(names))])
        sizes: list[int] = []
        decide = store._appends.decide

        def counted(entries: Callable[[], Sequence[Entry]]) -> int:
            def noted() -> Sequence[Entry]:
                found = entries()
                sizes.append(len(found))
                return found

            return decide(noted)

        monkeypatch.setattr(store._appends, "decide", counted)
        store.delete_topics(names[:350])
        last_ends = store._topic_changes.last_ends(names[350:])
        found = {name: (1, end) for name, end in last_ends.items()}
        assert store._topic_changes.delete_idle(found) == 350
        assert sum(sizes) == 700
        assert max(sizes) <= MOST_ENDED


@pytest.mark.parametrize("are_idle", [False, True])
def test_a_deletion_of_many_that_waits_for_a_segment_ends_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, are_idle: bool
) -> None:
    with open_small(tmp_path / "store") as store:
        names = [f"%LMQ%{number}" for number in range(250)]
        store.put([Message("T", b"x", light_queues=tuple(names))])
        append, calls = store.log.append, iter(range(1000))

        def not_ready(*args: Any, **how: Any) -> LogAppend:  # noqa: ANN401 - as it takes them
            if next(calls) % 2:
                raise SegmentNotReadyError(0)
            return append(*args, **how)

        monkeypatch.setattr(store.log, "append", not_ready)
        monkeypatch.setattr(store.log, "wait_for_segment", lambda *_: True)
        if are_idle:
            last_ends = store._topic_changes.last_ends(names)
            found = {name: (1, end) for name, end in last_ends.items()}
            assert store._topic_changes.delete_idle(found) == 250
        else:
            store.delete_topics(names)
        monkeypatch.undo()
        assert store.list_light_queues("", None, 1000) == []
        assert differences(store) == []


def test_a_deletion_costs_the_same_however_many_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 0
    scan = RocksEngine.scan

    def counted(self: RocksEngine, *args: Any, **how: Any) -> Any:  # noqa: ANN401
        nonlocal rows
        found = scan(self, *args, **how)
        rows += len(found)
        return found

    monkeypatch.setattr(RocksEngine, "scan", counted)
    costs: list[int] = []
    with open_small(tmp_path / "store", segment_bytes=1 << 20) as store:
        for first in range(0, 5000, 500):
            names = [f"%LMQ%{number}" for number in range(first, first + 500)]
            store.put([Message("T", b"x", light_queues=tuple(names))])
            rows = 0
            store.delete_topics(names)
            costs.append(rows)
        rows = 0
        store.flush()
        assert rows < 10
        assert max(costs) <= min(costs) + 50
        assert len(store._topics._dead._offsets._answers) == 0
        store._topics.view.get(b"t")  # forgets what is dispatched
        assert not store._topics.view._appended


def test_a_topic_that_ends_twice_in_one_record_ends_once(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        fill(store)
        store.delete_topics(["T", "T"])
        ends = [
            entry
            for _, entries in state_records(store.log, store.queues, 0)
            for entry in entries
            if isinstance(entry, TopicEnded)
        ]
        assert ends == [TopicEnded("T")]
