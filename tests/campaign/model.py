"""What was sent, what was acknowledged, and what must therefore be found.

One worker owns a model, its topics, its light queues, its producer and its group, and makes one
call at a time; so the model is exact. A call that got no answer is the only doubt: it is kept as
`pending`, and settled by the next look at the store, or by the same call made again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tests.campaign.limits import Kept, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Place(NamedTuple):
    """Where the server says that a message stands."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    light_offsets: dict[str, int]
    store_time_ms: int


@dataclass(eq=False)
class Sent:
    """One message, known by its body, which no other message has."""

    number: int
    topic: str
    queue_id: int
    body: bytes = field(repr=False)
    tag: str
    light_queues: list[str]
    #: Light queues that were deleted since: it stands there no more.
    left: set[str] = field(default_factory=set)
    place: Place | None = None  # once it is known
    topic_deleted: bool = False
    #: When it was made; it was not stored before.
    sent_s: float = field(default_factory=monotonic)

    @property
    def key(self) -> str:
        return f"k{self.number % 50}"


@dataclass
class Batch:
    """Messages of one PutBatch with a number."""

    producer_id: str
    sequence: int
    messages: list[Sent]
    store_time_ms: int = 0


class Failure(Exception):
    """Something that must hold does not."""


@dataclass
class Model:
    """What one worker knows of the store."""

    name: str
    topics: list[str]
    light_queues: list[str]
    group: str
    #: Acknowledged, or found once: each stands exactly once, where it was said to stand.
    required: dict[int, Sent] = field(default_factory=dict)
    #: Of a topic that was deleted since: it stands in its light queues alone.
    orphaned: dict[int, Sent] = field(default_factory=dict)
    #: Sent without an answer, and without a number: once or not at all.
    doubtful: dict[int, Sent] = field(default_factory=dict)
    #: Of a batch that got no answer, and will be sent again: all of them or none.
    pending: Batch | None = None
    pending_deletion: str = ""
    #: What a topic is to keep, asked for without an answer: that, or what it kept before.
    pending_limits: tuple[str, Limits] | None = None
    #: By topic and light queue: what they keep, those that nobody set among them.
    kept: defaultdict[str, Kept] = field(default_factory=lambda: defaultdict(Kept))
    #: Group offsets by (topic, queue): what may be committed. One value where it is certain.
    committed: dict[tuple[str, int], set[int | None]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    #: Of those that were answered, one that was sent again without an answer: where it has expired,
    #: it may have been stored anew.
    sent_again: Batch | None = None
    #: Those of which something was deleted.
    touched: list[Batch] = field(default_factory=list)
    #: Bodies sent under numbers that were used, and where the batches stood that had these: such a
    #: body may stand only when one of those places has expired.
    altered: dict[bytes, list[Place | None]] = field(default_factory=dict)
    next_number: int = 0
    next_sequence: int = 0
    #: The number of the producer's newest batch that was answered, and where the last of its
    #: messages stood; -1: it had expired by then.
    newest: tuple[int, int] | None = None
    producer_count: int = 0

    @property
    def producer_id(self) -> str:
        return f"{self.name}-{self.producer_count}"

    def new_producer(self) -> None:
        """Begin under another id, as a producer does that lost its place."""
        self.producer_count += 1
        self.next_sequence = 0
        self.newest = None
        self.batches.clear()
        self.touched.clear()
        self.pending = None

    def acknowledge(self, message: Sent, place: Place) -> None:
        """It stands there. Raises Failure when it was said to stand elsewhere."""
        before = message.place
        if before is not None:
            # A light queue that hides it from the judge does not say where it stands there.
            both = before.light_offsets | place.light_offsets
            told = {name: both[name] for name in both if name in self.limited_lights}
            place = place._replace(light_offsets=told | place.light_offsets)
            if before._replace(light_offsets=told | before.light_offsets)[:4] != place[:4]:
                raise Failure(f"{message} was answered with {place}")
        message.place = place
        self.doubtful.pop(message.number, None)
        group = self.orphaned if message.topic_deleted else self.required
        group[message.number] = message

    def topic_deleted(self, topic: str) -> None:
        """Its messages must not be found any more, but in their light queues."""
        for number in [number for number, sent in self.required.items() if sent.topic == topic]:
            self.orphaned[number] = self.required.pop(number)
            self.orphaned[number].topic_deleted = True
        for sent in self.doubtful.values():
            sent.topic_deleted |= sent.topic == topic
        for key in [key for key in self.committed if key[0] == topic]:
            del self.committed[key]
        self.kept[topic] = Kept()
        self._touch(lambda message: message.topic == topic)

    def light_queue_deleted(self, name: str) -> None:
        """Its messages stand in their topics still, and not in it."""
        for group in (self.required, self.orphaned, self.doubtful):
            for sent in group.values():
                if name in sent.light_queues:
                    sent.left.add(name)
        self.kept[name].lows.clear()
        self._touch(lambda message: name in message.light_queues)
        for key in [key for key in self.committed if key[0] == name]:
            del self.committed[key]

    def _touch(self, is_deleted: Callable[[Sent], bool]) -> None:
        """Something of these batches was deleted: they may be answered in two ways."""
        touched = [batch for batch in self.batches if any(map(is_deleted, batch.messages))]
        self.batches = [batch for batch in self.batches if batch not in touched]
        self.touched = [*self.touched, *touched][-20:]

    def may_hide(self, message: Sent) -> bool:
        """Whether its topic may hide it from readers."""
        pending = self.pending_limits is not None and self.pending_limits[0] == message.topic
        return pending or self.kept[message.topic].hides

    @property
    def limited_lights(self) -> set[str]:
        """Light queues that may hide messages."""
        return {name for name in self.light_queues if self.kept[name].hides}

    def stored_anew(self, found: Mapping[int, int], start_offset: int) -> None:
        """Of the batch sent again without an answer, what is found where it did not stand, by
        number to physical offset, and had expired where it did, is as if it had been in doubt."""
        batch, self.sent_again = self.sent_again, None
        for message in () if batch is None else batch.messages:
            place, at = message.place, found.get(message.number)
            if place is None or at in (None, place.physical_offset):
                continue
            if place.physical_offset < start_offset:
                assert batch is not None
                batch.store_time_ms, message.place = 0, None
                self.required.pop(message.number, None)
                self.orphaned.pop(message.number, None)
                self.doubtful[message.number] = message

    def stands(self, message: Sent) -> bool:
        """Whether it is in a queue still."""
        if message.number in self.required:
            return True
        return message.number in self.orphaned and bool(set(message.light_queues) - message.left)

    def lost_behind(self, end_offset: int) -> int:
        """The log was cut there, rightly: what stood behind it is gone. Returns how many."""
        count = 0
        for group in (self.required, self.orphaned):
            lost = [
                number
                for number, sent in group.items()
                if sent.place is not None and sent.place.physical_offset >= end_offset
            ]
            for number in lost:
                del group[number]
            count += len(lost)
        return count

    def expired_below(self, start_offset: int) -> int:
        """The log begins there now: what stood below is gone. Returns how many."""
        count = 0
        for group in (self.required, self.orphaned):
            gone = [
                number
                for number, sent in group.items()
                if sent.place is not None and sent.place.physical_offset < start_offset
            ]
            for number in gone:
                del group[number]
            count += len(gone)
        self.batches = [
            batch
            for batch in self.batches
            if all(message.number in self.required for message in batch.messages)
        ]
        return count
