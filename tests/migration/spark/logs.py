"""Logs for the tests of the pipeline, and what must be found in them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from store.format import OWN_PROPERTIES
from store.format.properties import decode_properties
from tests.support.log_writer import COMMIT, PREPARED, ROLLBACK, Entry, LogWriter, Row

if TYPE_CHECKING:
    from pathlib import Path

#: One of everything that a record can be.
ODD_ENTRIES = [
    Entry(),
    Entry(version=2),
    Entry(topic="%RETRY%" + "g" * 123, born_host=("2001:db8::1", 1), store_host=("fe80::1", 2)),
    Entry(born_host=("2001:db8::1", 54321)),
    Entry(store_host=("::1", 10911), version=2),
    Entry(body=b""),
    Entry(topic="t" * 200, properties={"TAGS": "long"}),
    Entry(properties={"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1"}),
    Entry(properties={"TAGS": "订单", "KEYS": "a  b a", "UNIQ_KEY": "b"}),
    Entry(properties={"TAGS": "\U0001f600", "other": "x\x01y"}),
    Entry(properties=b"TAGS\x01first\x02TAGS\x01last\x02"),
    Entry(properties=b"TAGS\x01kept\x02TAGS\x01\x02KEYS\x01\x02"),
    Entry(properties=b"TAGS\x01open"),
    Entry(properties=b"\x02\x02TAGS\x01a\x02XTAGS\x01b\x02TAGSX\x01c\x02\x01v\x02"),
    Entry(properties=b"x\x01TAGS\x01no\x02\x02KEYS\x01k\x01k l\x02"),
    Entry(properties=b"KEYS"),
    Entry(properties={"KEYS": " "}),
    Entry(topic="SCHEDULE_TOPIC_XXXX", queue_id=3, properties={"DELAY": "4", "TAGS": "T"}),
    Entry(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "99"}),
    Entry(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "0", "TAGS": "T"}),
    Entry(topic="SCHEDULE_TOPIC_YYYY", properties={"DELAY": "4", "TAGS": "T"}),
    Entry(sys_flag=PREPARED, properties={"KEYS": "half", "TAGS": "T"}, light_queues=("%LMQ%p",)),
    Entry(sys_flag=ROLLBACK, properties={"KEYS": "gone"}),
    Entry(sys_flag=COMMIT, properties={"KEYS": "done"}, prepared_offset=77),
    Entry(light_queues=("%LMQ%a", "%LMQ%b"), properties={"TAGS": "L"}),
    Entry(light_queues=("%LMQ%b",), flag=-5, reconsume_times=3),
    Entry(properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "1"}),
    Entry(properties={"INNER_MULTI_DISPATCH": "plain,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": ",9"}),
    Entry(body=b"\xda\xa3\x20\xa7" * 40, queue_id=2),
]


def write_odd_log(directory: Path, *, crc_item: bool = True) -> LogWriter:
    """Every odd entry, several times over several segments."""
    writer = LogWriter(directory, 8192, crc_item=crc_item)
    for _ in range(3):
        writer.extend(ODD_ENTRIES)
    writer.flush()
    return writer


def write_log(
    directory: Path,
    count: int,
    *,
    topics: int = 3,
    queues: int = 4,
    segment_bytes: int = 1 << 16,
    seed: int = 1,
) -> LogWriter:
    """Ordinary traffic: some topics and queues, tags, keys, now and then a light queue."""
    chance = random.Random(seed)
    writer = LogWriter(directory, segment_bytes)
    for index in range(count):
        properties = {"KEYS": f"order-{index // 2}", "TAGS": f"Tag{index % 5}"}
        if index % 3:
            properties["UNIQ_KEY"] = f"U{index:08X}"
        light = (f"%LMQ%device{index % 7}",) if index % 10 == 0 else ()
        writer.append(
            Entry(
                topic=f"topic-{chance.randrange(topics)}",
                queue_id=chance.randrange(queues),
                body=chance.randbytes(chance.randrange(120)),
                properties=properties,
                light_queues=light,
                born_time_ms=1_700_000_000_000 + index * 900,
                store_time_ms=1_700_000_000_000 + index * 1000,
            )
        )
    writer.flush()
    return writer


def expected(row: Row) -> dict[str, Any]:
    """All columns of one record."""
    entry = row.entry
    return {
        "topic": entry.topic,
        "queue_id": entry.queue_id,
        "queue_offset": row.queue_offset,
        "physical_offset": row.physical_offset,
        "record_size": len(row.record),
        "tag_code": row.tag_code,
        "timestamp": datetime.fromtimestamp(entry.store_time_ms / 1000, UTC),
        "store_time_ms": entry.store_time_ms,
        "born_time_ms": entry.born_time_ms,
        "flag": entry.flag,
        "sys_flag": row.sys_flag,
        "reconsume_times": entry.reconsume_times,
        "prepared_transaction_offset": entry.prepared_offset,
        "born_host": host_text(entry.born_host),
        "store_host": host_text(entry.store_host),
        "in_queue": row.in_queue,
        "tag": row.tag,
        "keys": [] if row.sys_flag & 0xC == ROLLBACK else list(row.keys),
        "light_queues": [name for name, _ in light_places(row)],
        "light_offsets": [offset for _, offset in light_places(row)],
        "body_crc": int.from_bytes(row.record[8:12], "big"),
        "body": entry.body,
        "stored_body": entry.body,
        "properties": [
            item
            for item in decode_properties(row.properties.decode()).items()
            if item[0] not in OWN_PROPERTIES
        ],
        "properties_raw": row.properties,
        "record": row.record,
    }


def light_places(row: Row) -> tuple[tuple[str, int], ...]:
    """Light queues that the record has a unit in."""
    if not row.in_queue:
        return ()
    if b"plain,%LMQ%c" in row.properties:
        return (("%LMQ%c", 9),)
    return row.light


def host_text(host: tuple[str, int]) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"
