"""A model of groups that share their work, beside a store: who has which message, how often, and
until when.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.groups import Outcome, Received
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.groups import DeadLetter, Delivery
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


class SharedModel:
    """Of three groups that receive from a topic with two queues and from a light queue."""

    def __init__(self) -> None:
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
        self.put_messages(3, 0, light=True, big=False)
        for group, how in GROUPS.items():
            self.store.groups.create(group, how)

    def put_messages(self, count: int, queue_id: int, *, light: bool, big: bool) -> None:
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

    def drain(self) -> None:
        """In the end each message is delivered and done, or dead."""
        for group in GROUPS:
            self.store.groups.update(group, GROUPS[group])
            self.paused[group] = False
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

    def _check_live(self, group: str) -> list[DeadLetter]:
        """What is listed is what is counted is what was neither redriven nor deleted."""
        self.store.wait_visible()
        found = self.store.groups.list_dead_letters(group, limit=1000)
        texts = Counter(unpack_record(one.record).body.decode().strip() for one in found)
        assert texts == +self.live[group]
        assert self.store.groups.dead_letters(group) == len(found)
        return found
