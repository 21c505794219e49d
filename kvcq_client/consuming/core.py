"""What both faces of a consumer share: where to begin, where it stands, what to commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvcq_client.arguments import positions_of, queue_of, text, wrong_kind
from kvcq_client.consuming.subscription import Subscription
from kvcq_client.errors import CorruptRecordError, DeadlineError, NotFoundError
from kvcq_client.format import split_records
from kvcq_client.transport import in_background
from kvcq_client.values import LIGHT_PREFIX, Bounds, Queue, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Sequence

    from kvcq_client.calls import Calls
    from kvcq_client.consuming.config import ConsumerConfig
    from kvcq_client.consuming.subscription import Fetched
    from kvcq_client.format import StoredMessage
    from kvcq_client.transport import Connection

V = TypeVar("V")

#: What a consumer may be told to follow: topics (all their queues), light queues, single queues,
#: or queues with the offsets to begin at.
Wanted = str | Queue | Iterable[str | Queue] | Mapping[Queue, int]


#: Light queues that are looked up one by one, at a time: some of them have no message yet.
_LOOKUPS = 64


class Part(NamedTuple):
    """What a `take` goes through of one batch: `messages[at:end]`."""

    queue: Queue
    messages: list[StoredMessage]
    at: int
    end: int
    position: int  # of the queue before it
    next_offset: int  # behind all of the batch


class ConsumerCore:
    """Positions of one consumer. Coroutines in the event loop; the rest by one reader."""

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
        # The next offset to read of each queue, as the reader has seen it.
        self._positions: dict[Queue, int] = {}
        # What the reader goes through just now; its queue's position moves with `index`.
        self.queue: Queue | None = None
        self.messages: list[StoredMessage] = []
        self.index = 0  # messages of it that were read
        self._next_offset = 0  # behind all of them
        self._begun: Fetched | None = None  # and perhaps still to be taken out of the subscription
        # Batches that are read again before anything else; the first may be begun already.
        self._given_back: deque[Part] = deque()
        self._broken: CorruptRecordError | None = None
        self._to_reach: dict[Queue, int] = {}  # ends that `to_end` waits for

    # --- reading; on the reader's thread ---------------------------------------------------

    def next_batch(self) -> list[StoredMessage] | None:
        """The next messages of some queue, none of them read yet; None when there are none now.

        Raises the error of a queue (the others go on), or the failure of all. A record that does
        not verify is such a failure: going on behind it would skip it.
        """
        if self._broken is not None:
            raise self._broken
        while True:
            self._take_begun()
            self.finish_batch()
            if self._given_back:
                part = self._given_back[0]
                self.queue, self.messages, self.index = part.queue, part.messages, 0
                self._next_offset = part.next_offset
                return self.messages
            fetched = self.subscription.first()
            if fetched is None:
                return None
            if fetched.error is not None:
                self._to_reach.pop(fetched.queue, None)
                self.subscription.take(fetched)
                raise fetched.error
            self._begin(fetched)
            self._take_begun()
            if self.messages:
                return self.messages

    def rest_of_batch(self) -> list[StoredMessage]:
        """What is left of the batch at hand, now read."""
        rest = self.messages[self.index :]
        self.index = len(self.messages)
        return rest

    def part(self, most: int) -> Part:
        """What is next of the batch at hand, at most so many; not read yet."""
        assert self.queue is not None
        end = min(self.index + most, len(self.messages))
        position = self._position_in_batch()
        return Part(self.queue, self.messages, self.index, end, position, self._next_offset)

    def give_back(self, parts: Sequence[Part]) -> None:
        """These were not handed out after all: they come again, before anything else."""
        if self.queue is not None and not (parts and parts[-1].messages is self.messages):
            parts = [*parts, self.part(0)]
        self._take_begun()
        self._forget_batch()
        for part in reversed(parts):
            self._positions[part.queue] = part.position
            self._given_back.appendleft(part._replace(messages=part.messages[part.at :]))

    def _begin(self, fetched: Fetched) -> None:
        records = fetched.records
        try:
            messages = (
                split_records(
                    records,
                    fetched.queue_offsets,
                    queue=fetched.queue,
                    verify=self.config.verify,
                )
                if records
                else []
            )
        except CorruptRecordError as error:
            self._broken = error
            raise
        # No call in between, so no interrupt: the batch is begun, or still there to be begun.
        self.queue, self.messages, self.index = fetched.queue, messages, 0
        self._next_offset = fetched.next_offset
        self._begun = fetched

    def _take_begun(self) -> None:
        """The batch at hand is not fetched, nor given back, any more."""
        if self._begun is not None:
            self.subscription.take(self._begun)
            self._begun = None
        if self._given_back and self._given_back[0].messages is self.messages:
            self._given_back.popleft()

    def finish_batch(self) -> None:
        """What the reader went through becomes its position."""
        queue = self.queue
        if queue is not None:
            position = self._positions[queue] = self._position_in_batch()
            self._forget_batch()
            if self._to_reach.get(queue, position + 1) <= position:
                del self._to_reach[queue]

    def _forget_batch(self) -> None:
        self.queue, self.messages, self.index = None, [], 0

    def aim_at(self, ends: Mapping[Queue, int]) -> None:
        """Count down the queues that have not reached these offsets, in `behind`."""
        positions = self.positions()
        self._to_reach = {queue: end for queue, end in ends.items() if positions[queue] < end}

    @property
    def behind(self) -> int:
        """Queues that have not reached what was aimed at."""
        return len(self._to_reach)

    def stuck(self, idle_timeout_s: float) -> DeadlineError:
        """What to raise when nothing comes and `behind` is not 0."""
        return DeadlineError(
            f"nothing arrived for {idle_timeout_s:g} s; {self.behind} queues are not at their end"
        )

    def _position_in_batch(self) -> int:
        if self.index >= len(self.messages):
            return self._next_offset
        if self.index:
            return self.messages[self.index - 1].queue_offset + 1
        assert self.queue is not None
        return self._positions[self.queue]

    def positions(self) -> dict[Queue, int]:
        """The next offset to read of each queue: behind the last message that was handed out."""
        positions = dict(self._positions)
        if self.queue is not None and self.queue in positions:
            positions[self.queue] = self._position_in_batch()
        return positions

    # --- in the loop -----------------------------------------------------------------------

    async def follow(self, wanted: Wanted) -> None:
        """Find where to begin, and begin. Raises NotFoundError and what the calls raise."""
        if isinstance(wanted, Mapping):
            offsets = positions_of("queues", wanted)
        else:
            several = [wanted] if isinstance(wanted, str | Queue) else wanted
            if not isinstance(several, Iterable):
                raise wrong_kind("queues", "a topic, a Queue, or several", several)
            offsets = await self._starts(await self._queues(several), self.config.begins_at)
        self._move(offsets)

    async def seek(self, to: Mapping[Queue, int] | Start) -> None:
        """Go on elsewhere. What was fetched for the old place is dropped."""
        if isinstance(to, Start):
            self._move(await self._starts(self.subscription.queues, to))
        else:
            self._move(positions_of("to", to))

    def leave(self, queues: Iterable[Queue]) -> None:
        """Follow these no longer."""
        gone = [queue_of("queues", queue) for queue in queues]
        self.subscription.leave(gone)
        for queue in gone:
            self._positions.pop(queue, None)
            self._to_reach.pop(queue, None)
        self._forget_of(gone)

    def _move(self, offsets: Mapping[Queue, int]) -> None:
        self._forget_of(offsets)
        self._positions.update(offsets)
        self.subscription.follow(offsets)

    def _forget_of(self, queues: Container[Queue]) -> None:
        self._given_back = deque(part for part in self._given_back if part.queue not in queues)
        if self.queue in queues:
            self._forget_batch()

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
        bounds = await self._look_up(queues, self._calls.offsets, Bounds(0, 0))
        return {
            queue: one.min_offset if start is Start.EARLIEST else one.max_offset
            for queue, one in bounds.items()
        }

    async def ends(self) -> dict[Queue, int]:
        """The present end of each queue that is followed.

        A queue that failed, and whose error nobody has seen, ends behind what could not be read.
        """
        queues = self.subscription.queues
        bounds = await self._look_up(queues, self._calls.offsets, Bounds(0, 0))
        ends = {queue: one.max_offset for queue, one in bounds.items()}
        return {**ends, **{queue: at + 1 for queue, at in self.subscription.failed().items()}}

    async def _committed(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        found = await self._calls.group_offsets(self.config.group, queues)
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
        """What `ask` says of each queue; `nothing` of a light queue that has no message yet.

        Raises NotFoundError for other queues that do not exist.
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

    async def commit(self, positions: Mapping[Queue, int]) -> None:
        """Commit these for the group. Raises ValueError without a group."""
        if not self.config.group:
            raise ValueError("a consumer without a group has nothing to commit to")
        given = positions_of("positions", positions)
        await self._calls.commit_offsets(self.config.group, given)

    async def close(self) -> None:
        """Stop fetching. Repeatable."""
        self._forget(self)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class ConsumerState:
    """What a consumer tells of itself, in both faces."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    @property
    def queue(self) -> Queue | None:
        """The queue of the last message or batch; a light queue where one was read."""
        return self._core.queue

    def positions(self) -> dict[Queue, int]:
        """The next offset of each queue: behind the last message that was handed out."""
        return self._core.positions()
