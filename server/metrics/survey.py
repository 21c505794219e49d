"""Counts topics, light queues and groups, and computes each group's lag, a part at a time.

There may be millions of names, so no single request scans all of them: each continues where the
previous one stopped, and a value is reported after its round is complete. With few names a round is
one request. Used by Prometheus and `kvcq top`.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    DamagedQueueError,
    GroupKindError,
    StoreError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import is_system_topic
from store.light_queue import LMQ_PREFIX, is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.groups import SharedQueue
    from store.message_store import MessageStore

#: Names of one look-up: a millisecond or two.
PAGE = 500
#: Rows of each kind that one question looks at: topics; light queues; groups and their queues,
#: which cost about 30 us each.
ROWS_AT_A_TIME = 5000
#: Topics of one group with a lag of their own; the others are summed up in one row.
TOPICS_OF_A_GROUP = 100


class Lag(NamedTuple):
    """The lag of a group in a topic, over all its queues."""

    messages: int  # not committed; for a shared group, not done
    #: Store time of the oldest one, ms; None without messages.
    since_ms: int | None
    is_shared: bool = False
    in_flight: int = 0  # of these, currently with receivers
    waiting_again: int = 0  # of these, to be delivered again


class Surveyed(NamedTuple):
    """Results of the last complete rounds; None before the first."""

    topics: int | None = None
    light_queues: int | None = None
    groups: int | None = None
    #: By group, then by topic: the groups that are farthest behind. Light queues count as one
    #: topic, named %LMQ%; topics beyond TOPICS_OF_A_GROUP count as one with an empty name.
    lags: dict[str, dict[str, Lag]] = {}  # noqa: RUF012 - never changed
    lags_at_ms: int | None = None  # when the round of the groups began
    #: By group: those with the most dead letters.
    dead_letters: dict[str, int] = {}  # noqa: RUF012 - never changed


class Survey:
    """One thread at a time."""

    def __init__(
        self,
        store: MessageStore,
        groups: int,
        now_ms: Callable[[], int],
        *,
        page: int = PAGE,
        rows_at_a_time: int = ROWS_AT_A_TIME,
        topics_of_a_group: int = TOPICS_OF_A_GROUP,
    ) -> None:
        """`groups`: how many to report."""
        self._store = store
        self._page = page
        self._rows_at_a_time = rows_at_a_time
        self._topics_of_a_group = topics_of_a_group
        self._most = groups
        self._now_ms = now_ms
        self._done = Surveyed()
        self._rounds = self._all_rounds()

    def go_on(self) -> Surveyed:
        """The results after some more lookups. Raises what the store raises."""
        try:
            for rounds in self._rounds:
                self._advance(rounds)
        except StoreError:
            self._rounds = self._all_rounds()  # a generator that raised is at its end
            raise
        return self._done

    def _advance(self, rounds: Iterator[int | None]) -> None:
        left = self._rows_at_a_time
        for rows in rounds:
            if rows is None:
                return
            left -= rows
            if left <= 0:
                return

    def _all_rounds(self) -> tuple[Iterator[int | None], ...]:
        return self._count_topics(), self._count_light_queues(), self._look_at_groups()

    def _count_topics(self) -> Iterator[int | None]:
        """Yield the rows read, page by page; None after each round."""
        while True:
            count, after = 0, None
            while page := self._store.list_topics("", after, self._page):
                count += sum(not is_system_topic(one.name) for one in page)
                after = page[-1].name
                yield len(page)
            self._done = self._done._replace(topics=count)
            yield None

    def _count_light_queues(self) -> Iterator[int | None]:
        while True:
            count, after = 0, None
            while page := self._store.list_light_queues("", after, self._page):
                count += len(page)
                after = page[-1]
                yield len(page)
            self._done = self._done._replace(light_queues=count)
            yield None

    def _look_at_groups(self) -> Iterator[int | None]:
        while True:
            began_ms = self._now_ms()
            count, after = 0, None
            lags: dict[str, dict[str, Lag]] = {}
            dead: dict[str, int] = {}
            while page := self._store.list_groups(after, self._page):
                yield len(page)
                for group in page:
                    lag: dict[str, Lag] = {}
                    yield from self._add_lags(group, lag)
                    if lag:
                        lags[group] = lag
                    if letters := self._dead_letters_of(group):
                        dead[group] = letters
                if len(lags) > self._most + self._page:
                    lags = self._farthest(lags)
                if len(dead) > self._most + self._page:
                    dead = dict(nlargest(self._most, dead.items(), key=itemgetter(1)))
                count += len(page)
                after = page[-1]
            self._done = self._done._replace(
                groups=count,
                lags=self._farthest(lags),
                lags_at_ms=began_ms,
                dead_letters=dict(nlargest(self._most, dead.items(), key=itemgetter(1))),
            )
            yield None

    def _farthest(self, lags: dict[str, dict[str, Lag]]) -> dict[str, dict[str, Lag]]:
        def behind(item: tuple[str, dict[str, Lag]]) -> int:
            return sum(lag.messages for lag in item[1].values())

        return dict(nlargest(self._most, lags.items(), key=behind))

    def _add_lags(self, group: str, lags: dict[str, Lag]) -> Iterator[int]:
        """Add the group's lag to `lags`, by topic."""
        after: tuple[str, int] | None = None
        if self._is_shared(group):
            yield from self._add_shared(group, lags)
            return
        while page := self._store.list_committed(group, after, self._page):
            for topic, queue_id, offset in page:
                lag = self._lag_of(topic, queue_id, offset)
                if lag is None:
                    continue
                self._add(lags, topic, lag)
            after = page[-1][:2]
            yield len(page)

    def _add(self, lags: dict[str, Lag], topic: str, lag: Lag) -> None:
        name = LMQ_PREFIX if is_light(topic) else topic
        if name not in lags and len(lags) >= self._topics_of_a_group:
            name = ""
        lags[name] = _joined(lags.get(name), lag)

    def _is_shared(self, group: str) -> bool:
        try:
            return self._store.groups.describe(group) is not None
        except UnknownGroupError:
            return False

    def _add_shared(self, group: str, lags: dict[str, Lag]) -> Iterator[int]:
        """Like `_add_lags`, for a shared group."""
        after: tuple[str, int] | None = None
        while page := self._pages_of(group, after):
            for queue in page:
                again = queue.in_flight + queue.waiting_again
                messages = queue.max_offset - queue.next_offset + again
                since_ms = queue.oldest_time_ms if messages else None
                lag = Lag(messages, since_ms, True, queue.in_flight, queue.waiting_again)  # noqa: FBT003
                self._add(lags, queue.topic, lag)
            after = page[-1][:2]
            yield len(page)

    def _pages_of(self, group: str, after: tuple[str, int] | None) -> list[SharedQueue]:
        """None if the group is deleted, or its rows are damaged."""
        try:
            return self._store.groups.describe_queues(group, self._page, after)
        except (UnknownGroupError, GroupKindError, DamagedQueueError):
            return []

    def _dead_letters_of(self, group: str) -> int:
        try:
            return self._store.groups.dead_letters(group)
        except (UnknownGroupError, DamagedQueueError):
            return 0

    def _lag_of(self, topic: str, queue_id: int, offset: int) -> Lag | None:
        """None if the queue is deleted, or its rows are damaged, which its readers report."""
        store = self._store
        try:
            [bounds] = store.bounds([(topic, queue_id)])
            begin = max(offset, bounds.min_offset)
            if begin >= bounds.max_offset:
                return Lag(0, None)
            since_ms = store.backlog_since_ms(topic, queue_id, begin)
            return Lag(bounds.max_offset - begin, since_ms)
        except (UnknownTopicError, UnknownQueueError, DamagedQueueError):
            return None


def _joined(one: Lag | None, other: Lag) -> Lag:
    if one is None:
        return other
    times = [each.since_ms for each in (one, other) if each.since_ms is not None]
    return Lag(
        one.messages + other.messages,
        min(times, default=None),
        one.is_shared,
        one.in_flight + other.in_flight,
        one.waiting_again + other.waiting_again,
    )
