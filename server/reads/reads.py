"""Pulls and subscriptions, and what they share."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING

from server.access import current_caller
from server.reads.answer import Answer, answer_of
from server.reads.long_poll import pull_or_wait, wait_seconds
from server.reads.queue_growth import QueueGrowth
from server.reads.reader import Aside, Place, QueueReader, Wanted, is_laborious
from server.reads.subscription import Subscription
from server.wire import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    MAX_PULL_MESSAGES,
    PAGE_BYTES,
    bounded,
    form_of,
    in_range,
    not_negative,
)
from store.message import PullStatus
from store.reads import TagFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from server.access import Caller
    from server.config import ServerConfig
    from server.edge import RequestMemory
    from server.encoded import Held
    from server.metrics import CallMetrics
    from server.readers import FrontReads, Readers
    from server.reads.queue_growth import QueueKey
    from server.stage import Stage
    from store.message_store import MessageStore
    from store.reads import Pulled

_COST_BYTES = attrgetter("cost_bytes")


class Reads:
    """The way of messages out of the store. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        config: ServerConfig,
        memory: RequestMemory,
        stage: Stage,
        metrics: CallMetrics,
    ) -> None:
        self._config = config
        self._memory = memory
        self._stage = stage
        self._metrics = metrics
        self._reader = QueueReader(store, config, memory)
        self.growth = QueueGrowth(asyncio.get_running_loop())
        self._stop_listening = store.on_dispatch(self.growth.grew)

    def reconfigure(self, config: ServerConfig) -> None:
        """Take the settings that may change; a subscription keeps those it began with."""
        self._config = config
        self._reader.set_cold_read_share(config.cold_read_share)

    def close(self) -> None:
        """No queue wakes anybody from here on; wait for the reads under way. Blocks."""
        self._stop_listening()
        self.growth.close()
        self._reader.close()

    @property
    def waiting(self) -> int:
        """Reads that have no thread yet."""
        return self._reader.waiting

    @property
    def processes(self) -> Readers:
        """Those that read far behind the end."""
        return self._reader.processes

    async def pull(
        self,
        request: pb.PullRequest,
        remaining_s: float | None,
        front: FrontReads | None = None,
    ) -> pb.PullResponse | bytes | Held:
        """One pull, which waits if it is asked to, but no longer than `remaining_s`. It may be
        read by the `front` that it came by.

        Raises what MessageStore.pull raises, and MemoryFullError.
        """
        place, wait_ms = self._asked(request)
        key, offset, _, (_, _, form) = place
        caller = current_caller()

        def pull() -> Pulled:
            return self._reader.pull(*place, may_wait=wait_ms > 0)

        def read_in_worker(aside: bool) -> Answer:  # noqa: FBT001 - of a callback
            found = self._reader.pull_aside(*place, in_stream=False) if aside else pull()
            if isinstance(found, Aside):
                return Answer(found.status, *found.encoded)
            return answer_of(found, form, encode=True)

        async def read() -> Answer:
            caller.subscribes(request.topic)  # again: it may have been parked for long
            if self._memory.is_crowded:
                await self._memory.room_to_send()
            reader = self._reader
            if front is not None and not reader.is_cold(key, offset):
                found = await reader.pull_in_front(
                    front, *place, may_wait=wait_ms > 0, in_stream=False
                )
                if isinstance(found, Aside):
                    return Answer(found.status, *found.encoded)
                assert found is not None
                pulled = found
            elif reader.needs_worker(*place):
                return await reader.in_worker(key, offset, read_in_worker, _COST_BYTES)
            else:
                pulled = pull()
            if is_laborious(pulled, form):
                return await reader.threads.run(answer_of, pulled, form, encode=True)
            return answer_of(pulled, form, encode=False)

        if wait_ms:
            found = await pull_or_wait(
                read, key, self.growth, self._stage, wait_seconds(wait_ms, remaining_s)
            )
        else:
            found = await read()
        return self._taken(key, caller, found)

    def pull_now(
        self, request: pb.PullRequest, front: FrontReads | None = None
    ) -> pb.PullResponse | bytes | Held | None:
        """The same without a turn of the loop, None when it takes one: for a worker, or to wait, or
        for the `front` that it came by.

        Raises what `pull` raises, but MemoryFullError.
        """
        place, wait_ms = self._asked(request)
        key, _, _, wanted = place
        caller = current_caller()
        caller.subscribes(request.topic)
        reader = self._reader
        if self._memory.is_crowded or reader.needs_worker(*place):
            return None
        if front is not None and reader.may_be_much(*place):
            return None
        pulled = reader.pull(*place, may_wait=wait_ms > 0)
        if wait_ms and pulled.status is PullStatus.NO_NEW_MESSAGE:
            return None
        if is_laborious(pulled, wanted.form):
            return None
        return self._taken(key, caller, answer_of(pulled, wanted.form, encode=False))

    def _asked(self, request: pb.PullRequest) -> tuple[Place, int]:
        """Where to read, and how long to wait there, in ms. Raises InvalidArgumentError."""
        config = self._config
        offset = not_negative("offset", request.offset)
        key = (request.topic, not_negative("queue_id", request.queue_id))
        form = form_of(request.form)
        max_messages = bounded(
            "max_messages", request.max_messages, DEFAULT_PULL_MESSAGES, MAX_PULL_MESSAGES
        )
        max_bytes = bounded(
            "max_bytes", request.max_bytes, DEFAULT_PULL_BYTES, config.max_pull_bytes
        )
        max_bytes = min(max_bytes, PAGE_BYTES)
        wait_ms = in_range("wait_ms", request.wait_ms, 0, config.max_wait_ms)
        wanted = Wanted(max_messages, TagFilter.parse(request.tag_filter), form)
        return (key, offset, max_bytes, wanted), wait_ms

    def _taken(
        self, key: QueueKey, caller: Caller, found: Answer
    ) -> pb.PullResponse | bytes | Held:
        self._metrics.pulled(key[0], found.message_count, found.cost_bytes)
        caller.took_messages(found.message_count)
        return found.response

    def subscribe(
        self,
        requests: AsyncIterator[pb.SubscribeRequest],
        call_id: str,
        front: FrontReads | None,
    ) -> AsyncGenerator[bytes | Held, None]:
        """The responses of one subscription."""
        return Subscription(
            self._reader,
            self.growth,
            self._config,
            self._memory,
            self._stage,
            self._metrics,
            call_id,
            front,
        ).run(requests)
