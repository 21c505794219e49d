"""Deduplicates numbered batches: one that is sent again gets its old response and is not stored
again.

A producer numbers its messages; a batch has the number of its first one. This table remembers each
producer's next number, with the responses to its latest batches and a checksum of their content,
since a number stands for one content.

The table is bounded and lost with the process; the log is the truth. The first record of every
batch is marked (store/format/batch_mark.py), so the log knows whether a number is new, and what was
stored under it (store/puts/numbered_batches.py).

Two things are looked up in the log: the position of a producer that is not remembered, once; and a
batch with an older number whose response is not remembered. Neither happens in steady operation.
docs/producers.md discusses each case.

With users, a producer id belongs to its user: two users may choose the same id, and neither can
continue or see the other's batches.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from server.access import current_caller
from server.errors import (
    NumberPassedError,
    NumberReusedError,
    NumbersUnknownError,
    OutOfSequenceError,
)
from server.puts.durability import wait_visible
from server.wire import Columns, Stored
from store.errors import InvalidArgumentError
from store.format import BatchMark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from server.puts.appender import Append, Appender
    from server.workers import Workers
    from store.message import Message
    from store.message_store import MessageStore
    from store.puts import FoundBatch

# The id is part of a key of the index, where ":" ends it.
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LAST_SEQUENCE = 1 << 62
#: In place of a number that left the log with its record.
_EXPIRED = -1


class _Sent(NamedTuple):
    """A batch as it arrived, and how to append it if it is new."""

    producer_id: str
    name: str  # see `name_of`
    sequence: int
    messages: Sequence[Message]
    checksum: int
    append: Append

    def check_same(self, message_count: int, checksum: int) -> None:
        """Raises NumberReusedError unless this is the content stored under its number."""
        if (message_count, checksum) != (len(self.messages), self.checksum):
            held = f"{message_count} messages, checksum {checksum:08x}"
            raise NumberReusedError(self.producer_id, self.sequence, held)


class _Batch(NamedTuple):
    sequence: int
    checksum: int
    stored: Stored


@dataclass(slots=True)
class _Session:
    """The remembered state of one producer."""

    batches: deque[_Batch]
    # The lowest number not used; None while nothing is known of the producer.
    next_sequence: int | None
    # Whether the log has nothing from that number on. It cannot tell while queue files of RocketMQ
    # serve; each batch is looked up then.
    is_certain: bool

    def batch(self, sequence: int) -> _Batch | None:
        for batch in self.batches:
            if batch.sequence == sequence:
                return batch
        return None


@dataclass(slots=True)
class _ProducerLock:
    """The lock of one producer; exists only while it is used."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class ProducerSessions:
    """The producers' table. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        workers: Workers,
        producer_limit: int,
        remembered_batches: int,
        remembered_messages: int,
    ) -> None:
        self._store = store
        self._appender = appender
        self._workers = workers
        self._producer_limit = producer_limit
        self._remembered_batches = remembered_batches
        self._remembered_messages = remembered_messages
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # least recently used first
        # Those with batches, in the same order, and the number of messages in all of these.
        self._with_batches: OrderedDict[str, _Session] = OrderedDict()
        self._messages = 0
        self._locks: dict[str, _ProducerLock] = {}

    async def append(
        self,
        producer_id: str,
        sequence: int,
        messages: Sequence[Message],
        checksum: int,
        *,
        large: bool = False,
    ) -> Stored:
        """Store the batch, or find that it is already stored. Not yet durable in SYNC mode.

        `checksum`: of the content sent. A `large` batch is appended in a thread. Raises
        OutOfSequenceError if earlier numbers are missing, NumberReusedError if the number has other
        content, NumberPassedError if the number is used and its batch cannot be found;
        InvalidArgumentError and what the store raises. Then nothing was written, and the same
        sequence is expected again.
        """
        check_number(producer_id, sequence)
        name = name_of(producer_id)
        async with self._locked(name):
            append = self._appender.large if large else self._appender.small
            sent = _Sent(producer_id, name, sequence, messages, checksum, append)
            return await self._append_locked(sent)

    async def next_sequence(self, producer_id: str) -> int:
        """The lowest number that the producer has not used, as far back as the log goes.

        Raises InvalidArgumentError, NumbersUnknownError, and what the store raises.
        """
        check_number(producer_id, 0)
        name = name_of(producer_id)
        async with self._locked(name):
            session = await self._session(name)
        if session.next_sequence is None and not session.is_certain:
            raise NumbersUnknownError(producer_id)
        return session.next_sequence or 0

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncGenerator[None, None]:
        """One batch of a producer at a time, so that a lookup in the log is not overtaken."""
        mine = self._locks.setdefault(name, _ProducerLock())
        mine.users += 1
        try:
            async with mine.lock:
                yield
        finally:
            mine.users -= 1
            if not mine.users:
                del self._locks[name]

    async def _session(self, name: str) -> _Session:
        """The producer's state; read from the log if it is not remembered."""
        session = self._sessions.get(name)
        if session is None:
            # A batch that is in the log but not in the index yet must not count as new.
            await wait_visible(self._store)
            known = await self._workers.run(self._store.batches.next_sequence, name)
            session = _Session(deque(), known or None, is_certain=known is not None)
        return session

    async def _append_locked(self, sent: _Sent) -> Stored:
        producer_id, name, sequence = sent.producer_id, sent.name, sent.sequence
        session = await self._session(name)
        expected = session.next_sequence
        if sequence == expected and session.is_certain:
            return await self._append_new(session, sent)
        remembered = session.batch(sequence)
        if remembered is not None:
            sent.check_same(remembered.stored.columns.message_count, remembered.checksum)
            return remembered.stored._replace(repeated=True)
        if expected is not None and sequence > expected:
            raise OutOfSequenceError(producer_id, sequence, expected)
        if expected is None and session.is_certain:
            return await self._append_new(session, sent)
        await wait_visible(self._store)
        found = await self._workers.run(self._store.batches.find, name, sequence)
        if found is None:
            if expected is not None and sequence < expected:
                raise NumberPassedError(producer_id, sequence, expected)
            return await self._append_new(session, sent)
        mark = found.mark
        sent.check_same(mark.message_count, mark.checksum)
        if found.is_deleted:
            return await self._append_new(session, sent)
        if not found.standing:
            raise NumberPassedError(producer_id, sequence, max(expected or 0, mark.next_sequence))
        columns = _columns_of(found, sent.messages)
        stored = Stored(columns, found.end_offset, found.store_time_ms, repeated=True)
        batch = _Batch(sequence, sent.checksum, stored)
        self._remember(session, name, batch, mark.next_sequence)
        return stored

    async def _append_new(self, session: _Session, sent: _Sent) -> Stored:
        _, name, sequence, messages, checksum, append = sent
        next_sequence = max(session.next_sequence or 0, sequence + len(messages))
        mark = BatchMark(name, sequence, len(messages), checksum, next_sequence)
        stored = await append(messages, mark)
        # No await in between: a batch that is stored is remembered.
        self._remember(session, name, _Batch(sequence, checksum, stored), next_sequence)
        return stored

    def _remember(self, session: _Session, name: str, batch: _Batch, next_sequence: int) -> None:
        self._sessions[name] = session
        self._sessions.move_to_end(name)
        earlier = session.batch(batch.sequence)
        if earlier is not None:  # its topics were deleted since
            session.batches.remove(earlier)
            self._messages -= earlier.stored.columns.message_count
        session.batches.append(batch)
        self._messages += batch.stored.columns.message_count
        if len(session.batches) > self._remembered_batches:
            self._messages -= session.batches.popleft().stored.columns.message_count
        self._with_batches[name] = session
        self._with_batches.move_to_end(name)
        if len(self._sessions) > self._producer_limit:
            self._forget_batches(self._sessions.popitem(last=False)[0])
        # The numbers stay known, so that the next batch of an active producer needs no look-up.
        while self._messages > self._remembered_messages and len(self._with_batches) > 1:
            self._forget_batches(next(iter(self._with_batches)))
        session.next_sequence = max(session.next_sequence or 0, next_sequence)

    def _forget_batches(self, name: str) -> None:
        session = self._with_batches.pop(name, None)
        if session is not None:
            self._messages -= sum(one.stored.columns.message_count for one in session.batches)
            session.batches.clear()

    @property
    def producer_count(self) -> int:
        """Number of remembered producers."""
        return len(self._sessions)


def name_of(producer_id: str) -> str:
    """The name in the log for a producer of this task's caller."""
    user = current_caller().name
    return f"{user}/{producer_id}" if user else producer_id


def check_number(producer_id: str, sequence: int) -> None:
    """Raises InvalidArgumentError if no batch with that number could ever be stored."""
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise InvalidArgumentError(
            "producer.producer_id", "is not 1 to 64 letters, digits, '.', '_' or '-'"
        )
    if not 0 <= sequence <= _LAST_SEQUENCE:
        raise InvalidArgumentError("producer.sequence", f"{sequence} is not from 0 to 2**62")


def _columns_of(found: FoundBatch, messages: Sequence[Message]) -> Columns:
    """The places of the messages; each light queue once, in the given order."""
    columns = Columns([], [], [], [])
    for request, message in zip(found.messages, messages, strict=True):
        if request is None:
            columns.queue_ids.append(_EXPIRED)
            columns.queue_offsets.append(_EXPIRED)
            columns.physical_offsets.append(_EXPIRED)
            columns.light_queue_offsets.extend([_EXPIRED] * len(set(message.light_queues)))
        else:
            columns.queue_ids.append(request.queue_id)
            columns.queue_offsets.append(request.queue_offset)
            columns.physical_offsets.append(request.physical_offset)
            columns.light_queue_offsets.extend(offset for _, offset in request.light_queues)
    return columns
