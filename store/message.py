"""Messages as a producer sends them, and messages as a reader gets them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, overload

from zlib_ng.zlib_ng import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.consume_queue import DispatchRequest

#: Host and port, the host as text: IPv4 or IPv6.
Host = tuple[str, int]


class Message(NamedTuple):
    """A message from a producer. The store checks its limits before anything is written.

    A named tuple, because millions are created; a frozen dataclass takes three times as long.

    `keys` are single words: a key with a space in it would be read back as two. `light_queues` are
    full names, with `%LMQ%`; the message is then in each of them as well.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    tag: str = ""
    keys: tuple[str, ...] = ()
    light_queues: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 0  # 0: the store fills in its own time
    born_host: Host = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


#: Fewer messages are passed on one by one, because columns cost 50 us in a server that does other
#: things in between.
FEW = 48


class PlainMessages(Sequence[Message]):
    """Messages in columns, all of one producer, without optional fields other than light queues.

    Most batches are of this kind, and cost half as much in columns. Nothing is validated here; as
    for Message, the store does that.
    """

    __slots__ = (
        "_body_checksums",
        "bodies",
        "born_host",
        "born_times_ms",
        "light_queues",
        "queue_ids",
        "topics",
    )

    def __init__(
        self,
        topics: Sequence[str],
        bodies: Sequence[bytes],
        queue_ids: Sequence[int],
        born_times_ms: Sequence[int],
        born_host: Host,
        light_queues: Sequence[str] = (),
    ) -> None:
        """All columns have the same length. Names of light queues are one comma-separated text for
        each message, "" if it has none; empty if no message has any."""
        self.topics = topics
        self.bodies = bodies
        self.queue_ids = queue_ids
        self.born_times_ms = born_times_ms
        self.born_host = born_host
        self.light_queues = light_queues
        self._body_checksums: list[int] = []

    @property
    def body_checksums(self) -> list[int]:
        """CRC-32 of each body. The bodies may not have been validated yet."""
        if not self._body_checksums:
            self._body_checksums = list(map(crc32, self.bodies))
        return self._body_checksums

    def names(self, at: int) -> tuple[str, ...]:
        """The light queues that a message names."""
        text = self.light_queues[at] if self.light_queues else ""
        return tuple(text.split(",")) if text else ()

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> PlainMessages: ...
    def __getitem__(self, at: int | slice) -> Message | PlainMessages:
        if isinstance(at, slice):
            return PlainMessages(
                self.topics[at],
                self.bodies[at],
                self.queue_ids[at],
                self.born_times_ms[at],
                self.born_host,
                self.light_queues[at],
            )
        return Message(
            self.topics[at],
            self.bodies[at],
            self.queue_ids[at],
            light_queues=self.names(at),
            born_time_ms=self.born_times_ms[at],
            born_host=self.born_host,
        )


class Placed(NamedTuple):
    """The place assigned to one message."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    record_size: int  # bytes
    light_queue_offsets: tuple[int, ...]  # in the order of Message.light_queues, each name once


class Appended(NamedTuple):
    """The result of an append. In SYNC mode it is only acknowledged once `end_offset` is
    durable."""

    requests: Sequence[DispatchRequest]  # one for each message, in order
    end_offset: int  # exclusive physical end of the last record
    store_time_ms: int

    @property
    def placed(self) -> tuple[Placed, ...]:
        """The place of each message, in order."""
        return tuple(
            Placed(
                request.queue_id,
                request.queue_offset,
                request.physical_offset,
                request.record_size,
                tuple(offset for _, offset in request.light_queues),
            )
            for request in self.requests
        )


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One decoded record, with every field; hosts as text."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    record_size: int
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: Host
    store_time_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)  # without the store's own

    @property
    def tag(self) -> str:
        return self.properties.get("TAGS", "")

    @property
    def keys(self) -> tuple[str, ...]:
        words = self.properties.get("KEYS")
        return tuple(key for key in words.split(" ") if key) if words else ()


class PullStatus(enum.Enum):
    """Why a pull returned its result. Errors are exceptions, never a status."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no new message"  # the offset is the queue's end
    NO_MATCH = "no match"  # units were examined, none had a wanted tag


@dataclass(frozen=True, slots=True)
class KeyQueryPage:
    """Messages with one key, oldest first. `complete` is false when `cursor` has more."""

    records: list[bytes]
    cursor: bytes | None
    complete: bool
