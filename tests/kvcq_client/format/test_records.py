"""Records decoded in the client, against records that the store's encoder wrote."""

from __future__ import annotations

import random
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client import CorruptRecordError, split_records
from store.format.record import unpack_record
from tests.support.log_writer import Entry, LogWriter

ITEM = {"TAGS": "paid", "KEYS": "k1 k2", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "x": "y\x01z"}


def _entries() -> list[Entry]:
    return [
        Entry(body=b"first", properties=ITEM),
        Entry(topic="é" * 100, body=b"", queue_id=7, version=2),
        Entry(body=b"z" * 5000, born_host=("fe80::1", 9), store_host=("::1", 10911)),
    ]


def _records(*, crc_item: bool = True) -> list[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        writer = LogWriter(Path(directory), 1 << 20, crc_item=crc_item)
        return [row.record for row in writer.extend(_entries())]


@pytest.mark.parametrize("crc_item", [True, False])
def test_fields_are_those_of_the_store(crc_item: bool) -> None:
    records = _records(crc_item=crc_item)
    for message, record in zip(split_records(b"".join(records)), records, strict=True):
        stored = unpack_record(record)
        assert message.record == record
        assert message.topic == stored.topic
        assert message.queue_id == stored.queue_id
        assert message.queue_offset == message.topic_queue_offset == stored.queue_offset
        assert message.queue == (stored.topic, stored.queue_id)
        assert message.physical_offset == stored.physical_offset
        assert message.body == stored.body
        assert message.properties == stored.properties
        assert message.tag == stored.tag
        assert message.keys == stored.keys
        assert message.flag == stored.flag
        assert message.sys_flag == stored.sys_flag
        assert message.born_time_ms == stored.born_time_ms
        assert message.store_time_ms == stored.store_time_ms
        assert message.reconsume_times == stored.reconsume_times
        host, port = stored.born_host
        assert message.born_host == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def test_light_queues_and_given_offsets() -> None:
    first, *_ = split_records(b"".join(_records()), [10, 20, 30])
    assert first.light_queues == ("%LMQ%a", "%LMQ%b")
    assert [m.queue_offset for m in split_records(b"".join(_records()), [10, 20, 30])] == [
        10,
        20,
        30,
    ]


@given(st.data())
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    records = _records()
    which = data.draw(st.integers(0, len(records) - 1))
    # Of all that the closing CRC covers; that item itself is 20 bytes.
    bit = data.draw(st.integers(0, 8 * (len(records[which]) - 20) - 1))
    damaged = bytearray(records[which])
    damaged[bit // 8] ^= 1 << bit % 8
    records[which] = bytes(damaged)
    for run in ([bytes(damaged)], records):
        with pytest.raises(CorruptRecordError):
            split_records(b"".join(run))


def test_a_record_that_ends_before_its_body_is_corrupt() -> None:
    record = bytearray(_records(crc_item=False)[0][:91])
    record[:4] = len(record).to_bytes(4, "big")
    record[39] |= 0x30  # hosts of 20 bytes each
    with pytest.raises(CorruptRecordError):
        split_records(bytes(record))


def test_records_with_and_without_a_closing_crc_may_be_mixed() -> None:
    sealed, plain = _records(), _records(crc_item=False)
    mixed = [sealed[0], plain[1], sealed[2], plain[0]]
    assert [message.record for message in split_records(b"".join(mixed))] == mixed
    assert split_records(b"") == []


@given(st.data())
def test_every_cut_is_found(data: st.DataObject) -> None:
    whole = b"".join(_records())
    ends = {0, len(_records()[0]), len(whole) - len(_records()[2])}
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in ends))
    with pytest.raises(CorruptRecordError):
        split_records(whole[:cut])


def test_count_must_be_that_of_the_offsets() -> None:
    whole = b"".join(_records())
    with pytest.raises(CorruptRecordError):
        split_records(whole, [1, 2])
    with pytest.raises(CorruptRecordError):
        split_records(whole, [1, 2, 3, 4])


def test_noise_never_raises_anything_else() -> None:
    noise = random.Random(7)
    for size in range(400):
        data = noise.randbytes(size)
        if size > 8:
            data = struct.pack(">i", size) + data[4:]
        try:
            split_records(data)
        except CorruptRecordError:
            continue
        assert size == 0
