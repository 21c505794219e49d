"""Messages as bytes: how they leave in a request, and the records of the log that come back.

Uses `arguments`, `errors` and `values` alone; knows nothing of connections.
"""

from kvcq_client.format.compression import COMPRESSED, BodyError, decompress
from kvcq_client.format.fan_out import divided
from kvcq_client.format.fields import length_delimited, varint
from kvcq_client.format.outgoing import (
    FRAME_BYTES,
    SHARDING_KEY,
    Checker,
    Outgoing,
    as_bytes,
    given_as,
    outgoing_of,
    put_stream_request,
    write_to,
)
from kvcq_client.format.places import placed, placed_all
from kvcq_client.format.records import StoredMessage, split_records

__all__ = [
    "COMPRESSED",
    "FRAME_BYTES",
    "SHARDING_KEY",
    "BodyError",
    "Checker",
    "Outgoing",
    "StoredMessage",
    "as_bytes",
    "decompress",
    "divided",
    "given_as",
    "length_delimited",
    "outgoing_of",
    "placed",
    "placed_all",
    "put_stream_request",
    "split_records",
    "varint",
    "write_to",
]
