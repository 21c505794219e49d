"""The client, in an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_client.access import AsyncAccess
from kvcq_client.calls import Calls
from kvcq_client.consuming import AsyncConsumer
from kvcq_client.endpoints import Endpoints
from kvcq_client.jobs import AsyncJobs
from kvcq_client.migration import AsyncMigration
from kvcq_client.producing import AsyncProducer
from kvcq_client.receiving import AsyncLiteReceiver, AsyncReceiver
from kvcq_client.shared_groups import LiteSettings
from kvcq_client.transacting import AsyncTransaction, AsyncTransactionChecks
from kvcq_client.transport import (
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    AsyncClosing,
    Connection,
    LoopWaits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from kvcq_client.consuming import ConsumerConfig, ConsumerSettings, Wanted
    from kvcq_client.producing import ProducerConfig, ProducerSettings
    from kvcq_client.receiving import ReceiverConfig, ReceiverSettings
    from kvcq_client.transacting import Check
    from kvcq_client.transport import TLS, Credentials
    from kvcq_client.values import Message


class AsyncClient(Calls, AsyncClosing):
    """A connection to one server, and every call that it offers.

    `async with AsyncClient("127.0.0.1:8081") as client:` — nothing is sent before the first call.
    Every call has a deadline, `timeout_s` unless it is given its own. Until then it is retried
    while the server cannot be reached or is not ready. Owned by the event loop that it was made in.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`options` are gRPC channel arguments; they override the client's own.

        A proxy of the environment is not used for this machine, nor where `NO_PROXY` excludes it.

        Raises ValueError, and OSError when a file of `tls` cannot be read.
        """
        super().__init__(
            Connection(
                target, timeout_s=timeout_s, options=options, tls=tls, credentials=credentials
            )
        )
        self._endpoints = Endpoints(self._connection, self)

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._connection.target

    @property
    def jobs(self) -> AsyncJobs:
        """Long pieces of work on the server."""
        return AsyncJobs(self._connection)

    @property
    def migration(self) -> AsyncMigration:
        """The steps of a migration of the server's store."""
        return AsyncMigration(self._connection)

    @property
    def access(self) -> AsyncAccess:
        """The users of the server, and their rights."""
        return AsyncAccess(self._connection)

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> AsyncProducer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""
        return AsyncProducer(self._endpoints.producer(config, settings), LoopWaits())

    async def consumer(
        self,
        queues: Wanted = (),
        config: ConsumerConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> AsyncConsumer:
        """A consumer of topics (all their queues), light queues, or queues.

        `{Queue("orders", 0): 42}` says where to begin; otherwise `start` does. `settings` are
        fields of ConsumerConfig. With `reader_group` the server keeps the committed offsets; every
        consumer of a reader group reads every message. Raises NotFoundError, ClosedError.
        """
        return AsyncConsumer(await self._endpoints.consumer(queues, config, settings), LoopWaits())

    def receiver(
        self,
        topics: str | Iterable[str],
        config: ReceiverConfig | None = None,
        **settings: Unpack[ReceiverSettings],
    ) -> AsyncReceiver:
        """A receiver of topics, or light queues, for a shared group: `receiver("jobs", group="g")`.

        The group's members share the messages: each is delivered to one of them, until it is
        acknowledged. `settings` are fields of ReceiverConfig. Receiving starts with the first read.
        Raises ClosedError.
        """
        return AsyncReceiver(self._endpoints.receiver(topics, config, settings), LoopWaits())

    def lite_receiver(
        self,
        parent: str,
        config: ReceiverConfig | None = None,
        *,
        wildcard: bool = False,
        exclusive: bool = False,
        in_order: bool = True,
        **settings: Unpack[ReceiverSettings],
    ) -> AsyncLiteReceiver:
        """A receiver of lite topics of a parent, for a shared group. Subscribe it to lite topics.

        A missing group is created. By default it is in order: one receiver at a time works on a
        lite topic; `in_order=False` allows several. With `exclusive`, a lite topic belongs to the
        receiver that subscribed last. In a `wildcard` group the receivers share all lite topics of
        the parent. If the group exists and is not what `exclusive` or `wildcard` asks for, `take`
        and `subscribe` raise NotPossibleError. Everything else is as in `receiver`.
        """
        kind = LiteSettings(parent, exclusive=exclusive, wildcard=wildcard)
        core = self._endpoints.lite_receiver(kind, config, settings, in_order=in_order)
        return AsyncLiteReceiver(core, LoopWaits())

    def transaction(
        self, message: Message, *, group: str, immunity_s: float = 0.0
    ) -> AsyncTransaction:
        """A transaction of the message, as a block: `with client.transaction(message, group="g"):`.

        The message is delivered when the block ends, and dropped if it raises. `group`,
        `immunity_s`: see `begin_transaction`.
        """
        return AsyncTransaction(self, message, group, immunity_s)

    def answer_checks(self, group: str, check: Check) -> AsyncTransactionChecks:
        """Answer the server's checks of undecided transactions of the group.

        `check` takes a TransactionCheck and returns True to commit it, False to roll it back, None
        to be asked again. It may be a coroutine function; otherwise it is called in threads. If it
        raises, the error is logged, and the server asks again. Checks are answered until the
        returned object, or the client, is closed. Raises ClosedError.
        """
        return AsyncTransactionChecks(self._endpoints.checks(group, check))

    async def close(self) -> None:
        """Close producers (they deliver first), consumers and receivers, then the connection.

        Repeatable.
        """
        await self._endpoints.close()
        await self._connection.close()
