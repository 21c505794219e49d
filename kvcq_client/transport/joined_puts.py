"""Joins queued puts into one batch, and splits the response.

A put of its own costs the server more than twice as much as one in a batch. A batch is stored as a
whole or not at all, which breaks no promise made to the callers. If one message is rejected, each
put is sent again on its own.
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

#: The method that stores a batch.
JOINED = "PutBatch"

#: Reasons caused by a single message, so the other messages of the batch may still be accepted. The
#: server checks them before anything is stored.
_OF_ONE = (
    "INVALID_ARGUMENT",
    "UNKNOWN_TOPIC",
    "UNKNOWN_QUEUE",
    "PERMISSION_DENIED",
    "TOPIC_BUSY",
)


def join(requests: Sequence[bytes]) -> bytes:
    """Concatenate encoded PutRequests to an encoded PutBatchRequest.

    Both have messages in the same field, so the concatenation repeats it.
    """
    return b"".join(requests)


def split(response: bytes, light_queues: Sequence[int]) -> list[Placed]:
    """The place of each put, from an encoded PutBatchResponse.

    `light_queues`: number of light queues of each put. Raises UnavailableError if the response
    cannot be decoded; the puts may be stored then.
    """
    try:
        return placed_all(pb.PutBatchResponse.FromString(response), light_queues)
    except (DecodeError, ValueError) as error:
        raise UnavailableError(f"cannot decode the response to a batch of puts: {error}") from None


def is_of_one(error: KvcqError) -> bool:
    """Whether a batch was rejected because of one message, so that nothing was stored."""
    return error.reason in _OF_ONE
