"""Stores a task's rows once, independent of the number and order of its attempts.

A repeated task gets the same rows, but after a shuffle in another order. Then its batches differ
from those that an earlier attempt stored under the same numbers, and the service rejects them. The
attempt reads the batch stored under that number, crosses its rows off its own, and continues with
the next number. Concurrent attempts do the same: each number has one batch, and each row is in one
of them.

Memory: 16 bytes and a counter for each row of another attempt that this one has not seen yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client import NumberPassedError, NumberReusedError
from migration.spark.errors import PipelineError
from store.format import OWN_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client import Client, Message, StoredMessage


class Chosen(NamedTuple):
    """Values that the service chose if the row has none. None in a row matches any choice."""

    queue_id: int | None
    born_time_ms: int | None


class Attempt:
    """Sends batches with the numbers of `producer_id`, from 0 on. One task, one thread.

    `has_queues` and `has_born_times`: whether rows may set these themselves.
    """

    def __init__(
        self, client: Client, producer_id: str, *, has_queues: bool, has_born_times: bool
    ) -> None:
        self._client = client
        self._producer_id = producer_id
        self._has_queues = has_queues
        self._has_born_times = has_born_times
        self._sequence = 0
        #: Rows that another attempt stored and this one has not seen yet.
        self._theirs: defaultdict[bytes, Counter[Chosen]] = defaultdict(Counter)
        #: Number of messages that another attempt had stored.
        self.repeated = 0

    def put(self, messages: Sequence[Message]) -> None:
        """Store these rows. Raises KvcqError, PipelineError."""
        left = self._without_theirs(messages)
        while left:
            try:
                if self._client.put_numbered(
                    left, producer_id=self._producer_id, sequence=self._sequence
                ):
                    self.repeated += len(left)
            except NumberReusedError:
                self._learn()
                left = self._without_theirs(left)
            except NumberPassedError as error:
                raise PipelineError(
                    f"{error}; an earlier attempt of the task stored it, and it has expired "
                    "since: whether this row is among it is no longer known"
                ) from error
            else:
                self._sequence += len(left)
                return

    def finish(self, *, may_have_run_before: bool) -> int:
        """Call after all rows. Returns the number of messages stored for the task. Raises
        PipelineError if another attempt stored rows that this one did not get."""
        strange = sum(counts.total() for counts in self._theirs.values())
        if not strange and (self.repeated or may_have_run_before):
            more = self._client.stored_batch(self._producer_id, self._sequence)
            strange = more.message_count if more is not None else 0
        if strange:
            raise PipelineError(
                f"an earlier attempt of the task stored at least {strange} rows that this one does "
                "not have: the query gives other rows each time it is run, so they cannot be "
                "stored once. Write its result to a table first, and that to the topic"
            )
        return self._sequence

    def _learn(self) -> None:
        """Read what another attempt stored under the next number, and skip that number."""
        stored = self._client.stored_batch(self._producer_id, self._sequence)
        if stored is None or stored.is_partial:
            raise PipelineError(
                f"the batch {self._sequence} of {self._producer_id!r} was stored by an earlier "
                "attempt of the task, and its messages have expired or were deleted since: "
                "whether these rows are among it is no longer known"
            )
        for message in stored.messages:
            chosen = Chosen(
                message.queue_id if self._has_queues else None,
                message.born_time_ms if self._has_born_times else None,
            )
            self._theirs[_stored_identity(message)][chosen] += 1
        self._sequence += len(stored.messages)
        self.repeated += len(stored.messages)

    def _without_theirs(self, messages: Sequence[Message]) -> list[Message]:
        if not self._theirs:
            return list(messages)
        return [message for message in messages if not self._cross_off(message)]

    def _cross_off(self, message: Message) -> bool:
        """Cross the row off if another attempt stored it. Returns whether it did."""
        identity = _identity(message)
        counts = self._theirs.get(identity)
        if counts is None:
            return False
        wanted = Chosen(
            message.queue_id if self._has_queues else None,
            (message.born_time_ms or None) if self._has_born_times else None,
        )
        found = wanted if wanted in counts else _fitting(wanted, counts)
        if found is None:
            return False
        counts[found] -= 1
        if not counts[found]:
            del counts[found]
        if not counts:
            del self._theirs[identity]
        return True


def _fitting(wanted: Chosen, counts: Counter[Chosen]) -> Chosen | None:
    """One of the choices that fit the row; None if none does."""
    for found in counts:
        if all(one in (None, other) for one, other in zip(wanted, found, strict=True)):
            return found
    return None


def _identity(message: Message) -> bytes:
    """16 bytes that identify a row, without queue and born time. Equal to `_stored_identity` of the
    stored row."""
    properties = {name: value for name, value in (message.properties or {}).items() if value}
    return _digest(
        message.topic,
        message.tag,
        " ".join(message.keys),
        tuple(dict.fromkeys(message.light_queues)),
        sorted(properties.items()),
        message.flag,
        bytes(message.body),
    )


def _stored_identity(message: StoredMessage) -> bytes:
    properties = {
        name: value for name, value in message.properties.items() if name not in OWN_PROPERTIES
    }
    return _digest(
        message.topic,
        message.tag,
        " ".join(message.keys),
        message.light_queues,
        sorted(properties.items()),
        message.flag,
        message.raw_body,
    )


def _digest(*fields: object) -> bytes:
    *others, body = fields
    assert isinstance(body, bytes)
    digest = hashlib.blake2b(repr(others).encode(errors="surrogatepass"), digest_size=16)
    digest.update(body)
    return digest.digest()
