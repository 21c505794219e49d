"""Frames of RocksDB's own files: a torn end is an end, a turned bit in a header is damage."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.log_format import (
    BLOCK_BYTES,
    FIRST,
    LAST,
    SECTOR_BYTES,
    WHOLE,
    TurnedBitError,
    has_hole,
    read_frames,
)
from kvcq.engine.rocks.options import metadata_profile

if TYPE_CHECKING:
    from pathlib import Path

HEADER_BYTES = 7


def frame(payload: bytes, kind: int = WHOLE) -> bytes:
    crc = crc32c(bytes([kind]) + payload)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def test_crc32c_is_the_fields_own() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2000))
def test_a_torn_end_is_the_end_and_no_damage(payloads: list[bytes], cut: int) -> None:
    frames = [frame(payload) for payload in payloads]
    data = b"".join(frames)[:cut]
    read = [each.payload for each in read_frames(data)]
    assert read == payloads[: len(read)]
    assert len(b"".join(frames[: len(read)])) <= cut
    assert len(read) == len(payloads) or len(b"".join(frames[: len(read) + 1])) > cut


def test_zeros_behind_the_last_frame_are_an_end() -> None:
    data = frame(b"one") + frame(b"two")
    assert [each.payload for each in read_frames(data + bytes(5000))] == [b"one", b"two"]
    # A page that never reached the disk, with a later one that did.
    lost = frame(b"one") + bytes(500) + frame(b"two")
    assert [each.payload for each in read_frames(lost)] == [b"one"]


def test_a_hole_is_a_sector_that_reads_as_zeros_or_the_rest_of_one() -> None:
    before, body = frame(b"one"), os.urandom(3 * SECTOR_BYTES)
    data = before + frame(body) + frame(b"three")
    assert not has_hole(data, len(before), 0)
    for position in range(len(before) * 8, len(data) * 8, 501):
        turned = bytearray(data)
        turned[position // 8] ^= 1 << position % 8
        assert not has_hole(bytes(turned), len(before), 0)

    def zeroed(start: int, end: int) -> bytes:
        return data[:start] + bytes(end - start) + data[end:]

    second = zeroed(SECTOR_BYTES, 2 * SECTOR_BYTES)
    assert has_hole(second, len(before), 0)
    assert not has_hole(second, len(before), 2 * SECTOR_BYTES)  # these zeros were on the disk
    assert has_hole(zeroed(len(before), SECTOR_BYTES), len(before), 0)
    assert not has_hole(zeroed(100, SECTOR_BYTES), len(before), 0)
    assert has_hole(zeroed(3 * SECTOR_BYTES, len(data)), len(before), 0)
    assert has_hole(data + bytes(100), len(data), 0)
    assert not has_hole(data, len(data), 0)
    assert not has_hole(data[:-1], len(data) - 5, 0)  # torn, no hole


def test_every_turned_bit_of_a_header_is_found() -> None:
    payloads = [b"", b"a", os.urandom(255), os.urandom(256), os.urandom(1000)]
    data = b"".join(map(frame, payloads))
    start = 0
    for payload in payloads:
        for bit in range(HEADER_BYTES * 8):
            damaged = bytearray(data)
            damaged[start + bit // 8] ^= 1 << bit % 8
            with pytest.raises(TurnedBitError, match=f"position {start}$"):
                list(read_frames(bytes(damaged)))
        start += HEADER_BYTES + len(payload)


def test_no_turned_bit_of_a_payload_is_read() -> None:
    data = frame(b"one") + frame(b"two")
    for bit in range(3 * 8):
        damaged = bytearray(data)
        damaged[HEADER_BYTES + bit // 8] ^= 1 << bit % 8
        assert list(read_frames(bytes(damaged))) == []  # RocksDB says that the checksum is wrong


def test_what_rocksdb_writes_is_read_over_many_blocks(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "meta", metadata_profile())
    sizes = [10, 20_000, 40_000, 3, 70_000, 0, *range(8000, 8040)]
    for number, size in enumerate(sizes):
        rows = [(b"%03d" % number, os.urandom(size))]
        engine.write(KvBatch(puts={"default": rows}))
    (log,) = (tmp_path / "meta").glob("*.log")
    data = log.read_bytes()
    engine.close()
    frames = list(read_frames(data))
    assert frames[-1].end == len(data) > 4 * BLOCK_BYTES
    assert sum(each.type in (WHOLE, LAST) for each in frames) == len(sizes)
    assert {FIRST, LAST} < {each.type for each in frames}
    # From any frame on the rest is the same.
    for at in (0, 5, len(frames) - 2):
        assert list(read_frames(data[frames[at].end :], frames[at].end)) == frames[at + 1 :]
