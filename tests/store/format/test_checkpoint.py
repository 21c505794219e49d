"""The checkpoint file: RocketMQ's bytes, checked, replaced as a whole."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import store.format.checkpoint
from store.errors import StoreFormatError
from store.format.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    pack_checkpoint,
    read_checkpoint,
    unpack_checkpoint,
    write_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = Checkpoint(1700000000456, 1700000000400, 1699999990000, 0, 4096)
OURS = GOLDEN._replace(flushed_offset=8192)
GOLDEN_HEX = "0000018bcfe569c8 0000018bcfe56990 0000018bcfe540f0 0000000000000000 0000000000001000"
ROCKETMQ_FILE = bytes.fromhex(GOLDEN_HEX).ljust(CHECKPOINT_BYTES, b"\0")

numbers = st.integers(0, 2**63 - 1)
checkpoints = st.builds(Checkpoint, *[numbers] * len(Checkpoint._fields))


def test_golden_bytes() -> None:
    data = pack_checkpoint(OURS)
    assert data[:40] == bytes.fromhex(GOLDEN_HEX)
    assert data[40:48].hex() == "0000000000002000"
    assert len(data) == CHECKPOINT_BYTES
    assert data[52:] == bytes(CHECKPOINT_BYTES - 52)


def test_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(ROCKETMQ_FILE)
    assert read_checkpoint(tmp_path / "checkpoint") == GOLDEN


def test_layout_table_agrees_with_the_struct() -> None:
    doc = store.format.checkpoint.__doc__
    assert doc is not None
    rows = re.findall(r"^\| +(\d+) \| +(\d+) \| (\w+) +\| (\w+) ", doc, re.MULTILINE)
    names = [name for _, _, _, name in rows]
    assert names == [*Checkpoint._fields, "crc"]
    at = 0
    for start, size, kind, _ in rows:
        assert int(start) == at
        assert int(size) == struct.calcsize({"i64": ">q", "u32": ">I"}[kind])
        at += int(size)


@given(checkpoints)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, checkpoint: Checkpoint) -> None:
    path = tmp_path_factory.getbasetemp() / "checkpoint"
    assert unpack_checkpoint(path, pack_checkpoint(checkpoint)) == checkpoint


def test_replaced_file_holds_the_new_values(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(path) is None
    write_checkpoint(path, Checkpoint(log_time_ms=1))
    write_checkpoint(path, OURS)
    assert read_checkpoint(path) == OURS
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("length", [0, 40, 4095, 4097])
def test_wrong_length_is_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(StoreFormatError, match=f"has {length} bytes"):
        unpack_checkpoint(tmp_path, pack_checkpoint(GOLDEN)[:length].ljust(length, b"\0"))


def test_every_flipped_bit_of_ours_is_detected(tmp_path: Path) -> None:
    good = pack_checkpoint(OURS)
    for bit in [*range(52 * 8), 52 * 8 + 3, 4095 * 8]:
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreFormatError, match="damaged"):
            unpack_checkpoint(tmp_path, bytes(data))


def test_negative_value_is_refused(tmp_path: Path) -> None:
    data = struct.pack(">5q", 1, -2, 3, 4, 5).ljust(CHECKPOINT_BYTES, b"\0")
    with pytest.raises(StoreFormatError, match="queue_time_ms is -2"):
        unpack_checkpoint(tmp_path, data)


def test_min_time_is_the_lower_of_log_and_queue_less_a_margin() -> None:
    assert GOLDEN.min_time_ms == 1700000000400 - 3000
    assert Checkpoint(log_time_ms=5000, queue_time_ms=9000).min_time_ms == 2000
    assert Checkpoint(log_time_ms=100, queue_time_ms=100).min_time_ms == 0
