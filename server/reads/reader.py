"""Reading a queue for pulls and subscriptions: in the loop when hot and short, else in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.readers import Encoded, Readers
from server.reads.cold_reads import ColdReads
from server.workers import Workers
from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import check_light_queue, properties_size
from store.light_queue import is_light
from store.message import Pulled, PullStatus
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.config import ServerConfig
    from server.reads.queue_growth import QueueKey
    from store.message_store import MessageStore
    from store.pull_plan import PullPlan
    from store.tag_filter import TagFilter

T = TypeVar("T")

#: More than this is read and encoded in a worker: the loop must not stand still for so long.
#: A decoded message takes about 15 microseconds, a whole record a tenth of one.
INLINE_BYTES = 4 << 20
INLINE_WHOLE_MESSAGES = 2048
INLINE_DECODED_MESSAGES = 256
#: Of all their properties, and topics. One property may have 4 bytes; it takes 0.5 us to decode.
INLINE_PROPERTIES_BYTES = 48 << 10
#: What a light queue has before its first message.
_NOTHING_YET = Pulled(PullStatus.NO_NEW_MESSAGE, [], [], 0, 0, 0)


class Wanted(NamedTuple):
    """What is wanted of a queue, and in which form."""

    max_messages: int
    tag_filter: TagFilter | None
    form: pb.RecordForm


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

    def __init__(self, store: MessageStore, config: ServerConfig) -> None:
        self._store = store
        threads = max(1, config.worker_threads // 2)
        self.threads = Workers(threads, "read")
        self.processes = Readers(
            config.cold_readers, StoreDir(store.config.root).commitlog, store.config.segment_bytes
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
        topic, queue_id = key
        try:
            return self._store.pull(
                topic,
                queue_id,
                offset,
                max_messages=wanted.max_messages,
                max_bytes=max_bytes,
                tag_filter=wanted.tag_filter,
            )
        except UnknownTopicError:
            if may_wait and _may_begin(topic, queue_id, offset):
                return _NOTHING_YET
            raise

    def pull_aside(
        self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted, *, in_stream: bool
    ) -> Pulled | Aside:
        """The same of messages far behind, by another process if there is one: it encodes them as
        a response of a stream, or of a call."""
        plan = self._store.plan_pull(
            *key,
            offset,
            max_messages=wanted.max_messages,
            max_bytes=max_bytes,
            tag_filter=wanted.tag_filter,
        )
        encoded = self.processes.read(plan, wanted.form, in_stream=in_stream)
        return self._store.read_planned(plan) if encoded is None else Aside(plan, encoded)

    def needs_worker(self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted) -> bool:
        """Whether a read from there may keep the loop for long."""
        is_whole = wanted.form == pb.RECORD_FORM_WHOLE
        most = INLINE_WHOLE_MESSAGES if is_whole else INLINE_DECODED_MESSAGES
        return max_bytes > INLINE_BYTES or wanted.max_messages > most or self._is_cold(key, offset)

    async def in_worker(
        self, key: QueueKey, offset: int, read: Callable[[bool], T], bytes_of: Callable[[T], int]
    ) -> T:
        """What `read` gives, in a worker; where the queue is read far behind, when it is time.

        It is told whether another process should do it: far behind, while puts come. `bytes_of`: of
        what it gave, those that will be sent.
        """
        if self._is_cold(key, offset):
            return await self._cold_reads.run(read, bytes_of)
        return await self.threads.run(read, False)  # noqa: FBT003 - as `ColdReads` calls it

    def _is_cold(self, key: QueueKey, offset: int) -> bool:
        try:
            return self._store.is_cold(*key, offset)
        except Exception:  # noqa: BLE001 - the read meets it too, and says so
            return False


def is_laborious(pulled: Pulled, form: pb.RecordForm) -> bool:
    """Whether what was read has so many properties that a worker must decode it."""
    if form == pb.RECORD_FORM_WHOLE:
        return False
    if sum(map(len, pulled.records)) <= INLINE_PROPERTIES_BYTES:
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
