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
from dataclasses import dataclass
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

from kvcq.inspect import look_over
from kvcq.tables.keys import STATE
from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.groups import AtOffset, AtTime, Edge, Outcome, Received
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import rebuilt
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.groups import DeadLetter, Delivery, Where
    from store.message_store import MessageStore

LIGHT = "%LMQ%l"
#: Ordering keys; the first one is none.
KEYS = ("", "a", "b", "a")
TOPICS = ("T", LIGHT)
GROUPS = {
    "g": SharedGroup(max_deliveries=2, most_in_flight=6, backoff_ms=(2000,)),
    "h": SharedGroup(max_deliveries=9, from_latest=True, backoff_ms=(500, 7000)),
    "o": SharedGroup(max_deliveries=3, most_in_flight=4, in_order=True, backoff_ms=(2000,)),
}
_END = b"\xff" * 8


@dataclass
class Task:
    """A message that a group is not done with."""

    text: str
    deliveries: int = 0
    handle: str = ""  # of who has it
    until_ms: int = 0


@dataclass
class Stored:
    """A message of a queue."""

    text: str
    time_ms: int


class SharedMachine(RuleBasedStateMachine):
    """One store, two groups, a topic with two queues and a light queue."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.number = 0
        #: Of texts.
        self.key_of: dict[str, str] = {}
        self.light_is_there = False
        self.store: MessageStore = self.opened(self.directory)
        self.store.create_topics([("T", 2)])
        #: Of each topic, what each queue has.
        self.stored: dict[tuple[str, int], list[Stored]] = {
            ("T", 0): [],
            ("T", 1): [],
            (LIGHT, 0): [],
        }
        #: Topics with messages from before the groups were made.
        self.older = set(TOPICS)
        #: Groups that have received from a topic.
        self.begun: set[tuple[str, str]] = set()
        self.paused = dict.fromkeys(GROUPS, False)
        #: Of each group and topic: (queue id, offset) to the message.
        self.tasks: dict[tuple[str, str], dict[tuple[int, int], Task]] = {
            (group, topic): {} for group in GROUPS for topic in TOPICS
        }
        #: Handles that were given out, with their group, topic, place, and life of the topic.
        self.handles: list[tuple[str, str, str, tuple[int, int], int]] = []
        self.lives = dict.fromkeys(TOPICS, 0)
        #: Texts of dead letters: all there were, and those that are left.
        self.dead: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
        self.live: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
        self.put(3, 0, light=True, big=False)
        for group, how in GROUPS.items():
            self.store.groups.create(group, how)

    def opened(self, directory: Path) -> MessageStore:
        store = open_small(directory, self.clock)
        #: Who received all that there was, and when to look again.
        self.idle: dict[tuple[str, str], int | None] = {}
        store.groups.on_change(self.hear)
        return store

    def hear(self, group: str, topic: str) -> None:
        for place in list(self.idle):
            if group in ("", place[0]) and topic in ("", place[1]):
                del self.idle[place]

    def teardown(self) -> None:
        try:
            self.drain()
            self.store.close()
            faults = [each for each in look_over(self.directory).findings if each.is_fault]
            assert not faults
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    def drain(self) -> None:
        """In the end each message is delivered and done, or dead."""
        for group in GROUPS:
            self.pause(group, on=False)
        for (group, topic), tasks in self.tasks.items():
            rounds = 0
            while tasks and (topic == "T" or self.light_is_there):
                rounds += 1
                assert rounds < 200, f"{group} is not done with {tasks}"
                self.clock.advance(100)
                found = self._receive(group, topic, 100, 1000)
                if found:
                    outcomes = self.store.groups.acknowledge(group, [one.handle for one in found])
                    assert set(outcomes.outcomes) == {Outcome.DONE}
                for each in found:
                    del tasks[each.queue_id, each.queue_offset]
            assert not tasks
        for group in GROUPS:
            assert self._letters(group) == self.dead[group]
            self._check_live(group)

    # --- rules -----------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 12), queue_id=st.integers(0, 1), light=st.booleans(), big=st.booleans()
    )
    def put(self, count: int, queue_id: int, light: bool, big: bool) -> None:
        """Big ones make segments roll."""
        messages = []
        for _ in range(count):
            self.number += 1
            body = f"{self.number}".ljust(9000 if big else 0).encode()
            names = (LIGHT,) if light else ()
            key = self.key_of[f"{self.number}"] = KEYS[(self.number * self.number) % 7 % 4]
            properties = {"__SHARDINGKEY": key} if key else {}
            messages.append(Message("T", body, queue_id, light_queues=names, properties=properties))
        now_ms = self.clock.now_ms()
        done = self.store.put(messages)
        for message, placed in zip(messages, done.placed, strict=True):
            text = message.body.decode().strip()
            self.stored["T", queue_id].append(Stored(text, now_ms))
            if light:
                self.stored[LIGHT, 0].append(Stored(text, now_ms))
            for group in GROUPS:
                self.tasks[group, "T"][queue_id, placed.queue_offset] = Task(text)
                if light:
                    (offset,) = placed.light_queue_offsets
                    self.tasks[group, LIGHT][0, offset] = Task(text)
        self.light_is_there |= light
        for group in GROUPS:
            self.idle.pop((group, "T"), None)
            if light:
                self.idle.pop((group, LIGHT), None)

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

    def _receive(self, group: str, topic: str, most: int, invisible_ms: int) -> list[Delivery]:
        now_ms = self.clock.now_ms()
        self.begin(group, topic)
        tasks, limits = self.tasks[group, topic], GROUPS[group]
        received = self.store.groups.receive(
            group, topic, max_messages=most, invisible_ms=invisible_ms
        )
        found = received.deliveries
        if self.paused[group]:
            assert received == Received([], None, nonces=[])
            self.idle[group, topic] = None
            return []
        if not found and received.next_look_ms != now_ms:
            self.idle[group, topic] = received.next_look_ms
        assert len(found) <= most
        assert len({(one.queue_id, one.queue_offset) for one in found}) == len(found)
        for each in found:
            place = each.queue_id, each.queue_offset
            task = tasks[place]
            assert unpack_record(each.record).body.decode().strip() == task.text
            assert task.until_ms <= now_ms, "somebody else has it"
            assert not self._waits_for(group, tasks, place), "another one of its key comes first"
            most_often = limits.max_deliveries
            assert most_often is None or task.deliveries < most_often, "it is dead"
            assert each.deliveries == task.deliveries + 1
            assert each.until_ms == now_ms + invisible_ms
            task.deliveries, task.handle, task.until_ms = (
                each.deliveries,
                each.handle,
                each.until_ms,
            )
            self.handles.append((each.handle, group, topic, place, self.lives[topic]))
        self._take_dead(group, topic, now_ms)
        self._check_nothing_was_passed_over(group, topic, found, most, received.next_look_ms)
        return found

    def begin(self, group: str, topic: str) -> None:
        """It receives from the topic, or is set to a place in it, for the first time."""
        if (group, topic) not in self.begun:
            self.begun.add((group, topic))
            if GROUPS[group].from_latest and topic in self.older:
                self.tasks[group, topic].clear()

    def _take_dead(self, group: str, topic: str, now_ms: int) -> None:
        """What became a dead letter just now had to."""
        new = self._letters(group) - self.dead[group]
        tasks = self.tasks[group, topic]
        for place, task in list(tasks.items()):
            if new[task.text] and task.deliveries == GROUPS[group].max_deliveries:
                assert task.until_ms <= now_ms
                new[task.text] -= 1
                self.dead[group][task.text] += 1
                self.live[group][task.text] += 1
                del tasks[place]
        assert not +new

    def _check_nothing_was_passed_over(
        self,
        group: str,
        topic: str,
        found: Sequence[Delivery],
        most: int,
        next_look_ms: int | None,
    ) -> None:
        """A receive that is not full left nothing that it could have, or says when to look."""
        now_ms = self.clock.now_ms()
        if len(found) == most or next_look_ms == now_ms:
            return
        self._check_nothing_is_left(group, topic)
        tasks = self.tasks[group, topic]
        ends = [task.until_ms for task in tasks.values() if task.deliveries]
        assert next_look_ms is None or next_look_ms in ends

    def _waits_for(
        self, group: str, tasks: dict[tuple[int, int], Task], place: tuple[int, int]
    ) -> bool:
        """Whether another message of its key comes first."""
        key = self.key_of[tasks[place].text]
        return GROUPS[group].in_order and any(
            other < place and other[0] == place[0] and self.key_of[task.text] == key
            for other, task in tasks.items()
        )

    def _check_nothing_is_left(self, group: str, topic: str) -> None:
        """Nothing may be handed over now."""
        now_ms, limits = self.clock.now_ms(), GROUPS[group]
        tasks = self.tasks[group, topic]
        for queue_id in (0, 1):
            mine = {place: task for place, task in tasks.items() if place[0] == queue_id}
            flying = [task for task in mine.values() if task.deliveries]
            assert all(task.until_ms > now_ms for task in flying)
            assert len(flying) <= limits.most_in_flight
            for place, task in mine.items():
                is_able = task.deliveries == 0 and not self._waits_for(group, tasks, place)
                assert not is_able or len(flying) == limits.most_in_flight

    def _letters(self, group: str) -> Counter[str]:
        self.store.wait_visible()
        try:
            pulled = self.store.pull(f"%DLQ%{group}", 0, 0, max_messages=1000)
        except UnknownTopicError:
            return Counter()
        return Counter(unpack_record(each).body.decode().strip() for each in pulled.records)

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

    def _check_live(self, group: str) -> list[DeadLetter]:
        """What is listed is what is counted is what was neither redriven nor deleted."""
        self.store.wait_visible()
        found = self.store.groups.list_dead_letters(group, limit=1000)
        texts = Counter(unpack_record(one.record).body.decode().strip() for one in found)
        assert texts == +self.live[group]
        assert self.store.groups.dead_letters(group) == len(found)
        return found

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
