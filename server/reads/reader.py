"""Reads queues: in the loop if hot and short, otherwise in a worker.

| what is read                                  | where                                       |
|-----------------------------------------------|---------------------------------------------|
| near the end of the log, and little           | in the loop, by turns: `read_here`          |
| near the end, and much, or long to decode     | in a thread                                 |
| far behind the end                            | in a thread, when its turn comes (`cold_reads`) |
| far behind the end, while puts arrive         | the same, in another process (server/readers) |

This is the only place that chooses. A caller with nothing to read parks (`ready_queues`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import asker
from server.readers import LogPlace, Readers
from server.reads.cold_reads import ColdReads
from server.reads.read_turns import ReadTurns
from server.wire import Encoded, encode_pull
from server.workers import Workers
from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import Records, check_light_queue, properties_size
from store.light_queue import is_light
from store.message import PullStatus
from store.reads import Pulled, SqlFilter
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.edge import RequestMemory
    from server.reads.queue_growth import QueueKey
    from store.message_store import MessageStore
    from store.reads import Filter, PullPlan

#: Larger reads are made and encoded in a thread, because they would block the loop for too long. A
#: decoded message takes about 15 microseconds, a whole record a tenth of one.
INLINE_BYTES = 4 << 20
INLINE_WHOLE_MESSAGES = 2048
INLINE_DECODED_MESSAGES = 256
#: Maximum for all properties and topics together. A property may have only 4 bytes, and takes 0.5
#: us to decode.
INLINE_PROPERTIES_BYTES = 48 << 10
#: A visit to a thread reads no further queue once it has this much: an answer is full then.
ENOUGH_BYTES = 1 << 19
#: Reads that may block: two cores are kept busy, and a slow disk has some requests to sort.
READ_THREADS = 4
#: Number of processes that read far behind the end of the log; started on demand.
COLD_PROCESSES = 1
#: Share of one core of the server for reads far behind the end, while more than 1 MiB/s is put.
#: They get at least that; a producer keeps 0.9 of its rate beside them.
COLD_SHARE = 0.04
#: The response for a light queue before its first message.
_NOTHING_YET = Pulled(PullStatus.NO_NEW_MESSAGE, Records(), [], 0, 0, 0)


class Wanted(NamedTuple):
    """What to read from a queue, and in which form."""

    max_messages: int
    matching: Filter | None  # None: all
    form: pb.RecordForm
    in_stream: bool  # as part of a subscription's response, not as a pull's
    may_begin: bool  # a light queue without a message is empty, not unknown


class Place(NamedTuple):
    """One read of one queue."""

    key: QueueKey
    offset: int
    max_bytes: int
    wanted: Wanted
    given_at: int | None = None  # of the response that `offset` is from


class QueueReader:
    """Reads queues of the store. Owned by the event loop's thread."""

    def __init__(self, store: MessageStore, memory: RequestMemory) -> None:
        self._store = store
        self._memory = memory
        #: Reads in the loop wait for a turn here first.
        self.turns = ReadTurns(asyncio.get_running_loop())
        self._threads = Workers(READ_THREADS, "read")
        commitlog = StoreDir(store.config.root).commitlog
        self.processes = Readers(
            COLD_PROCESSES, LogPlace(str(commitlog), store.config.segment_bytes)
        )
        # Their own: they wait for the processes, and for the disk.
        self._cold_threads = Workers(READ_THREADS, "cold")
        self._cold_reads = ColdReads(
            self._cold_threads, COLD_SHARE, lambda: store.log.appended_offset
        )

    @property
    def waiting(self) -> int:
        """Number of reads that wait for a thread."""
        return self._threads.waiting + self._cold_threads.waiting

    def close(self) -> None:
        """Wait for running reads. Blocks."""
        self._threads.close()
        self._cold_threads.close()
        self.processes.close()

    def check_by_offsets(self, group: str) -> None:
        """Raises GroupKindError for a shared group, whose members must receive."""
        self._store.committed_offsets(group, ())

    async def read(self, place: Place) -> Encoded:
        """The response to one read. Raises what MessageStore.pull raises, and MemoryFullError."""
        await self.turns.next()
        await self._memory.room_to_send(asker())
        found = self.read_here(place)
        if found is not None:
            return found
        [outcome] = await self.read_aside([place], place.max_bytes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def read_here(self, place: Place) -> Encoded | None:
        """Like `read`, in the loop; None if that may hold the loop for long, and `read_aside` has
        to do it.

        Raises what MessageStore.pull raises.
        """
        if self.takes_long(place):
            return None
        pulled = self._pull(place)
        return None if _is_laborious(pulled, place.wanted.form) else _encoded(place, pulled)

    def takes_long(self, place: Place) -> bool:
        """Whether the read may hold the loop for long, judging by its arguments and position."""
        wanted = place.wanted
        is_whole = wanted.form == pb.RECORD_FORM_WHOLE
        most = INLINE_WHOLE_MESSAGES if is_whole else INLINE_DECODED_MESSAGES
        return (
            place.max_bytes > INLINE_BYTES
            or wanted.max_messages > most
            or isinstance(wanted.matching, SqlFilter)  # it decodes properties
            or self._is_cold(place)
        )

    async def read_aside(
        self, places: Sequence[Place], most_bytes: int
    ) -> list[Encoded | Exception]:
        """Read these places, one after the other, in a thread; if the first is far behind the end
        of the log, when its turn comes.

        At most `most_bytes` of cost are read; places after that, after ENOUGH_BYTES, or after one
        that another process encoded, have no result.
        """

        def read(puts_come: bool) -> list[Encoded | Exception]:  # noqa: FBT001 - of a callback
            found: list[Encoded | Exception] = []
            taken = 0
            for place in places:
                one = place._replace(max_bytes=min(place.max_bytes, most_bytes - taken))
                try:
                    by_process = self._read_by_process(one) if puts_come and not found else None
                    outcome = by_process or _encoded(one, self._pull(one))
                except Exception as error:  # noqa: BLE001 - the other queues go on
                    found.append(error)
                    continue
                found.append(outcome)
                taken += outcome.cost_bytes
                if by_process is not None or taken >= min(most_bytes, ENOUGH_BYTES):
                    break
            return found

        # Other readers see it from now on, and not when a thread has read it.
        expected_bytes = min(most_bytes, places[0].max_bytes + ENOUGH_BYTES)
        who = asker()
        self._memory.sends(expected_bytes, who)
        try:
            if self._is_cold(places[0]):
                return await self._cold_reads.run(read, _bytes_of)
            return await self._threads.run(read, False)  # noqa: FBT003 - as `ColdReads` calls it
        finally:
            self._memory.sent(expected_bytes, who)

    def _is_cold(self, place: Place) -> bool:
        """Whether the place is far behind the end of the log."""
        try:
            return self._store.is_cold(*place.key, place.offset)
        except Exception:  # noqa: BLE001 - the read meets it too, and says so
            return False

    def _read_by_process(self, place: Place) -> Encoded | None:
        """None if there is no reader process, or it could not verify the records."""
        wanted = place.wanted
        if isinstance(wanted.matching, SqlFilter):
            return None  # cases that it cannot decide are counted here
        plan = self._plan(place)
        if plan is None:
            return None
        return self.processes.read(plan, wanted.form, in_stream=wanted.in_stream)

    def _pull(self, place: Place) -> Pulled:
        plan = self._plan(place)
        return _NOTHING_YET if plan is None else self._store.reads.read_planned(plan)

    def _plan(self, place: Place) -> PullPlan | None:
        """None for a light queue without messages, if the reader allows that."""
        (topic, queue_id), offset, max_bytes, wanted, given_at = place
        try:
            return self._store.reads.plan_pull(
                topic,
                queue_id,
                offset,
                max_messages=wanted.max_messages,
                max_bytes=max_bytes,
                tag_filter=wanted.matching,
                given_at=given_at,
            )
        except UnknownTopicError:
            if wanted.may_begin and _may_begin(topic, queue_id, offset):
                return None
            raise


def _encoded(place: Place, pulled: Pulled) -> Encoded:
    wanted = place.wanted
    return encode_pull(pulled, wanted.form, place.key if wanted.in_stream else None)


def _bytes_of(found: Sequence[Encoded | Exception]) -> int:
    return sum(one.cost_bytes for one in found if isinstance(one, Encoded))


def _is_laborious(pulled: Pulled, form: pb.RecordForm) -> bool:
    """Whether the messages have so many properties that a thread should decode them."""
    if form == pb.RECORD_FORM_WHOLE or pulled.records.size_bytes <= INLINE_PROPERTIES_BYTES:
        return False
    return sum(map(properties_size, pulled.records)) > INLINE_PROPERTIES_BYTES


def _may_begin(topic: str, queue_id: int, offset: int) -> bool:
    """Whether this is the start of a light queue that does not exist yet.

    Not for a name that no light queue can have.
    """
    if queue_id or offset or not is_light(topic):
        return False
    try:
        check_light_queue(topic, "topic")
    except InvalidArgumentError:
        return False
    return True
