"""Columns of the commit log as Arrow types. A reader builds only the requested ones.

| column                      | type         | meaning                                            |
|-----------------------------|--------------|----------------------------------------------------|
| topic                       | string       |                                                    |
| queue_id                    | int          |                                                    |
| queue_offset                | bigint       | index in the queue                                 |
| physical_offset             | bigint       | start of the record in the log, bytes              |
| record_size                 | int          | bytes                                              |
| tag_code                    | bigint       | as in the unit: hash of the tag, or the due time   |
| timestamp                   | timestamp    | when it was stored, to the millisecond             |
| store_time_ms               | bigint       | the same, ms since 1970, like born_time_ms         |
| born_time_ms                | bigint       |                                                    |
| flag, sys_flag              | int          |                                                    |
| reconsume_times             | int          |                                                    |
| prepared_transaction_offset | bigint       |                                                    |
| born_host, store_host       | string       | `address:port`, IPv6 in brackets                   |
| in_queue                    | boolean      | false for PREPARED and ROLLBACK                    |
| tag                         | string       | null without one                                   |
| keys                        | array        | what the key index holds: UNIQ_KEY, then KEYS      |
| light_queues, light_offsets | array        | one element for each light queue                   |
| body_crc                    | int          | of stored_body                                     |
| body                        | binary       | as it was sent: decompressed where its producer    |
|                             |              | compressed it; null where it does not decompress   |
| properties                  | map          | string to string: all but what the store fills in, |
|                             |              | tag, keys and light queues among it                |
| stored_body, properties_raw | binary       | as stored; record is the whole of it               |
| record                      | binary       |                                                    |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COMMITLOG = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("record_size", pa.int32()),
        ("tag_code", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("store_time_ms", pa.int64()),
        ("born_time_ms", pa.int64()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("in_queue", pa.bool_()),
        ("tag", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("light_queues", pa.list_(pa.string())),
        ("light_offsets", pa.list_(pa.int64())),
        ("body_crc", pa.int32()),
        ("body", pa.binary()),
        ("stored_body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("properties_raw", pa.binary()),
        ("record", pa.binary()),
    ]
)


def chosen(*names: str) -> pa.Schema:
    """The columns with those names, each once."""
    return pa.schema([COMMITLOG.field(name) for name in dict.fromkeys(names)])


#: The columns that a consumer needs, and that the sink accepts.
MESSAGE = chosen(
    *("topic", "queue_id", "queue_offset", "physical_offset", "timestamp"),
    *("tag", "keys", "light_queues", "properties", "flag", "born_time_ms", "body"),
)

#: A unit of a consume queue, from files or RocksDB. Files have no store time.
CONSUMEQUEUE = chosen(
    *("topic", "queue_id", "queue_offset", "physical_offset", "record_size", "tag_code"),
    "store_time_ms",
).append(pa.field("expiry_stamp_s", pa.int32()))


def struct_of(schema: pa.Schema) -> StructType:
    """The same columns in Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema)
    return found
