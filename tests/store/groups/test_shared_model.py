"""Shared groups against a model: who has which message, how often, until when.

After every step the state at the log's end, as the appender sees it, is what a replay of the log
makes; and who received nothing, and was told of no change since, would receive nothing now. At the
end of each history everything is done, or is a dead letter, once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from kvcq.inspect import inspect_store
from kvcq.tables.keys import STATE
from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.groups import AtOffset, AtTime, Edge, Outcome
from tests.store.groups.shared_model import GROUPS, LIGHT, TOPICS, SharedModel, Stored, Task
from tests.support.rebuild import rebuilt

if TYPE_CHECKING:
    from store.groups import Where

_END = b"\xff" * 8


class SharedMachine(SharedModel, RuleBasedStateMachine):
    """One store and its model."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        SharedModel.__init__(self)

    def teardown(self) -> None:
        try:
            self.drain()
            self.store.close()
            faults = [each for each in inspect_store(self.directory).findings if each.is_fault]
            assert not faults
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    @rule(
        count=st.integers(1, 12), queue_id=st.integers(0, 1), light=st.booleans(), big=st.booleans()
    )
    def put(self, count: int, queue_id: int, light: bool, big: bool) -> None:
        self.put_messages(count, queue_id, light=light, big=big)

    @rule(
        group=st.sampled_from(list(GROUPS)),
        topic=st.sampled_from(TOPICS),
        most=st.integers(1, 20),
        invisible_s=st.sampled_from((1, 10, 60)),
    )
    def receive(self, group: str, topic: str, most: int, invisible_s: int) -> None:
        if topic == LIGHT and not self.light_is_there:
            try:
                self.store.groups.receive(group, topic)
            except UnknownTopicError:
                return
            raise AssertionError("a light queue without messages")
        self._receive(group, topic, most, invisible_s * 1000)

    @precondition(lambda self: self.handles)
    @rule(
        data=st.data(),
        what=st.sampled_from(("acknowledge", "give_back", "change_invisible")),
        seconds=st.integers(1, 30),
        by_backoff=st.booleans(),
    )
    def answer(self, data: st.DataObject, what: str, seconds: int, by_backoff: bool) -> None:
        """Of some handles of one group, old and new."""
        group = data.draw(st.sampled_from(sorted({one[1] for one in self.handles})))
        mine = [one for one in self.handles if one[1] == group]
        chosen = data.draw(st.lists(st.sampled_from(mine[-30:]), min_size=1, max_size=12))
        handles = [one[0] for one in chosen]
        now_ms, groups = self.clock.now_ms(), self.store.groups
        if what == "acknowledge":
            outcomes = groups.acknowledge(group, handles).outcomes
        elif what == "give_back":
            wait_ms = None if by_backoff else seconds * 1000
            outcomes = groups.give_back(group, handles, wait_ms).outcomes
        else:
            outcomes = groups.change_invisible(group, handles, seconds * 1000).outcomes
        changed = set()
        for (handle, _, topic, place, life), outcome in zip(chosen, outcomes, strict=True):
            task = self.tasks[group, topic].get(place)
            if life != self.lives[topic] or (topic == LIGHT and not self.light_is_there):
                # Where light queues begin is not in their handles.
                assert outcome is not Outcome.DONE
                assert topic == LIGHT or outcome is Outcome.QUEUE_ENDED
            elif handle in changed or task is None or task.handle != handle:
                assert outcome is Outcome.NOT_IN_FLIGHT
            else:
                assert outcome is Outcome.DONE
                changed.add(handle)
                task.until_ms = now_ms + seconds * 1000
                if what == "acknowledge":
                    del self.tasks[group, topic][place]
                elif what == "give_back":
                    task.handle = ""
                    if by_backoff:
                        times = GROUPS[group].backoff_ms
                        task.until_ms = now_ms + times[min(task.deliveries, len(times)) - 1]

    @rule(
        data=st.data(),
        group=st.sampled_from(list(GROUPS)),
        queue_id=st.sampled_from((None, 0, 1)),
        where=st.sampled_from(("offset", "time", Edge.EARLIEST, Edge.LATEST)),
    )
    def reset(
        self, data: st.DataObject, group: str, queue_id: int | None, where: Edge | str
    ) -> None:
        topic = data.draw(st.sampled_from(TOPICS)) if self.light_is_there else "T"
        if topic == LIGHT:
            queue_id = 0
        ids = [0, 1] if queue_id is None else [queue_id]
        queues = [self.stored[topic, each] for each in ids]
        to: Where
        if where == "offset":
            number = data.draw(st.integers(0, min(map(len, queues))))
            to, offsets = AtOffset(number), [number] * len(ids)
        elif where == "time":
            times = {each.time_ms for queue in queues for each in queue}
            time_ms = data.draw(st.sampled_from([*sorted(times), self.clock.now_ms() + 1]))
            to = AtTime(time_ms)
            offsets = [sum(each.time_ms < time_ms for each in queue) for queue in queues]
        else:
            assert isinstance(where, Edge)
            to = where
            offsets = [0 if where is Edge.EARLIEST else len(queue) for queue in queues]
        self.begin(group, topic)
        done = self.store.groups.reset(group, topic, None if queue_id is None else ids, to)
        ended = 0
        tasks = self.tasks[group, topic]
        for each, queue, offset in zip(ids, queues, offsets, strict=True):
            for place in [place for place in tasks if place[0] == each]:
                ended += tasks.pop(place).deliveries > 0
            for at in range(offset, len(queue)):
                tasks[each, at] = Task(queue[at].text)
        assert done.ended_in_flight == ended
        assert [one.next_offset for one in done.queues] == offsets

    @rule(group=st.sampled_from(list(GROUPS)), on=st.booleans())
    def pause(self, group: str, on: bool) -> None:
        self.store.groups.update(group, GROUPS[group]._replace(is_paused=on))
        self.paused[group] = on

    @rule(group=st.sampled_from(list(GROUPS)))
    def describe(self, group: str) -> None:
        now_ms = self.clock.now_ms()
        self.store.wait_visible()
        whole = self.store.groups.describe_queues(group)
        pages, after = [], None
        while page := self.store.groups.describe_queues(group, 1, after):
            pages += page
            after = page[-1].topic, page[-1].queue_id
        assert pages == whole
        for each in whole:
            stored = self.stored[each.topic, each.queue_id]
            tasks = self.tasks[group, each.topic]
            mine = {at: task for (queue, at), task in tasks.items() if queue == each.queue_id}
            flying = [task for task in mine.values() if task.deliveries]
            held = [task for task in flying if task.handle and task.until_ms > now_ms]
            assert each.max_offset == len(stored)
            fresh = [at for at, task in mine.items() if not task.deliveries]
            if not GROUPS[group].in_order:
                assert each.next_offset == min(fresh, default=len(stored))
            below = sum(at < each.next_offset for at in mine)
            assert below >= len(flying)
            assert each.done_below == min(mine, default=len(stored))
            assert (each.in_flight, each.waiting_again) == (len(held), below - len(held))
            oldest = stored[min(mine)].time_ms if mine else None
            assert each.oldest_time_ms == oldest

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data(), group=st.sampled_from(list(GROUPS)), picks=st.booleans())
    def redrive(self, data: st.DataObject, group: str, picks: bool) -> None:
        """The oldest ones, or some."""
        letters = self._check_live(group)
        if not letters:
            return
        offsets: list[int] = []
        if picks:
            some = st.lists(st.sampled_from([one.offset for one in letters]), min_size=1)
            offsets = data.draw(some)
            letters = [one for one in letters if one.offset in offsets]
        most = data.draw(st.integers(1, 20))
        done = self.store.groups.redrive(group, offsets, most)
        tried = letters[:most]
        good = [one for one in tried if one.topic == "T" or self.light_is_there]
        assert (done.redriven, done.left) == (len(good), len(tried) - len(good))
        assert done.complete or len(tried) == most
        self.store.wait_visible()
        counts = Counter((one.topic, one.queue_id) for one in good)
        for topic, queue_id in counts:
            ((_, end),) = self.store.bounds([(topic, queue_id)])
            mine = [one for one in good if (one.topic, one.queue_id) == (topic, queue_id)]
            for offset, one in enumerate(mine, end - len(mine)):
                text = unpack_record(one.record).body.decode().strip()
                self.live[group][text] -= 1
                self.stored[topic, queue_id].append(Stored(text, self.clock.now_ms()))
                for each in GROUPS:
                    self.tasks[each, topic][queue_id, offset] = Task(text)
                    self.idle.pop((each, topic), None)

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data(), group=st.sampled_from(list(GROUPS)))
    def delete_letters(self, data: st.DataObject, group: str) -> None:
        letters = {one.offset: one for one in self._check_live(group)}
        if letters:
            picked = data.draw(st.lists(st.sampled_from(list(letters)), min_size=1, max_size=3))
            count, _ = self.store.groups.delete_dead_letters(group, [*picked, 10_000])
            assert count == len(set(picked))
            for offset in set(picked):
                text = unpack_record(letters[offset].record).body.decode().strip()
                self.live[group][text] -= 1

    @rule(seconds=st.sampled_from((0.5, 1, 10, 31, 100)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.opened(self.directory)

    @rule()
    def kill(self) -> None:
        """What a killed process leaves is opened; the old one does nothing more to it."""
        image = Path(tempfile.mkdtemp())
        shutil.copytree(self.directory, image, dirs_exist_ok=True)
        self.store.close()
        shutil.rmtree(self.directory)
        self.directory = image
        self.store = self.opened(image)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_and_make_again(self, topic: str) -> None:
        if topic == LIGHT and not self.light_is_there:
            return
        self.store.delete_topic(topic)
        assert not any(place[1] == topic for place in self.idle), "they wait for nothing"
        self.lives[topic] += 1
        self.older.discard(topic)
        for group in GROUPS:
            self.tasks[group, topic].clear()
            self.begun.discard((group, topic))
        for place in self.stored:
            if place[0] == topic:
                self.stored[place] = []
        if topic == "T":
            self.store.create_topics([("T", 2)])
        else:
            self.light_is_there = False

    # --- what always holds -----------------------------------------------------------------

    @invariant()
    def who_waits_for_nothing_was_told(self) -> None:
        now_ms = self.clock.now_ms()
        for (group, topic), next_look_ms in self.idle.items():
            if self.paused[group] or (next_look_ms is not None and next_look_ms <= now_ms):
                continue
            self._check_nothing_is_left(group, topic)

    @invariant()
    def the_view_is_what_a_replay_makes(self) -> None:
        store = self.store
        with store.log.lock:
            view = list(store._topics.view.scan(b"", _END))
        store.wait_visible()
        replayed = list(rebuilt(store).scan(STATE, b"", _END))
        said = [row for row in view if row[0][:1] not in (b"p", b"k")]
        assert said == [row for row in replayed if row[0][:1] not in (b"p", b"k")]


_NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
TestShared = pytest.mark.timeout(600)(SharedMachine.TestCase)
TestShared.settings = settings(max_examples=300 if _NIGHTLY else 5, stateful_step_count=30)


class LongerMachine(SharedMachine):
    """The same with more examples."""


TestSharedLonger = pytest.mark.slow(pytest.mark.timeout(600)(LongerMachine.TestCase))
TestSharedLonger.settings = settings(max_examples=15, stateful_step_count=30)
