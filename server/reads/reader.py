"""Reading a queue for pulls and subscriptions: in the loop when hot and short, else in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.reads.cold_reads import ColdReads
from server.workers import Workers
from store.errors import InvalidArgumentError, UnknownTopicError
from store.format import check_light_queue, properties_size
from store.light_queue import is_light
from store.message import Pulled, PullStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.config import ServerConfig
    from server.reads.queue_growth import QueueKey
    from store.message_store import MessageStore
    from store.reader import TagFilter

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


class QueueReader:
    """Reads queues of the store. Owned by the event loop's thread; `pull` on any."""

    def __init__(self, store: MessageStore, config: ServerConfig) -> None:
        self._store = store
        self.threads = Workers(max(1, config.worker_threads // 2), "read")
        self._cold_reads = ColdReads(
            self.threads, config.cold_read_share, lambda: store.log.appended_offset
        )

    def set_cold_read_share(self, share: float) -> None:
        """Of one core, above 0 to 1."""
        self._cold_reads.share = share

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

    def needs_worker(self, key: QueueKey, offset: int, max_bytes: int, wanted: Wanted) -> bool:
        """Whether a read from there may keep the loop for long."""
        is_whole = wanted.form == pb.RECORD_FORM_WHOLE
        most = INLINE_WHOLE_MESSAGES if is_whole else INLINE_DECODED_MESSAGES
        return max_bytes > INLINE_BYTES or wanted.max_messages > most or self._is_cold(key, offset)

    async def in_worker(self, key: QueueKey, offset: int, read: Callable[[], T]) -> T:
        """What `read` gives, in a worker; where the queue is read far behind, when it is time."""
        run = self._cold_reads.run if self._is_cold(key, offset) else self.threads.run
        return await run(read)

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
