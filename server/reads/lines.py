"""Queues of waiting receives: a line for each group and topic, first come, first served.

A waiting pull is woken by every message in its queue, and reads what all others read too. But a
message is delivered to only one of the waiting receives. So they form a line. When something may be
available, the first one looks; if it finds more than it takes, the next ones are called, twice as
many each time. While a look has found nothing and nothing has changed since, no receive looks
again. Changes are: a message in any queue of the topic; the end of a lease or a delay;
acknowledgements, messages given back, and changed settings. A line exists only while a receive
waits in it, and queues cost nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from contextvars import Context
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Protocol

from server.in_turns import in_turns
from server.reads.queue_growth import ANY_QUEUE
from server.reads.ready_queues import ReadyQueues
from server.workers import call_soon
from store.errors import UnknownGroupError, UnknownTopicError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from server.reads.queue_growth import QueueGrowth
    from server.stage import Stage

#: Looks of one line at a time: as many as share a turn of the store.
MOST_LOOKS = 8
#: At least this many places of receives that no longer wait are removed together.
_MOST_PLACES_LEFT = 64


class Found(Protocol):
    """The result of a look, as far as the line is concerned."""

    @property
    def is_more(self) -> bool:
        """Whether the next look may find more."""

    @property
    def next_look_ms(self) -> int | None:
        """When to look again, by the store's time; None if nothing expires."""


class Line:
    """The line of one group and topic. Owned by the event loop's thread. Every entry must be paired
    with a leave."""

    def __init__(
        self, topic: str, growth: QueueGrowth, stage: Stage, time_ms: Callable[[], int]
    ) -> None:
        """`time_ms`: the store's clock for leases."""
        self.members = 0  # receives that wait or look
        #: A look has found the topic, or light queue.
        self.has_begun = False
        self.topic = topic
        self._key = (topic, ANY_QUEUE)
        self._stage = stage
        self._time_ms = time_ms
        self._loop = asyncio.get_running_loop()
        self._queues = ReadyQueues(growth, stage)
        self._queues.follow(self._key)
        self._waiting: OrderedDict[asyncio.Future[bool], None] = OrderedDict()
        # When the wait of each of them ends; entries of those that no longer wait are skipped.
        self._places: list[tuple[float, int, asyncio.Future[bool]]] = []
        self._numbers = count()
        self._changes = 0
        self._empty_at = -1  # number of changes when a look that found no more began
        self._looks = 0  # in progress
        self._width = 1  # looks that may be
        self._next_look_ms: int | None = None
        self._end: Exception | None = None
        # In a context of its own: it outlives the call that came first.
        self._watching = self._loop.create_task(self._watch(), context=Context())

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed since a look found nothing more."""
        return self._empty_at == self._changes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def turn(self, until_s: float, *, keeps_place: bool = False) -> int | None:
        """Wait for the turn to look. The result must be passed to `looked`.

        With `keeps_place` the caller has looked in vain, and is first again. Returns None if the
        time is up, on the loop's clock, or the server drains. Raises the error of `end`.
        """
        if self._end is not None:
            raise self._end
        if self._stage.is_draining:
            return None
        if not self.is_empty and not self._waiting and self._looks < self._width:
            self._looks += 1
            return self._changes
        place: asyncio.Future[bool] = self._loop.create_future()
        self._waiting[place] = None
        if keeps_place:
            self._waiting.move_to_end(place, last=False)
        self._add_place(until_s, place)
        try:
            is_called = await place
        except asyncio.CancelledError:
            self._waiting.pop(place, None)
            if not place.cancelled() and place.exception() is None and place.result():
                self._look_ended()  # its turn came at that very moment
            raise
        return self._changes if is_called else None

    def looked(self, turn: int, found: Found | None) -> None:
        """A look is over; None if it failed, or its caller is gone."""
        if found is not None:
            self.schedule_look(found.next_look_ms)
            if not found.is_more:
                self._empty_at = max(self._empty_at, turn)
                self._width = 1
            else:
                self._width = min(2 * self._width, MOST_LOOKS)
        self._look_ended()

    def schedule_look(self, time_ms: int | None) -> None:
        """Have a receive look again at that time at the latest, by the store's time."""
        if time_ms is not None and (self._next_look_ms is None or time_ms < self._next_look_ms):
            self._next_look_ms = time_ms
            self._queues.wake()

    def wake(self) -> None:
        """Something has changed."""
        self._queues.make_ready(self._key)
        self._queues.wake()

    def end(self, error: Exception) -> None:
        """The group or topic is gone: raise `error` for all waiting receives."""
        self._end = error
        in_turns(self._release_all(lambda place: place.set_exception(error)))

    def close(self) -> None:
        """The line is empty."""
        assert not self.members, "somebody waits"
        self._watching.cancel()
        self._queues.leave(self._key)
        self._queues.close()

    # --- the wait --------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Have receives look when something may be available, and leave when their time is up."""
        while True:
            await self._queues.until_any(self._wakes_at_s())
            if self._stage.is_draining:
                in_turns(self._release_all(lambda place: place.set_result(False)))
                return
            self._end_of_time()
            is_time = self._next_look_ms is not None and self._next_look_ms <= self._time_ms()
            if is_time:
                self._next_look_ms = None
            if is_time or self._queues:
                while self._queues:
                    self._queues.next()
                self._changes += 1
                self._call()

    def _wakes_at_s(self) -> float | None:
        times = [self._places[0][0]] if self._places else []
        if self._next_look_ms is not None:
            left_ms = max(1, self._next_look_ms - self._time_ms())
            times.append(self._loop.time() + left_ms / 1000)
        return min(times, default=None)

    def _add_place(self, until_s: float, place: asyncio.Future[bool]) -> None:
        if len(self._places) > 2 * len(self._waiting) + _MOST_PLACES_LEFT:
            self._places = [one for one in self._places if one[2] in self._waiting]
            heapify(self._places)
        heappush(self._places, (until_s, next(self._numbers), place))
        if self._places[0][2] is place:
            self._queues.wake()  # its deadline is earlier than all others

    def _end_of_time(self) -> None:
        late: list[asyncio.Future[bool]] = []
        now_s = self._loop.time()
        while self._places and self._places[0][0] <= now_s:
            place = heappop(self._places)[2]
            if place in self._waiting:
                late.append(place)
        in_turns(self._too_late(late))

    def _too_late(self, late: list[asyncio.Future[bool]]) -> Iterator[Callable[[], None]]:
        for place in late:
            if place in self._waiting:
                del self._waiting[place]
                if not place.done():
                    yield partial(place.set_result, False)  # noqa: FBT003 - as a future takes it

    def _release_all(
        self, tell: Callable[[asyncio.Future[bool]], None]
    ) -> Iterator[Callable[[], None]]:
        while self._waiting:
            place, _ = self._waiting.popitem(last=False)
            if not place.done():
                yield partial(tell, place)

    def _look_ended(self) -> None:
        self._looks -= 1
        self._call()

    def _call(self) -> None:
        """Call as many as may look, unless there is nothing to find."""
        while self._waiting and not self.is_empty and self._looks < self._width:
            place, _ = self._waiting.popitem(last=False)
            if not place.done():
                self._looks += 1
                place.set_result(True)


class Lines:
    """The lines of all groups and topics. Owned by the event loop's thread, except `changed`."""

    def __init__(
        self,
        growth: QueueGrowth,
        stage: Stage,
        time_ms: Callable[[], int],
        is_there: Callable[[str], bool],
    ) -> None:
        """`is_there`: whether a group of that name exists."""
        self._growth = growth
        self._stage = stage
        self._time_ms = time_ms
        self._is_there = is_there
        self._loop = asyncio.get_running_loop()
        self._by_group: dict[str, dict[str, Line]] = {}
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._changed: set[tuple[str, str]] = set()
        self._wake_is_due = False

    def enter(self, group: str, topic: str) -> Line:
        """Enter the line. Must be paired with `leave`."""
        lines = self._by_group.setdefault(group, {})
        line = lines.get(topic)
        if line is None:
            line = lines[topic] = Line(topic, self._growth, self._stage, self._time_ms)
        line.members += 1
        return line

    def leave(self, group: str, topic: str, line: Line) -> None:
        line.members -= 1
        if not line.members:
            line.close()
            if self._by_group.get(group, {}).get(topic) is line:
                self._remove(group, topic)

    def find(self, group: str, topic: str) -> Line | None:
        """The line; None if no receive waits there."""
        return self._by_group.get(group, {}).get(topic)

    @property
    def waiting(self) -> int:
        """Number of receives in all lines."""
        return sum(line.waiting for lines in self._by_group.values() for line in lines.values())

    def changed(self, group: str, topic: str) -> None:
        """A receive of the group may get more there, or another error. Any thread.

        Topic "" means all topics, when the group was changed or deleted. Group "" means all groups,
        when the topic was deleted.
        """
        # As in QueueGrowth: a receive that comes after the test looks for itself.
        if group in self._by_group or (not group and self._by_group):
            with self._lock:
                self._changed.add((group, topic))
                if self._wake_is_due:
                    return
                self._wake_is_due = True
            call_soon(self._loop, self._wake)

    def _wake(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, set()
            self._wake_is_due = False
        if ended := {topic for group, topic in changed if not group}:
            self._end_topics(ended)
        in_turns(self._woken(changed))

    def _woken(self, changed: Iterable[tuple[str, str]]) -> Iterator[Callable[[], None]]:
        """A group has a line for each client of lite topics, ten thousand say, and as many of them
        may change together."""
        for group, topic in changed:
            lines = self._by_group.get(group, {})
            if topic:
                if (line := lines.get(topic)) is not None:
                    yield line.wake
            elif not self._is_there(group):
                self._end_group(group)
            else:
                for line in [*lines.values()]:
                    yield line.wake

    def _end_group(self, group: str) -> None:
        """Receives that waited when the group was deleted do not create it again."""
        lines = self._by_group.pop(group, {})
        in_turns(partial(line.end, UnknownGroupError(group)) for line in lines.values())

    def _end_topics(self, topics: AbstractSet[str]) -> None:
        ended = [
            (topic, self._remove(group, topic))
            for group, lines in [*self._by_group.items()]
            if not lines.keys().isdisjoint(topics)
            for topic in lines.keys() & topics
        ]
        in_turns(
            partial(
                line.end, UnknownTopicError(topic, "light queue" if is_light(topic) else "topic")
            )
            for topic, line in ended
        )

    def _remove(self, group: str, topic: str) -> Line:
        lines = self._by_group[group]
        line = lines.pop(topic)
        if not lines:
            del self._by_group[group]
        return line
