"""Transactions of RocketMQ 5's clients.

Their producers have no group. As in RocketMQ's proxy, the topic's name is used instead. So checks
may go to any producer that named the topic in its settings, on its telemetry stream.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from server.access import ResourceKind, Role, current_caller
from server.errors import AccessError, ClientStatusError
from server.rocketmq.messages_out import orphan_out
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.times import milliseconds_of
from store.errors import InvalidArgumentError, TransactionEndedError, UnknownTransactionError
from store.held import Begin, Decide, unpack_transaction_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from server.access import Caller
    from server.rocketmq.telemetry import Outbox
    from server.transactions import Checks, TransactionWriter
    from store.held import Check
    from store.message import Message

#: Most characters of a group.
_MOST_GROUP = 120


def is_transaction(messages: Sequence[v2.Message], types: Sequence[v2.MessageType]) -> bool:
    """Whether the messages of a request begin a transaction. `types`: one for each message. Raises
    ClientStatusError."""
    if v2.TRANSACTION not in types:
        return False
    if len(messages) > 1:
        raise ClientStatusError(
            v2.MESSAGE_CORRUPTED,
            "a message of a transaction must be sent in a request of its own; nothing was stored",
        )
    system = messages[0].system_properties
    for field in ("message_group", "delivery_timestamp"):
        if system.HasField(field):
            raise ClientStatusError(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"a message of a transaction has no {field}; nothing was stored",
            )
    return True


class Transactions:
    """Begins and decides transactions, and sends checks to producers. Owned by the event loop's
    thread."""

    def __init__(self, writer: TransactionWriter, checks: Checks) -> None:
        self._writer = writer
        self._checks = checks

    async def begin(self, given: v2.Message, message: Message) -> str:
        """Begin a transaction; returns its id. Raises what Halves.begin raises."""
        system = given.system_properties
        immunity_ms = 0
        if system.HasField("orphaned_transaction_recovery_duration"):
            immunity_ms = milliseconds_of(system.orphaned_transaction_recovery_duration)
        begin = Begin(message, _group_of(message.topic), max(0, immunity_ms))
        transaction_id = await self._writer.decide(begin)
        current_caller().count_messages(1)
        return transaction_id

    async def end(self, request: pb.EndTransactionRequest) -> None:
        """Apply the client's decision. Raises ClientStatusError, and what an append raises."""
        transaction_id = request.transaction_id
        try:
            named = unpack_transaction_id(transaction_id)
            if named.topic != request.topic.name:
                raise UnknownTransactionError(transaction_id)
            if request.resolution not in (v2.COMMIT, v2.ROLLBACK):
                return  # its checker cannot tell: it stays open
            commit = request.resolution == v2.COMMIT
            await self._writer.decide(Decide(transaction_id, commit))
        except (InvalidArgumentError, UnknownTransactionError, TransactionEndedError) as error:
            raise ClientStatusError(v2.INVALID_TRANSACTION_ID, str(error)) from None

    @contextmanager
    def answering(self, outbox: Outbox) -> Iterator[Callable[[v2.Settings], None]]:
        """A context in which the client on that stream may be asked about the topics in the
        settings that are passed to the returned function."""
        producer = _Producer(current_caller(), outbox)
        removes: dict[str, Callable[[], None]] = {}

        def told(settings: v2.Settings) -> None:
            named = {_group_of(each.name) for each in settings.publishing.topics}
            for group in removes.keys() - named:
                removes.pop(group)()
            for group in named - removes.keys():
                removes[group] = self._checks.listen(group, producer)

        try:
            yield told
        finally:
            for remove in removes.values():
                remove()


class _Producer:
    """A client with a telemetry stream."""

    def __init__(self, caller: Caller, outbox: Outbox) -> None:
        self._caller = caller
        self._outbox = outbox

    def may_be_asked(self, topic: str) -> bool:
        try:
            self._caller.check(Role.PUBLISH, ResourceKind.TOPIC, topic)
        except AccessError:  # also of a user that is gone: its stream stays open
            return False
        return True

    async def send(self, check: Check) -> None:
        command = pb.TelemetryCommand(
            recover_orphaned_transaction_command=pb.RecoverOrphanedTransactionCommand(
                message=orphan_out(check.message), transaction_id=check.transaction_id
            )
        )
        if not await self._outbox.hand_over(command):
            raise ConnectionError


def _group_of(topic: str) -> str:
    return topic[:_MOST_GROUP]
