"""The client, in an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcq_client.calls import Calls
from kvcq_client.consuming import AsyncConsumer, ConsumerConfig, ConsumerCore
from kvcq_client.migration import AsyncMigration
from kvcq_client.producing import AsyncProducer, ProducerConfig, ProducerCore
from kvcq_client.transport import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, Connection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Unpack

    from kvcq_client.consuming import ConsumerSettings, Wanted
    from kvcq_client.producing import ProducerSettings


class AsyncClient(Calls):
    """A connection to one server, and all that can be asked of it.

    `async with AsyncClient("127.0.0.1:8081") as client:` — nothing is sent before the first call.
    Every call has a deadline, `timeout_s` unless it is given its own; until then a server that is
    not there, or not ready, is tried again. Owned by the event loop that it was made in.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """`options` are gRPC channel arguments, over the client's own."""
        super().__init__(Connection(target, timeout_s=timeout_s, options=options))
        self._users: set[AsyncProducer | AsyncConsumer] = set()

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._connection.target

    @property
    def migration(self) -> AsyncMigration:
        """The steps of a migration of the server's store."""
        return AsyncMigration(self._connection)

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> AsyncProducer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""
        self._connection.check_open()
        core = ProducerCore(
            self._connection,
            replace(config or ProducerConfig(), **settings),
            asyncio.get_running_loop(),
        )
        producer = AsyncProducer(core, self._users.discard)
        self._users.add(producer)
        return producer

    async def consumer(
        self,
        queues: Wanted = (),
        config: ConsumerConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> AsyncConsumer:
        """A consumer of topics (all their queues), light queues, or queues.

        `{Queue("orders", 0): 42}` says where to begin; else `start` does, a field of
        ConsumerConfig like all `settings`. A `group` keeps offsets and shares no work: each of its
        consumers reads every message. Raises NotFoundError, ClosedError.
        """
        self._connection.check_open()
        core = ConsumerCore(self._connection, self, replace(config or ConsumerConfig(), **settings))
        try:
            await core.follow(queues)
        except BaseException:
            await core.close()
            raise
        consumer = AsyncConsumer(core, self._users.discard)
        self._users.add(consumer)
        return consumer

    async def close(self) -> None:
        """Close producers (they deliver first) and consumers, then the connection. Repeatable."""
        await asyncio.gather(*(user.close() for user in tuple(self._users)))
        await self._connection.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
