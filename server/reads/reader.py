"""Reading a queue for pulls and subscriptions: in the loop when hot and short, else in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.convert import pulled_out
from store.errors import InvalidArgumentError
from store.format import check_light_queue, properties_size
from store.light_queue import is_light

if TYPE_CHECKING:
    from server.stage import Parts
    from store.message import Pulled
    from store.reader import TagFilter

#: More than this is read and encoded in a worker: the loop must not stand still for so long.
#: A decoded message takes about 15 microseconds, a whole record a tenth of one.
INLINE_BYTES = 4 << 20
INLINE_WHOLE_MESSAGES = 2048
INLINE_DECODED_MESSAGES = 256
#: Of all their properties, and topics. One property may have 4 bytes; it takes 0.5 us to decode.
INLINE_PROPERTIES_BYTES = 48 << 10


class QueueRead(NamedTuple):
    """One read of a queue, as an answer."""

    status: pb.PullStatus
    message_count: int
    response: pb.PullResponse | bytes  # bytes when a worker encoded it


def is_long(max_messages: int, max_bytes: int, form: pb.RecordForm) -> bool:
    """Whether a read of so much may take so long that a worker must do it."""
    most = INLINE_WHOLE_MESSAGES if form == pb.RECORD_FORM_WHOLE else INLINE_DECODED_MESSAGES
    return max_bytes > INLINE_BYTES or max_messages > most


def is_laborious(pulled: Pulled, form: pb.RecordForm) -> bool:
    """Whether what was read has so many properties that a worker must decode it."""
    if form == pb.RECORD_FORM_WHOLE:
        return False
    if sum(map(len, pulled.records)) <= INLINE_PROPERTIES_BYTES:
        return False
    return sum(map(properties_size, pulled.records)) > INLINE_PROPERTIES_BYTES


def may_begin(topic: str, queue_id: int, offset: int) -> bool:
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


async def read_queue(
    parts: Parts,
    topic: str,
    queue_id: int,
    offset: int,
    max_messages: int,
    max_bytes: int,
    tag_filter: TagFilter | None,
    form: pb.RecordForm,
) -> QueueRead:
    """One pull, encoded when it is long.

    Raises what MessageStore.pull raises, and MemoryFullError.
    """

    def pull() -> Pulled:
        return parts.store.pull(
            topic,
            queue_id,
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_filter=tag_filter,
        )

    def read(pulled: Pulled, *, encode: bool) -> QueueRead:
        response = pb.PullResponse()
        pulled_out(pulled, form, response)
        answer = response.SerializeToString() if encode else response
        return QueueRead(response.status, len(pulled.records), answer)

    if parts.memory.is_crowded:
        await parts.memory.room_to_send()
    if parts.store.is_cold(topic, queue_id, offset):
        return await parts.cold_reads.run(lambda: read(pull(), encode=True))
    if is_long(max_messages, max_bytes, form):
        return await parts.reads.run(lambda: read(pull(), encode=True))
    pulled = pull()
    if is_laborious(pulled, form):
        return await parts.reads.run(lambda: read(pulled, encode=True))
    return read(pulled, encode=False)
