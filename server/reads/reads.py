"""Pulls, receives and subscriptions, and what they share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.access import asker, current_caller
from server.reads.group_readers import GroupReaders
from server.reads.queue_growth import QueueGrowth
from server.reads.reader import Place, QueueReader, Wanted
from server.reads.ready_queues import ReadyQueues
from server.reads.receives import Receive, Receives, T
from server.reads.subscription import Subscription
from server.wire import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    MAX_PULL_MESSAGES,
    PAGE_BYTES,
    bounded,
    form_of,
    host_of_peer,
    host_text,
    in_range,
    not_negative,
)
from store.reads import parse_filter

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
    )

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from kvcq_client.pb.v1 import shared_groups_pb2
    from server.edge import RequestMemory
    from server.metrics import CallMetrics
    from server.puts import Durability
    from server.readers import Readers
    from server.reads.members import Shown
    from server.stage import Stage
    from server.wire import Encoded
    from store.message_store import MessageStore
    from store.metadata import SharedGroup

#: A parked pull answers this much before its caller's deadline: an answer that says where the
#: queue ends is worth more than DEADLINE_EXCEEDED.
DEADLINE_MARGIN_S = 0.05
#: A longer poll would outlive what proxies and balancers keep open.
MAX_WAIT_MS = 60_000
#: Maximum that a pull may ask for; it gets PAGE_BYTES at most.
MAX_PULL_BYTES = 64 << 20


class Reads:
    """Reads messages from the store. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        memory: RequestMemory,
        stage: Stage,
        metrics: CallMetrics,
        durability: Durability,
    ) -> None:
        self._memory = memory
        self._stage = stage
        self._metrics = metrics
        self._reader = QueueReader(store, memory)
        self._groups = GroupReaders()
        self.growth = QueueGrowth(asyncio.get_running_loop())
        self._receives = Receives(store, memory, metrics, self.growth, stage, durability)
        self._stop_listening = store.on_dispatch(self.growth.on_growth)

    def topic_was_deleted(self, name: str, queue_count: int) -> None:
        """Wake all waiters of these queues. Any thread; a light queue counts as one queue."""
        self.growth.changed([(name, queue_id) for queue_id in range(queue_count)])

    def close(self) -> None:
        """Stop wake-ups, and wait for running reads. Blocks."""
        self._stop_listening()
        self.growth.close()
        self._reader.close()
        self._receives.close()

    @property
    def waiting(self) -> int:
        """Number of reads that wait for a thread."""
        return self._reader.waiting + self._receives.waiting

    @property
    def waiting_receives(self) -> int:
        """Number of receives that wait for a message."""
        return self._receives.lines.waiting

    @property
    def processes(self) -> Readers:
        """The reader processes for cold reads."""
        return self._reader.processes

    async def pull(self, request: pb.PullRequest, remaining_s: float | None) -> bytes:
        """The encoded response to one pull, which may wait, but no longer than `remaining_s`.

        Raises what MessageStore.pull raises, and MemoryFullError.
        """
        asked, wait_ms = self._asked(request)
        caller = current_caller()

        async def read(place: Place) -> Encoded:
            caller.subscribes(request.topic)  # again: it may have been parked for long
            return await self._reader.read(place)

        found = await read(asked)
        wait_s = wait_seconds(wait_ms, remaining_s)
        if wait_s and not found.has_news:
            # From here on it is for this very queue, not for a later one of the name.
            found = await self._parked(read, asked._replace(given_at=found.given_at), wait_s)
        return self._taken(asked, found)

    def pull_now(self, request: pb.PullRequest) -> bytes | None:
        """Like `pull`, without a turn of the loop; None if it would take one, a thread, or a wait.

        Raises what `pull` raises, except MemoryFullError.
        """
        place, wait_ms = self._asked(request)
        current_caller().subscribes(request.topic)
        may_read = self._reader.turns.is_free and not self._memory.is_crowded(asker())
        found = self._reader.read_here(place) if may_read else None
        if found is None or (wait_ms and not found.has_news):
            return None
        return self._taken(place, found)

    async def _parked(
        self, read: Callable[[Place], Awaitable[Encoded]], place: Place, wait_s: float
    ) -> Encoded:
        """The result of `read` once it has news, or at the end of the wait."""
        until_s = asyncio.get_running_loop().time() + wait_s
        queues = ReadyQueues(self.growth, self._stage)
        queues.follow(place.key)
        try:
            while True:
                # Read after following: a message that came in between is not missed.
                found = await read(place)
                if found.has_news or self._stage.is_draining:
                    return found
                if not await queues.until_any(until_s):
                    return found
        finally:
            queues.leave(place.key)
            queues.close()

    async def receive(
        self, request: shared_groups_pb2.ReceiveRequest, remaining_s: float | None
    ) -> bytes:
        """The encoded response to one receive, which waits as a pull does.

        Raises what SharedGroups.receive raises, and MemoryFullError.
        """
        wait_ms = in_range("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
        return await self._receives.receive(request, wait_seconds(wait_ms, remaining_s))

    def receive_now(self, request: shared_groups_pb2.ReceiveRequest) -> bytes | None:
        """Like `receive`, without a turn of the loop; None if it would take one. Raises like
        `receive`, except MemoryFullError."""
        in_range("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
        return self._receives.receive_now(request)

    def disconnected(self, peer: str) -> None:
        """The connection broke off its calls: see Members."""
        self._receives.members.disconnected(peer)

    def members(self, group: str, held: Mapping[int, int]) -> list[Shown]:
        """The members of the group; `held`: messages in flight by nonce of lease."""
        return self._receives.members.of(group, held)

    def receivers(self, nonces: Iterable[int]) -> dict[int, tuple[str, str]]:
        """User and address that got these leases, as far as remembered."""
        return {
            nonce: (user, host_text(host_of_peer(peer)))
            for nonce, (user, peer) in self._receives.members.who(nonces).items()
        }

    async def take(self, wanted: Receive[T], wait_s: float = 0.0) -> T:
        """The response to a receive of another client than ours. Raises like `receive`."""
        return await self._receives.take(wanted, wait_s)

    async def make_group(self, group: str, settings: SharedGroup) -> None:
        """Create a missing group for a receiver. Raises TooManyGroupsError, and what
        SharedGroups.create raises."""
        await self._receives.make_group(group, settings)

    def _asked(self, request: pb.PullRequest) -> tuple[Place, int]:
        """Where to read, and how long to wait there, in ms. Raises InvalidArgumentError."""
        offset = not_negative("offset", request.offset)
        key = (request.topic, not_negative("queue_id", request.queue_id))
        form = form_of(request.form)
        max_messages = bounded(
            "max_messages", request.max_messages, DEFAULT_PULL_MESSAGES, MAX_PULL_MESSAGES
        )
        max_bytes = bounded("max_bytes", request.max_bytes, DEFAULT_PULL_BYTES, MAX_PULL_BYTES)
        max_bytes = min(max_bytes, PAGE_BYTES)
        wait_ms = in_range("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
        wanted = Wanted(
            max_messages,
            parse_filter(request.tag_filter, request.sql_filter),
            form,
            in_stream=False,
            may_begin=wait_ms > 0,
        )
        given_at = request.given_at if request.HasField("given_at") else None
        return Place(key, offset, max_bytes, wanted, given_at), wait_ms

    def _taken(self, place: Place, found: Encoded) -> bytes:
        self._metrics.pulled(place.key[0], found.message_count, found.cost_bytes)
        current_caller().count_messages(found.message_count)
        return found.data

    def subscribe(
        self,
        requests: AsyncIterator[pb.SubscribeRequest],
        call_id: str,
        address: str,
    ) -> AsyncGenerator[bytes, None]:
        """The responses of one subscription; `address` of its caller."""
        return Subscription(
            self._reader,
            self.growth,
            self._memory,
            self._stage,
            self._metrics,
            call_id,
            self._groups,
            address,
        ).run(requests)


def wait_seconds(wait_ms: int, remaining_s: float | None) -> float:
    """How long to park: what was asked for, within the caller's own deadline."""
    wait_s = wait_ms / 1000
    if remaining_s is None:
        return wait_s
    return max(0.0, min(wait_s, remaining_s - DEADLINE_MARGIN_S))
