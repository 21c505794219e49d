"""Records far behind the end are read through the file, many at a time, and verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.opening import open_store
from store.config import FlushMode, StoreConfig
from store.errors import CorruptRecordError, MessageNotFoundError
from store.log.segment import Segment
from store.message import Message
from tests.support.checked import checked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

COUNT = 600


@pytest.fixture
def store(tmp_path: Path, damaged: bool) -> Iterator[MessageStore]:
    config = StoreConfig(
        root=tmp_path / "s", segment_bytes=1 << 16, preallocate=False, hot_read_bytes=0
    )
    with checked(open_store(config), damaged=damaged) as opened:
        for number in range(COUNT):
            opened.append([Message("T", b"%06d" % number * 20, number % 2)])
        yield opened


def bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while True:
        pulled = store.pull("T", queue_id, offset, max_messages=128)
        if not pulled.records:
            return found
        found += [record[88 : 88 + 120] for record in pulled.records]
        offset = pulled.next_offset


def test_a_cold_pull_returns_what_a_hot_one_does(store: MessageStore) -> None:
    for queue_id in (0, 1):
        expected = [b"%06d" % number * 20 for number in range(queue_id, COUNT, 2)]
        assert bodies(store, queue_id) == expected


def test_a_cold_pull_reads_many_records_at_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read = Segment.pread

    def counted(self: Segment, position: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, position, size)

    monkeypatch.setattr(Segment, "pread", counted)
    pulled = store.pull("T", 0, 0, max_messages=200)
    assert len(pulled.records) == 200
    assert len(sizes) <= 3  # one for each segment, of 64 KiB, that they lie in


@pytest.mark.damages
def test_a_flipped_bit_in_a_cold_record_is_found(store: MessageStore, tmp_path: Path) -> None:
    store.flush()
    at = store.queues.read_units("T", 0, 0, 1)[0][1].physical_offset + 100
    path = tmp_path / "s" / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 4]))
    with pytest.raises(CorruptRecordError):
        store.pull("T", 0, 0)


def test_nothing_is_readable_by_offset_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StoreConfig(
        root=tmp_path / "sync",
        segment_bytes=1 << 16,
        preallocate=False,
        flush_mode=FlushMode.SYNC,
    )
    with open_store(config) as store:
        monkeypatch.setattr(store._services.flush, "request", lambda *_: None)
        placed = store.append([Message("T", b"x")]).placed[0]
        with pytest.raises(MessageNotFoundError, match="visible"):
            store.get(placed.physical_offset)
        monkeypatch.undo()
        store.put([Message("T", b"y")])
        assert store.get(placed.physical_offset)
