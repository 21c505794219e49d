"""Reading a queue for pulls and subscriptions: in the loop when hot and short, else in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.v1 import kvcq_pb2 as pb
from server.convert import pulled_out
from store.errors import InvalidArgumentError
from store.units import LMQ_PREFIX
from store.validation import check_light_queue

if TYPE_CHECKING:
    from server.stage import Parts
    from store.message import Pulled

#: More than this is read and encoded in a worker: the loop must not stand still for so long.
#: A decoded message takes about 15 microseconds, a whole record a tenth of one.
INLINE_BYTES = 8 << 20
INLINE_DECODED_MESSAGES = 256


def is_long(max_messages: int, max_bytes: int, form: pb.RecordForm) -> bool:
    """Whether a read of so much takes so long that a worker must do it."""
    return max_bytes > INLINE_BYTES or (
        form != pb.RECORD_FORM_WHOLE and max_messages > INLINE_DECODED_MESSAGES
    )


def may_begin(topic: str, queue_id: int, offset: int) -> bool:
    """Whether that is the beginning of a light queue, which its first message brings into being.

    Not for a name that no light queue can have.
    """
    if queue_id or offset or not topic.startswith(LMQ_PREFIX):
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
    tag_filter: str,
    form: pb.RecordForm,
) -> pb.PullResponse:
    """One pull, encoded. Raises what MessageStore.pull raises, and MemoryFullError."""

    def read() -> pb.PullResponse:
        pulled: Pulled = parts.store.pull(
            topic,
            queue_id,
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_filter=tag_filter,
        )
        response = pb.PullResponse()
        pulled_out(pulled, form, response)
        return response

    if parts.memory.is_crowded:
        await parts.memory.room_to_send()
    if parts.store.is_cold(topic, queue_id, offset):
        return await parts.cold_reads.run(read)
    if is_long(max_messages, max_bytes, form):
        return await parts.reads.run(read)
    return read()
