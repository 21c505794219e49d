"""Messages as bytes: encoded in requests, and decoded from records of the log.

Only uses `arguments`, `errors` and `values`; independent of connections.
"""

from kvcq_client.format.compression import COMPRESSED, BodyError, decompress
from kvcq_client.format.fan_out import divided
from kvcq_client.format.fields import length_delimited, varint
from kvcq_client.format.outgoing import (
    SHARDING_KEY,
    Checker,
    Outgoing,
    Sized,
    outgoing_of,
    outgoing_or_message,
    outgoing_with,
    put_stream_request,
    with_message_fields,
    write_to,
)
from kvcq_client.format.places import placed, placed_all
from kvcq_client.format.records import StoredMessage, split_records

__all__ = [
    "COMPRESSED",
    "SHARDING_KEY",
    "BodyError",
    "Checker",
    "Outgoing",
    "Sized",
    "StoredMessage",
    "decompress",
    "divided",
    "length_delimited",
    "outgoing_of",
    "outgoing_or_message",
    "outgoing_with",
    "placed",
    "placed_all",
    "put_stream_request",
    "split_records",
    "varint",
    "with_message_fields",
    "write_to",
]
