"""A batch that is sent again is answered again, and not stored again.

A producer numbers its messages; a batch carries the number of its first one. Here the next
number of each producer is remembered, with the answers to its latest batches.

That memory is bounded and dies with the process; the log is the truth. The first message of
every batch carries the mark `<producer id>:<sequence>` as its UNIQ_KEY (among its KEYS, when the
producer gave a UNIQ_KEY of its own), so the key index finds the batch. The messages behind it
are found by walking the log: records of one append lie one after another. A crash may have kept
the first part of a batch; then only the rest is stored, under a mark of its own.

What is looked up in the log: batches of a producer that is not remembered, until one is new; and
a batch with an older sequence whose answer is not remembered. Neither happens in steady running.
docs/producers.md argues it, case by case.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from server.columns import Columns, Stored
from server.durability import wait_visible
from server.errors import OutOfSequenceError
from store.errors import InvalidArgumentError, MessageNotFoundError, UnknownTopicError
from store.properties import LMQ_OFFSETS, UNIQ_KEY
from store.record import unpack_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.appender import Append, Appender
    from server.workers import Workers
    from store.message import Message, StoredMessage
    from store.message_store import MessageStore

# The id stands in an index key, and ":" ends it.
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LAST_SEQUENCE = 1 << 62


class _Batch(NamedTuple):
    sequence: int
    stored: Stored


@dataclass(slots=True)
class _Session:
    """One producer, as far as it is remembered."""

    batches: deque[_Batch]
    next_sequence: int = 0
    # False while the log may hold more of the producer: after a restart, all it sends is looked
    # up, until a batch is new. What comes behind that is new as well.
    is_caught_up: bool = False

    def answer(self, sequence: int, message_count: int) -> Stored | None:
        for batch in self.batches:
            if (batch.sequence, batch.stored.columns.message_count) == (sequence, message_count):
                return batch.stored
        return None


@dataclass(slots=True)
class _Turn:
    """Who stores for one producer just now; kept only while somebody does or waits."""

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
        # Those with batches, in the same order, and how many messages these have in all.
        self._with_batches: OrderedDict[str, _Session] = OrderedDict()
        self._messages = 0
        self._turns: dict[str, _Turn] = {}

    async def append(
        self,
        producer_id: str,
        sequence: int,
        messages: Sequence[Message],
        *,
        large: bool = False,
    ) -> Stored:
        """Store the batch, or find it stored. Not yet durable in SYNC mode.

        A `large` one is appended in a thread.

        Raises OutOfSequenceError when it neither follows the producer's last batch nor is in
        the log; InvalidArgumentError and what the store raises: then nothing was written and
        the same sequence is expected again.
        """
        check_number(producer_id, sequence)
        turn = self._turns.setdefault(producer_id, _Turn())
        turn.users += 1
        try:
            # One batch of a producer at a time: a look into the log must not be overtaken.
            async with turn.lock:
                append = self._appender.large if large else self._appender.small
                return await self._append_in_turn(producer_id, sequence, messages, append)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[producer_id]

    async def _append_in_turn(
        self, producer_id: str, sequence: int, messages: Sequence[Message], append: Append
    ) -> Stored:
        session = self._sessions.get(producer_id)
        found = None
        if session is None or sequence != session.next_sequence or not session.is_caught_up:
            if session is not None:
                remembered = session.answer(sequence, len(messages))
                if remembered is not None:
                    return remembered._replace(repeated=True)
                if sequence > session.next_sequence:
                    raise OutOfSequenceError(producer_id, sequence, session.next_sequence)
            # A batch that is in the log, but not in the index yet, must not be taken for new.
            await wait_visible(self._store)
            found = await self._workers.run(
                find_stored, self._store, producer_id, sequence, messages
            )
            if found is None and session is not None and sequence < session.next_sequence:
                raise OutOfSequenceError(producer_id, sequence, session.next_sequence)
        stored = await self._complete(producer_id, sequence, messages, found, append)
        # No await in between: a batch that is stored is remembered.
        self._remember(producer_id, sequence, stored)
        return stored

    async def _complete(
        self,
        producer_id: str,
        sequence: int,
        messages: Sequence[Message],
        found: Stored | None,
        append: Append,
    ) -> Stored:
        """Append what is not in the log yet: all of the batch, or the rest of it."""
        have = found.columns.message_count if found is not None else 0
        if found is not None and have == len(messages):
            return found
        rest = list(messages[have:])
        rest[0] = _marked(rest[0], mark_of(producer_id, sequence + have))
        stored = await append(rest)
        if found is not None:
            return stored._replace(columns=found.columns.then(stored.columns))
        return stored

    def _remember(self, producer_id: str, sequence: int, stored: Stored) -> None:
        session = self._sessions.get(producer_id)
        if session is None:
            session = self._sessions[producer_id] = _Session(deque())
        else:
            self._sessions.move_to_end(producer_id)
        session.batches.append(_Batch(sequence, stored))
        self._messages += stored.columns.message_count
        if len(session.batches) > self._remembered_batches:
            self._messages -= session.batches.popleft().stored.columns.message_count
        self._with_batches[producer_id] = session
        self._with_batches.move_to_end(producer_id)
        if len(self._sessions) > self._producer_limit:
            self._forget_batches(self._sessions.popitem(last=False)[0])
        # The numbers stay known, so that the next batch of an active producer needs no look-up.
        while self._messages > self._remembered_messages and len(self._with_batches) > 1:
            self._forget_batches(next(iter(self._with_batches)))
        session.next_sequence = max(session.next_sequence, sequence + stored.columns.message_count)
        session.is_caught_up |= not stored.repeated

    def _forget_batches(self, producer_id: str) -> None:
        session = self._with_batches.pop(producer_id, None)
        if session is not None:
            self._messages -= sum(one.stored.columns.message_count for one in session.batches)
            session.batches.clear()

    @property
    def message_count(self) -> int:
        """Messages of the batches remembered: about 90 bytes each."""
        return self._messages

    @property
    def producer_count(self) -> int:
        """Producers remembered."""
        return len(self._sessions)


def mark_of(producer_id: str, sequence: int) -> str:
    """The key under which the index has the message of that sequence, if it began an append."""
    return f"{producer_id}:{sequence}"


def _marked(message: Message, mark: str) -> Message:
    properties = dict(message.properties or {})
    if UNIQ_KEY in properties:
        return message._replace(keys=(*message.keys, mark))
    properties[UNIQ_KEY] = mark
    return message._replace(properties=properties)


def check_number(producer_id: str, sequence: int) -> None:
    """Raises InvalidArgumentError: no batch of that number can ever be stored."""
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise InvalidArgumentError(
            "producer.producer_id", "is not 1 to 64 letters, digits, '.', '_' or '-'"
        )
    if not 0 <= sequence <= _LAST_SEQUENCE:
        raise InvalidArgumentError("producer.sequence", f"{sequence} is not from 0 to 2**62")


# --- finding a batch in the log ------------------------------------------------------------


def find_stored(
    store: MessageStore, producer_id: str, sequence: int, messages: Sequence[Message]
) -> Stored | None:
    """The batch, or the first part of it, as the log has it; None when it has nothing of it.

    Thread: any. Reads the disk; what was appended must be in the index. Raises
    OutOfSequenceError when the log has another message under one of its numbers.
    """
    found: list[StoredMessage] = []
    while len(found) < len(messages):
        wanted = messages[len(found) :]
        run = _run_at(store, mark_of(producer_id, sequence + len(found)), wanted)
        if not run:
            break
        if not _is_message(run[0], wanted[0]):
            # The number was used before: for a batch that its producer was told had failed, and
            # that is in the log all the same, as after a failed flush. This one is another.
            number = sequence + len(found)
            raise OutOfSequenceError(producer_id, number, number + 1)
        found += run
    if not found:
        return None
    return Stored(
        _columns_of(found),
        found[-1].physical_offset + found[-1].record_size,
        found[-1].store_time_ms,
        repeated=len(found) == len(messages),
    )


def _run_at(store: MessageStore, mark: str, messages: Sequence[Message]) -> list[StoredMessage]:
    """Stored messages of one append, from the one that carries the mark on; [] without one."""
    try:
        page = store.query(messages[0].topic, mark, limit=1)
    except UnknownTopicError:  # the batch may well be the one that creates it
        return []
    if not page.records:
        return []
    run = [unpack_record(page.records[0])]
    while len(run) < len(messages):
        following = _record_after(store, run[-1])
        if following is None or not _is_of_run(following, messages[len(run)], run[0]):
            break
        run.append(following)
    return run


def _record_after(store: MessageStore, message: StoredMessage) -> StoredMessage | None:
    """The next record of the log: behind this one, or at the start of the next segment."""
    end = message.physical_offset + message.record_size
    segment_bytes = store.config.segment_bytes
    for offset in (end, (end // segment_bytes + 1) * segment_bytes):
        try:
            return unpack_record(store.get(offset))
        except MessageNotFoundError:
            continue
    return None


def _is_of_run(stored: StoredMessage, message: Message, first: StoredMessage) -> bool:
    """Whether the record is the message, from the same append as `first`.

    Records of one append have one store time, and came over one connection: a like message
    that somebody else sent after a crash is told apart by these.
    """
    return (
        stored.store_time_ms == first.store_time_ms
        and stored.born_host == first.born_host
        and _is_message(stored, message)
    )


def _is_message(stored: StoredMessage, message: Message) -> bool:
    return stored.topic == message.topic and stored.body == message.body


def _columns_of(messages: Sequence[StoredMessage]) -> Columns:
    """Where the messages came to stand; light queues each once, in the order they were given."""
    return Columns(
        [message.queue_id for message in messages],
        [message.queue_offset for message in messages],
        [message.physical_offset for message in messages],
        [
            int(offset)
            for message in messages
            for offset in message.properties.get(LMQ_OFFSETS, "").split(",")
            if offset
        ],
    )
