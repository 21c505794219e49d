"""Reading a queue for pulls and subscriptions: in the loop when hot and short, else in a worker.

Where the call came by a front, and records lie near the end of the log and are many, the front
reads them, from the plan: what goes to it is where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.readers import (
    INLINE_BYTES,
    INLINE_DECODED_MESSAGES,
    INLINE_PROPERTIES_BYTES,
    INLINE_WHOLE_MESSAGES,
    LogPlace,
    Order,
    Readers,
)
from server.reads.cold_reads import ColdReads
from server.workers import Workers
from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import Records, check_light_queue, properties_size
from store.light_queue import is_light
from store.message import PullStatus
from store.reads import Pulled
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.config import ServerConfig
    from server.edge import RequestMemory
    from server.encoded import Encoded
    from server.readers import FrontReads
    from server.reads.queue_growth import QueueKey
    from store.message_store import MessageStore
    from store.reads import PullPlan, TagFilter

T = TypeVar("T")

#: Less than this is read here: to tell the front where it is takes as long. Bytes of records, and
#: for each message what it takes by itself, whole or decoded, in bytes that take as long. So it is
#: 110 messages of 100 bytes, 60 of 1 KiB, or 8 to be decoded: server/docs/cold-reads.md.
LEAST_FRONT_BYTES = 128 << 10
_WHOLE_BYTES = 1 << 10
_DECODED_BYTES = 16 << 10
#: What a light queue has before its first message.
_NOTHING_YET = Pulled(PullStatus.NO_NEW_MESSAGE, Records(), [], 0, 0, 0)


class Wanted(NamedTuple):
    """What is wanted of a queue, and in which form."""

    max_messages: int
    tag_filter: TagFilter | None
    form: pb.RecordForm


#: Queue, offset, bytes at most, and what is wanted: of the methods below.
Place = tuple["QueueKey", int, int, Wanted]


class Aside(NamedTuple):
    """A pull that another process read, whole: its plan says where the queue goes on."""

    plan: PullPlan
    encoded: Encoded

    @property
    def status(self) -> pb.PullStatus:
        """Of what was planned something was read, so it went on."""
        return pb.PULL_STATUS_FOUND if self.encoded.message_count else pb.PULL_STATUS_NO_MATCH


class QueueReader:
    """Reads queues of the store. Owned by the event loop's thread; `pull`s on any."""

    def __init__(self, store: MessageStore, config: ServerConfig, memory: RequestMemory) -> None:
        self._store = store
        self._memory = memory
        threads = max(1, config.worker_threads // 2)
        self.threads = Workers(threads, "read")
        commitlog = StoreDir(store.config.root).commitlog
        self.processes = Readers(
            config.cold_readers, LogPlace(str(commitlog), store.config.segment_bytes)
        )
        # Their own: they wait for the processes, and for the disk.
        self._cold_threads = Workers(max(threads, config.cold_readers), "cold")
        self._cold_reads = ColdReads(
            self._cold_threads, config.cold_read_share, lambda: store.log.appended_offset
        )

    @property
    def waiting(self) -> int:
        """Reads that have no thread yet."""
        return self.threads.waiting + self._cold_threads.waiting

    def set_cold_read_share(self, share: float) -> None:
        """Of one core, above 0 to 1."""
        self._cold_reads.share = share

    def close(self) -> None:
        """Wait for the reads under way. Blocks."""
        self.threads.close()
        self._cold_threads.close()
        self.processes.close()

    def pull(
        self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted, *, may_wait: bool
    ) -> Pulled:
        """As MessageStore.pull. With `may_wait` a light queue is empty before its first message."""
        plan = self._plan(key, offset, max_bytes, wanted, may_wait=may_wait)
        return _NOTHING_YET if plan is None else self._store.read_planned(plan)

    def pull_aside(
        self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted, *, in_stream: bool
    ) -> Pulled | Aside:
        """The same of messages far behind, by another process if there is one: it encodes them as
        a response of a stream, or of a call."""
        plan = self._plan(key, offset, max_bytes, wanted, may_wait=False)
        assert plan is not None
        encoded = self.processes.read(plan, wanted.form, in_stream=in_stream)
        return self._store.read_planned(plan) if encoded is None else Aside(plan, encoded)

    async def pull_in_front(
        self,
        front: FrontReads | None,
        key: QueueKey,
        offset: int,
        max_bytes: int,
        wanted: Wanted,
        *,
        may_wait: bool,
        in_stream: bool,
    ) -> Pulled | Aside | None:
        """As `pull`; where there is much to read, by the front, which holds the answer.

        For messages near the end. What the front cannot read, or prove, is read in a worker.
        Without a front nothing is read where there is much: None.
        """
        place = key, offset, max_bytes, wanted
        if wanted.max_messages > INLINE_WHOLE_MESSAGES:
            plan = await self.threads.run(self._plan, *place, may_wait=may_wait)
        else:
            plan = self._plan(*place, may_wait=may_wait)
        if plan is None:
            return _NOTHING_YET
        size = plan.size_bytes
        if size + _each_bytes(wanted) * len(plan.places) < LEAST_FRONT_BYTES:
            return self._store.read_planned(plan)
        if front is None:
            return None
        self._memory.sends(size)  # others see it from now on, not when it was read
        try:
            order = Order(self.processes.log, plan, wanted.form, in_stream)
            encoded = await front.carry_out(order)
        finally:
            self._memory.sent(size)
        if encoded is not None:
            return Aside(plan, encoded)
        return await self.threads.run(self._store.read_planned, plan)

    def may_be_much(self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted) -> bool:
        """Whether there may be so many messages that a front should read them."""
        most = LEAST_FRONT_BYTES // _each_bytes(wanted)
        if wanted.max_messages <= most or max_bytes < LEAST_FRONT_BYTES:
            return False
        try:
            [(_, end)] = self._store.bounds([key])
        except Exception:  # noqa: BLE001 - the read meets it too, and says so
            return False
        return end - offset > most

    def _plan(
        self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted, *, may_wait: bool
    ) -> PullPlan | None:
        """None: a light queue that has no message yet, which `may_wait` allows."""
        topic, queue_id = key
        try:
            return self._store.plan_pull(
                topic,
                queue_id,
                offset,
                max_messages=wanted.max_messages,
                max_bytes=max_bytes,
                tag_filter=wanted.tag_filter,
            )
        except UnknownTopicError:
            if may_wait and _may_begin(topic, queue_id, offset):
                return None
            raise

    def needs_worker(self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted) -> bool:
        """Whether a read from there may keep the loop for long."""
        is_whole = wanted.form == pb.RECORD_FORM_WHOLE
        most = INLINE_WHOLE_MESSAGES if is_whole else INLINE_DECODED_MESSAGES
        return max_bytes > INLINE_BYTES or wanted.max_messages > most or self.is_cold(key, offset)

    async def in_worker(
        self, key: QueueKey, offset: int, read: Callable[[bool], T], bytes_of: Callable[[T], int]
    ) -> T:
        """What `read` gives, in a worker; where the queue is read far behind, when it is time.

        It is told whether another process should do it: far behind, while puts come. `bytes_of`: of
        what it gave, those that will be sent.
        """
        if self.is_cold(key, offset):
            return await self._cold_reads.run(read, bytes_of)
        return await self.threads.run(read, False)  # noqa: FBT003 - as `ColdReads` calls it

    def is_cold(self, key: QueueKey, offset: int) -> bool:
        """Whether a read from there is one far behind the end."""
        try:
            return self._store.is_cold(*key, offset)
        except Exception:  # noqa: BLE001 - the read meets it too, and says so
            return False


def _each_bytes(wanted: Wanted) -> int:
    return _WHOLE_BYTES if wanted.form == pb.RECORD_FORM_WHOLE else _DECODED_BYTES


def is_laborious(pulled: Pulled, form: pb.RecordForm) -> bool:
    """Whether what was read are so many messages, or properties, that a worker must decode it."""
    if form == pb.RECORD_FORM_WHOLE:
        return False
    if len(pulled.records) > INLINE_DECODED_MESSAGES:
        return True
    if pulled.records.size_bytes <= INLINE_PROPERTIES_BYTES:
        return False
    return sum(map(properties_size, pulled.records)) > INLINE_PROPERTIES_BYTES


def _may_begin(topic: str, queue_id: int, offset: int) -> bool:
    """Whether that is the beginning of a light queue, which its first message brings into being.

    Not for a name that no light queue can have.
    """
    if queue_id or offset or not is_light(topic):
        return False
    try:
        check_light_queue(topic, "topic")
    except InvalidArgumentError:
        return False
    return True
