"""The log of a golden store, decoded by our code: what the tests here compare with."""

from __future__ import annotations

import functools
import hashlib
import socket
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from store.consume_queue import CqUnit
from store.format.properties import CRC_ITEM
from store.format.record import (
    Found,
    check_record,
    dispatch_request,
    java_hash,
    message_id,
    pack_host,
    unpack_record,
)
from tests.support.golden_store import extract_golden

if TYPE_CHECKING:
    from store.consume_queue import DispatchRequest
    from store.message import Host, StoredMessage

Queue = tuple[str, int]


@dataclass
class DecodedLog:
    """Every record of a log, in order, and what is derived from it."""

    start: int
    end: int = 0
    records: list[StoredMessage] = field(default_factory=list)
    requests: list[DispatchRequest] = field(default_factory=list)
    blanks: list[list[int]] = field(default_factory=list)

    def units(self) -> dict[Queue, list[tuple[int, CqUnit]]]:
        """The units of each queue, light queues included, as (queue offset, unit)."""
        queues: dict[Queue, list[tuple[int, CqUnit]]] = defaultdict(list)
        for request in self.requests:
            if not request.in_queue:
                continue
            unit = CqUnit(
                request.physical_offset,
                request.record_size,
                request.tag_code,
                request.store_time_ms,
            )
            queues[request.topic, request.queue_id].append((request.queue_offset, unit))
            for name, offset in request.light_queues:
                queues[name, 0].append((offset, unit))
        return dict(queues)

    def keys(self) -> dict[tuple[str, str], list[int]]:
        """Physical offsets of the messages that carry each (topic, key)."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for request in self.requests:
            for key in request.keys:
                found[request.topic, key].append(request.physical_offset)
        return dict(found)


def decode_log(root: Path) -> DecodedLog:
    """Walk the segments of the store in `root` from the first record to where records end."""
    segments = sorted((root / "commitlog").iterdir())
    log = DecodedLog(int(segments[0].name))
    for segment in segments:
        base, data, at = int(segment.name), segment.read_bytes(), 0
        while True:
            checked = check_record(data, at, len(data), base + at)
            if checked.found is not Found.RECORD:
                break
            log.records.append(unpack_record(memoryview(data)[at:]))
            log.requests.append(dispatch_request(data, at))
            at += checked.size
        log.end = base + at
        if checked.found is Found.BLANK:
            log.blanks.append([log.end, int.from_bytes(data[at : at + 4], "big")])
    return log


@functools.cache
def golden_log(name: str) -> DecodedLog:
    """The decoded log of the golden store `name`."""
    with TemporaryDirectory() as directory:
        return decode_log(extract_golden(Path(directory), name))


def as_expected(message: StoredMessage) -> dict[str, Any]:
    """The message in the form of the expectation."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "record_size": message.record_size,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_time_ms": message.born_time_ms,
        "born_host": _host(message.born_host),
        "store_time_ms": message.store_time_ms,
        "store_host": _host(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_crc": message.body_crc,
        "body_size": len(message.body),
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
        "message_id": message_id(pack_host(message.store_host), message.physical_offset),
        "properties": message.properties,
    }


def check_records(log: DecodedLog, theirs: list[dict[str, Any]]) -> None:
    """Each record decodes to what RocketMQ read. AssertionError with the first that does not."""
    assert len(log.records) == len(theirs)
    for message, its in zip(log.records, theirs, strict=True):
        # RocketMQ hands the CRC item out as a property, and a place in a batch as it stands; we do
        # neither.
        properties = {name: value for name, value in its["properties"].items() if name != CRC_ITEM}
        offset = max(0, its["prepared_transaction_offset"])
        given = {"properties": properties, "prepared_transaction_offset": offset}
        assert as_expected(message) == its | given


def check_units(log: DecodedLog, theirs: list[dict[str, Any]]) -> None:
    """RocketMQ's queues hold the units that the log asks for, and no others."""
    units = log.units()
    not_empty = [queue for queue in theirs if queue["max"] > queue["min"]]
    assert {(queue["topic"], queue["queue_id"]) for queue in not_empty} == set(units)
    for queue in not_empty:
        derived = units[queue["topic"], queue["queue_id"]]
        assert [[offset, *unit] for offset, unit in derived] == queue["units"], queue["topic"]
        assert [unit.physical_offset for _, unit in derived] == queue["pulled"], queue["topic"]
        assert derived[0][0] == queue["min"]
        assert derived[-1][0] == queue["max"] - 1


def check_keys(log: DecodedLog, theirs: list[dict[str, Any]]) -> int:
    """RocketMQ's index finds every message by its keys; returns how many foreign ones it adds."""
    keys = log.keys()
    by_hash: dict[int, set[int]] = defaultdict(set)
    for (topic, key), offsets in keys.items():
        by_hash[java_hash(f"{topic}#{key}")].update(offsets)
    foreign = 0
    for query in theirs:
        topic, key = query["topic"], query["key"]
        found = set(query["physical_offsets"])
        ours = set(keys.get((topic, key), []))
        # RocketMQ compares hashes alone: what it returns besides belongs to another key.
        assert ours <= found <= ours | by_hash[java_hash(f"{topic}#{key}")], (topic, key)
        foreign += len(found - ours)
    return foreign


def _host(host: Host) -> list[Any]:
    address, port = host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return [socket.inet_pton(family, address).hex().upper(), port]
