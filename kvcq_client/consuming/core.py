"""The state that Consumer and AsyncConsumer share: positions, fetched messages, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvcq_client.arguments import positions_of, queue_of, start_of, text, wrong_kind
from kvcq_client.consuming.subscription import Subscription
from kvcq_client.errors import (
    ClosedError,
    CorruptRecordError,
    DeadlineError,
    KvcqError,
    NotFoundError,
)
from kvcq_client.format import split_records
from kvcq_client.transport import in_background
from kvcq_client.values import LIGHT_PREFIX, Bounds, Queue, Start, given_at, position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterator

    from kvcq_client.calls import Calls
    from kvcq_client.consuming.config import ConsumerConfig
    from kvcq_client.consuming.subscription import Fetched
    from kvcq_client.format import StoredMessage
    from kvcq_client.transport import Connection

V = TypeVar("V")

#: What a consumer can follow: topics (all their queues), light queues, single queues,
#: or queues with the offsets to begin at.
Wanted = str | Queue | Iterable[str | Queue] | Mapping[Queue, int]


#: Bounds of a light queue that has no message yet.
_NOTHING = Bounds(0, 0)
#: How many light queues are looked up at a time, one by one, when some have no message yet.
_LOOKUPS = 64


class Decoded(NamedTuple):
    """Decoded messages of one queue."""

    queue: Queue
    messages: list[StoredMessage]
    next_offset: int  # after all of them


class ConsumerCore:
    """Positions of one consumer. Coroutines run in the event loop, the rest on its reader."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        config: ConsumerConfig,
        forget: Callable[[ConsumerCore], None],
    ) -> None:
        self.config = config
        self._forget = forget
        self.subscription = Subscription(connection, config)
        self._calls = calls
        self._task = in_background(self.subscription.run(), "consumer")
        # The next offset to read of each queue.
        self._positions: dict[Queue, int] = {}
        # The current batch; the position of its queue moves with `index`.
        self.queue: Queue | None = None
        self.messages: list[StoredMessage] = []
        self.index = 0  # messages of it that have been read
        self._next_offset = 0  # after all of them
        # The batches after it: `_ahead[_ahead_at:]`.
        self._ahead: list[Decoded] = []
        self._ahead_at = 0
        # Changes that an interrupt may leave half done, completed by `_settle`: a batch on its way
        # from the subscription to `_ahead`, and new positions.
        self._begun: tuple[Fetched, Decoded] | None = None
        self._reached: dict[Queue, int] = {}
        self._failed: Fetched | None = None  # its error is about to be raised
        self._broken: tuple[Queue, CorruptRecordError] | None = None
        self._to_reach: dict[Queue, int] = {}  # ends that `to_end` waits for
        self._ended: set[Queue] = set()  # deleted light queues, which have no position
        self._empty: set[Queue] = set()  # light queues that had no message at a commit

    # --- reading; on the reader's thread ---------------------------------------------------

    def next_batch(self) -> list[StoredMessage] | None:
        """Make the next batch current, and return it; None if there is none now.

        Called when the current batch has been read. Raises the error of a queue, after which the
        others can be read, or the failure of the subscription. A record that does not verify is a
        failure, since continuing would skip it.
        """
        self.finish_batch()
        while self._ahead_at == len(self._ahead):
            if self.fetch() is None:
                return None
        batch = self._ahead[self._ahead_at]
        # No call in between, so no interrupt: it is in `_ahead`, or current.
        self.queue, self.messages, self._next_offset = batch
        self.index = 0
        self._ahead_at += 1
        return self.messages

    def at_hand(self) -> int:
        """Number of messages that can be returned without waiting for the server."""
        self._settle()
        ahead = self._ahead[self._ahead_at :]
        return len(self.messages) - self.index + sum(len(batch.messages) for batch in ahead)

    def fetch(self) -> int | None:
        """Decode one more batch. Returns its number of messages; None if there is none now.

        Raises as `next_batch` does.
        """
        self._settle()
        if self._broken is not None:
            raise self._broken[1].with_traceback(None)  # or each time makes it longer
        fetched = self._failed or self.subscription.first()
        if fetched is None:
            return None
        if (error := fetched.error) is not None:
            self._failed = fetched
            self._to_reach.pop(fetched.queue, None)
            self.subscription.take(fetched)
            self._failed = None  # no call from here on, so it is raised once
            raise error
        if fetched.is_end:
            self._ended.add(fetched.queue)
            self._positions.pop(fetched.queue, None)
            self._to_reach.pop(fetched.queue, None)
            self.subscription.take(fetched)
            return 0
        try:
            messages = self._decoded(fetched)
        except CorruptRecordError:
            if self.at_hand():  # batches that are already here come first
                return 0
            raise
        self._begun = fetched, Decoded(fetched.queue, messages, fetched.next_offset)
        self._settle()
        return len(messages)

    def is_error_next(self) -> bool:
        """Whether `fetch` would raise an error."""
        if self._broken is not None or self._failed is not None:
            return True
        try:
            fetched = self.subscription.first()
        except KvcqError:
            return True
        return fetched is not None and fetched.error is not None

    def rest_of_batch(self) -> list[StoredMessage]:
        """Read the rest of the current batch."""
        rest = self.messages[self.index :]
        self.index = len(self.messages)
        return rest

    def one_by_one(self) -> Iterator[StoredMessage]:
        """Yield the rest of the current batch. Ends when the reader seeks elsewhere."""
        messages = self.messages
        while (at := self.index) < len(messages) and self.messages is messages:
            self.index = at + 1
            yield messages[at]

    def read(self, most: int) -> list[StoredMessage]:
        """Read at most `most` messages of those that are decoded."""
        self._settle()
        queue, messages, next_offset = self.queue, self.messages, self._next_offset
        found = messages[self.index : self.index + max(0, most)]
        index, ahead_at = self.index + len(found), self._ahead_at
        reached: dict[Queue, int] = {}
        while len(found) < most and ahead_at < len(self._ahead):
            if queue is not None:
                reached[queue] = next_offset
            queue, messages, next_offset = self._ahead[ahead_at]
            ahead_at += 1
            index = min(len(messages), most - len(found))
            found += messages[:index]
        # No call from here on: an interrupt comes before any of it is read, or to the caller.
        self.queue, self.messages, self._next_offset = queue, messages, next_offset
        self.index, self._ahead_at, self._reached = index, ahead_at, reached
        return found

    def _decoded(self, fetched: Fetched) -> list[StoredMessage]:
        records = fetched.records
        if not records:
            return []
        try:
            return split_records(
                records, fetched.queue_offsets, queue=fetched.queue, verify=self.config.verify
            )
        except CorruptRecordError as error:
            self._broken = fetched.queue, error
            raise

    def _settle(self) -> None:
        """Complete what an interrupt may have left undone. Repeatable."""
        if self._begun is not None:
            fetched, batch = self._begun
            if not batch.messages:
                self._move_behind(batch)
            elif not self._ahead or self._ahead[-1] is not batch:
                self._ahead.append(batch)
            self.subscription.take(fetched)
            self._begun = None
        if self._ahead_at and self._ahead_at == len(self._ahead):
            self._ahead, self._ahead_at = [], 0
        if self._reached:
            for queue, position in self._reached.items():
                if queue in self._ended:
                    continue
                self._positions[queue] = position
                if self._to_reach.get(queue, position + 1) <= position:
                    del self._to_reach[queue]
            self._reached = {}

    def _move_behind(self, nothing: Decoded) -> None:
        """Move the queue's position after messages that were filtered out, once those before are
        read. Not a batch of its own, because a filter may exclude very many."""
        for at in range(len(self._ahead) - 1, self._ahead_at - 1, -1):
            batch = self._ahead[at]
            if batch.queue == nothing.queue:
                self._ahead[at] = batch._replace(next_offset=nothing.next_offset)
                return
        if self.queue == nothing.queue:
            self._next_offset = nothing.next_offset
        else:
            self._reached = {**self._reached, nothing.queue: nothing.next_offset}

    def finish_batch(self) -> None:
        """Make the end of the current batch the position of its queue."""
        self._settle()
        if self.queue is not None:
            reached = {self.queue: self._position_in_batch()}
            self.queue, self.messages, self.index, self._reached = None, [], 0, reached
            self._settle()

    def aim_at(self, ends: Mapping[Queue, int]) -> None:
        """Track in `behind` which queues have not reached these offsets."""
        positions = self.positions()
        self._to_reach = {
            queue: end for queue, end in ends.items() if positions.get(queue, end) < end
        }

    @property
    def behind(self) -> int:
        """Number of queues that have not reached their offsets of `aim_at`."""
        return len(self._to_reach)

    def stuck(self, idle_timeout_s: float) -> DeadlineError:
        """The error when nothing arrives and `behind` is not 0."""
        return DeadlineError(
            f"nothing arrived for {idle_timeout_s:g} s; {self.behind} queues are not at their end"
        )

    def _position_in_batch(self) -> int:
        if self.index >= len(self.messages):
            return self._next_offset
        if self.index:
            behind = self.messages[self.index - 1].queue_offset + 1
            return position(behind, given_at(self._next_offset))
        assert self.queue is not None
        return self._positions[self.queue]

    def positions(self) -> dict[Queue, int]:
        """The next offset to read of each queue: after the last message that was returned."""
        self._settle()
        positions = dict(self._positions)
        if self.queue is not None and self.queue in positions:
            positions[self.queue] = self._position_in_batch()
        return positions

    # --- in the loop -----------------------------------------------------------------------

    async def follow(self, wanted: Wanted) -> None:
        """Look up where to start, and follow. Raises NotFoundError and errors of the calls."""
        if isinstance(wanted, Mapping):
            offsets = positions_of("queues", wanted)
        else:
            several = [wanted] if isinstance(wanted, str | Queue) else wanted
            if not isinstance(several, Iterable):
                raise wrong_kind("queues", "a topic, a Queue, or several", several)
            offsets = await self._starts(await self._queues(several), self.config.begins_at)
        self._move(offsets)

    async def seek(self, to: Mapping[Queue, int] | Start | str) -> None:
        """Continue elsewhere. Fetched messages of the queues are dropped."""
        if isinstance(to, Mapping):
            self._move(positions_of("to", to))
        else:
            self._move(await self._starts(self.subscription.queues, start_of("to", to)))

    def leave(self, queues: Iterable[str | Queue]) -> None:
        """Stop following these queues."""
        if isinstance(queues, Queue | str) or not isinstance(queues, Iterable):
            raise wrong_kind("queues", "a sequence of names and Queues", queues)
        queues = list(queues)
        named = {one for one in queues if isinstance(one, str)}
        gone = {queue_of("queues", one) for one in queues if not isinstance(one, str)}
        gone |= {queue for queue in self.subscription.queues if queue.topic in named}
        self.subscription.leave(gone)
        self._forget_of(gone)
        for queue in gone:
            self._positions.pop(queue, None)
            self._to_reach.pop(queue, None)

    def _move(self, offsets: Mapping[Queue, int]) -> None:
        self._forget_of(offsets)
        self._ended.difference_update(offsets)
        self._reached = dict(offsets)
        self._settle()
        self.subscription.follow(offsets)

    def _forget_of(self, queues: Container[Queue]) -> None:
        """Drop decoded messages and errors of the queues."""
        self._settle()
        ahead = [batch for batch in self._ahead[self._ahead_at :] if batch.queue not in queues]
        self._ahead, self._ahead_at = ahead, 0
        if self._broken is not None and self._broken[0] in queues:
            self._broken = None
        if self._failed is not None and self._failed.queue in queues:
            self._failed = None
        if self.queue in queues:
            self.queue, self.messages, self.index = None, [], 0

    async def _queues(self, wanted: Iterable[str | Queue]) -> list[Queue]:
        queues: list[Queue] = []
        for one in wanted:
            if isinstance(one, str) and not text("queues", one).startswith(LIGHT_PREFIX):
                topic = await self._calls.describe_topic(one)
                queues += [Queue(one, queue_id) for queue_id in range(topic.queue_count)]
            else:
                queues.append(Queue(one) if isinstance(one, str) else queue_of("queues", one))
        return queues

    async def _starts(self, queues: list[Queue], start: Start) -> dict[Queue, int]:
        if start is Start.COMMITTED:
            return await self._look_up(queues, self._committed, 0)
        bounds = await self._look_up(queues, self._calls.offsets, _NOTHING)
        return {
            queue: one.min_offset if start is Start.EARLIEST else one.max_offset
            for queue, one in bounds.items()
        }

    async def ends(self) -> dict[Queue, int]:
        """The current end of each followed queue.

        A queue that failed with an error which was not raised yet ends after that offset.
        """
        queues = self.subscription.queues
        bounds = await self._look_up(queues, self._calls.offsets, _NOTHING)
        ends = {queue: one.max_offset for queue, one in bounds.items()}
        return {**ends, **{queue: at + 1 for queue, at in self.subscription.failed().items()}}

    async def _committed(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        found = await self._calls.group_offsets(self.config.reader_group, queues)
        return {
            Queue(one.topic, one.queue_id): one.min_offset if one.offset is None else one.offset
            for one in found
        }

    async def _look_up(
        self,
        queues: list[Queue],
        ask: Callable[[Iterable[Queue]], Awaitable[dict[Queue, V]]],
        nothing: V,
    ) -> dict[Queue, V]:
        """The result of `ask` for each queue, and `nothing` for light queues without messages.

        Raises NotFoundError if another queue does not exist.
        """
        try:
            return await ask(queues)
        except NotFoundError:
            light = [queue for queue in queues if queue.topic.startswith(LIGHT_PREFIX)]
            if not light:
                raise
        others = [queue for queue in queues if not queue.topic.startswith(LIGHT_PREFIX)]
        found = await ask(others) if others else {}
        few = asyncio.Semaphore(_LOOKUPS)

        async def look_up(queue: Queue) -> None:
            async with few:
                try:
                    found.update(await ask([queue]))
                except NotFoundError:
                    found[queue] = nothing

        await asyncio.gather(*map(look_up, light))
        return found

    async def commit(self, positions: Mapping[Queue, int], *, allow_back: bool) -> None:
        """Commit these for the reader group. Raises ValueError without one, OffsetBehindError."""
        if not self.config.reader_group:
            raise ValueError("commit: a consumer without reader_group=… keeps no offsets")
        given = positions_of("positions", positions)
        await self._calls.commit_offsets(self.config.reader_group, given, allow_back=allow_back)

    async def commit_read(self, positions: Mapping[Queue, int], *, allow_back: bool) -> None:
        """Like `commit`, for everything read so far. Light queues that have no message yet, or were
        deleted meanwhile, are left out, since they have nothing to commit."""
        left = {one: at for one, at in positions.items() if at or one not in self._empty}
        while True:
            try:
                return await self.commit(left, allow_back=allow_back)
            except NotFoundError as error:
                missing = await self._missing(left, error)
                if not missing:
                    raise
            left = {one: at for one, at in left.items() if one not in missing}

    async def _missing(self, positions: Mapping[Queue, int], error: NotFoundError) -> set[Queue]:
        """Light queues that do not exist: the one that the error names, and those at offset 0."""
        named = Queue(error.metadata.get("topic", ""))
        if named not in positions or not named.topic.startswith(LIGHT_PREFIX):
            return set()
        unread = [
            one for one, at in positions.items() if not at and one.topic.startswith(LIGHT_PREFIX)
        ]
        found = await self._look_up(unread, self._calls.offsets, _NOTHING)
        empty = {queue for queue, bounds in found.items() if bounds is _NOTHING}
        self._empty |= empty
        return {named, *empty}

    async def close(self) -> None:
        """Stop fetching. Repeatable."""
        self._forget(self)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.subscription.fail(ClosedError("the consumer is closed"))  # in case it never started


class ConsumerState:
    """Properties of Consumer and AsyncConsumer."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    @property
    def queue(self) -> Queue | None:
        """The queue of the last message or batch; the light queue if it was read from one."""
        return self._core.queue

    def positions(self) -> dict[Queue, int]:
        """The next offset of each queue: after the last message that was returned."""
        return self._core.positions()
