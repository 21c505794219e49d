"""Puts that leave together as one batch, and the answer to each.

A put that comes by itself costs the server two and a half times what one of a batch does: it is
entered, limited, timed and answered for itself. All of a batch are stored, or none. That is no
less than what their callers were promised, and where one of them is refused each goes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from kvcq_client.errors import UnavailableError
from kvcq_client.format import placed_all
from kvcq_client.pb.v1 import kvcq_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.errors import KvcqError
    from kvcq_client.values import Placed

#: The method of the batch.
JOINED = "PutBatch"

#: Reasons that lie in a message: what the others of its batch are told alone may be otherwise. The
#: server finds them before anything is stored.
_OF_ONE = (
    "INVALID_ARGUMENT",
    "UNKNOWN_TOPIC",
    "UNKNOWN_QUEUE",
    "PERMISSION_DENIED",
    "TOPIC_BUSY",
)


def join(requests: Sequence[bytes]) -> bytes:
    """The encoded PutBatchRequest with the messages of these encoded PutRequests.

    Both have messages in the same field, so that one behind the other they are its repetitions.
    """
    return b"".join(requests)


def split(response: bytes, light_queues: Sequence[int]) -> list[Placed]:
    """The place of each of the puts, of an encoded PutBatchResponse.

    `light_queues`: how many each of them goes to. Raises UnavailableError when it is no such
    response: the puts may be stored.
    """
    try:
        return placed_all(pb.PutBatchResponse.FromString(response), light_queues)
    except (DecodeError, ValueError) as error:
        raise UnavailableError(f"the answer to a batch of puts cannot be read: {error}") from None


def is_of_one(error: KvcqError) -> bool:
    """Whether a batch was refused for one of its messages: nothing of it was stored."""
    return error.reason in _OF_ONE
