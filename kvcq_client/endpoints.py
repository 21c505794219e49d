"""The producers, consumers and receivers of a connection."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client.arguments import check_known, of_kind, text, wrong_kind
from kvcq_client.consuming import ConsumerConfig, ConsumerCore
from kvcq_client.producing import ProducerConfig, ProducerCore
from kvcq_client.receiving import LiteCore, ReceiverConfig, ReceiverCore, topics_of
from kvcq_client.transacting import ChecksCore
from kvcq_client.transport import in_background

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_client.calls import Calls
    from kvcq_client.consuming import ConsumerSettings, Wanted
    from kvcq_client.producing import ProducerSettings
    from kvcq_client.receiving import ReceiverSettings
    from kvcq_client.shared_groups import LiteSettings
    from kvcq_client.transacting import Check
    from kvcq_client.transport import Connection


S = TypeVar("S", ProducerConfig, ConsumerConfig, ReceiverConfig)


class Endpoints:
    """Makes producers, consumers and receivers, and closes them with the client.

    Owned by the event loop.
    """

    def __init__(self, connection: Connection, calls: Calls) -> None:
        self._connection = connection
        self._calls = calls
        self._open: set[ProducerCore | ConsumerCore | ReceiverCore | ChecksCore] = set()
        self._closing: asyncio.Task[None] | None = None

    def producer(self, config: ProducerConfig | None, settings: ProducerSettings) -> ProducerCore:
        """Make a producer. Raises ClosedError."""
        self._connection.check_open()
        chosen = _chosen(ProducerConfig, config, settings)
        core = ProducerCore(self._connection, chosen, self._open.discard)
        self._open.add(core)
        return core

    async def consumer(
        self, queues: Wanted, config: ConsumerConfig | None, settings: ConsumerSettings
    ) -> ConsumerCore:
        """Make a consumer that follows the queues. Raises NotFoundError, ClosedError."""
        self._connection.check_open()
        chosen = _chosen(ConsumerConfig, config, settings)
        core = ConsumerCore(self._connection, self._calls, chosen, self._open.discard)
        self._open.add(core)
        try:
            await core.follow(queues)
        except BaseException:
            await core.close()
            raise
        return core

    def receiver(
        self, topics: object, config: ReceiverConfig | None, settings: ReceiverSettings
    ) -> ReceiverCore:
        """Make a receiver; it begins with its first reader. Raises ClosedError."""
        self._connection.check_open()
        chosen = _chosen(ReceiverConfig, config, settings)
        core = ReceiverCore(
            self._connection, self._calls, topics_of(topics), chosen, self._open.discard
        )
        self._open.add(core)
        return core

    def lite_receiver(
        self,
        lite: LiteSettings,
        config: ReceiverConfig | None,
        settings: ReceiverSettings,
        *,
        in_order: bool,
    ) -> LiteCore:
        """Like `receiver`, for lite topics of a parent."""
        self._connection.check_open()
        chosen = _chosen(ReceiverConfig, config, settings)
        if chosen.tag_filter or chosen.sql_filter:
            field = "tag_filter" if chosen.tag_filter else "sql_filter"
            raise ValueError(f"{field}: a receiver of lite topics has no filter")
        (parent,) = topics_of(lite.parent)
        core = LiteCore(
            self._connection, self._calls, parent, chosen, lite, in_order, self._open.discard
        )
        self._open.add(core)
        return core

    def checks(self, group: str, check: Check) -> ChecksCore:
        """Answer the server's questions about transactions of the group. Raises ClosedError."""
        self._connection.check_open()
        text("group", group)
        if not callable(check):
            raise wrong_kind("check", "a function that takes a TransactionCheck", check)
        core = ChecksCore(self._connection, self._calls, group, check, self._open.discard)
        self._open.add(core)
        return core

    async def close(self) -> None:
        """Close all; producers deliver first. A concurrent call waits for the same end."""
        if self._closing is None or self._closing.done():
            self._closing = in_background(self._close_all(), "kvcq-closing")
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        await asyncio.gather(*(core.close() for core in tuple(self._open)))


def _chosen(kind: type[S], config: S | None, settings: Mapping[str, Any]) -> S:
    """The config with these fields replaced. Raises TypeError, ValueError."""
    of_kind("config", config, kind, or_none=True)
    known = {field.name for field in fields(kind)}
    check_known(name for name in settings if name not in known)
    return kind(**settings) if config is None else replace(config, **settings)
