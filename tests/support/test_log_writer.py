"""The writer itself is held to vectors that were computed elsewhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tests.support.log_writer import Entry, LogWriter, java_hash

if TYPE_CHECKING:
    from pathlib import Path

PROPERTIES = {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": "0A0000010D2A2A9F0001"}


def at_4096(directory: Path, *, crc_item: bool) -> bytes:
    writer = LogWriter(directory, 4096, crc_item=crc_item, start=4096)
    entry = Entry(queue_id=3, queue_offset=7, properties=PROPERTIES)
    return writer.append(entry).record


def test_version_1_vector(tmp_path: Path) -> None:
    record = at_4096(tmp_path, crc_item=False)
    assert len(record) == 156
    digest = "9b00eda5bc39b9ea806a6744090a545c0d02a3fa835972cde2a80c0ae5acd97f"
    assert hashlib.sha256(record).hexdigest() == digest


def test_crc_item_vector(tmp_path: Path) -> None:
    record = at_4096(tmp_path, crc_item=True)
    assert record[-20:] == b"__CRC32#\x011744563581\x02"
    digest = "189d09caf431cc39a0c10a676bbbdfc8925be89c3713f58289b448ea7b11e170"
    assert hashlib.sha256(record).hexdigest() == digest


def test_version_2_and_ipv6_vector(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 4096, crc_item=False)
    writer.write_raw(bytes(200))
    record = writer.append(
        Entry(
            topic="%RETRY%" + "g" * 123,
            body=b"x" * 10,
            queue_id=1,
            queue_offset=42,
            born_host=("2001:db8::1", 54321),
            store_host=("fe80::1", 10911),
            reconsume_times=2,
        )
    ).record
    digest = "ba5e6005f1794a9ed596969b6a333fce0c07f2473e547bfe5b98ef4c815c3441"
    assert hashlib.sha256(record).hexdigest() == digest


def test_blank_record_fills_the_segment(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 4096)
    writer.write_raw(bytes(3996))
    writer.append(Entry())
    writer.flush()
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first[3996:] == bytes.fromhex("00000064cbd43194") + bytes(92)
    assert writer.rows[0].physical_offset == 4096


def test_hashes_of_java() -> None:
    assert java_hash("TagA") == 2598919
    assert java_hash("order-created") == -392709271
    assert java_hash("订单") == 1129459
    assert java_hash("\U0001f600") == 1772899
