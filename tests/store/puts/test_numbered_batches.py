"""A batch is found by its number over segments; damage within it is damage, and no blank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import CorruptRecordError
from store.format.batch_mark import BatchMark
from store.message import Message
from tests.crash.images import flip
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

MAGIC_AT = 4


def put_batch(store: MessageStore, count: int, body_bytes: int) -> list[int]:
    """Batch 0 of producer p; where its records lie."""
    batch = [Message("T", bytes(body_bytes), 0)] * count
    appended = store.append(batch, mark=BatchMark("p", 0, count, 7, count))
    return [place.physical_offset for place in appended.placed]


def test_a_batch_over_segments_is_found_whole(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        places = put_batch(store, 9, SEGMENT_BYTES // 4)
        assert places[-1] > 2 * SEGMENT_BYTES
        found = store.batches.find("p", 0)
        assert found is not None
        assert [one and one.physical_offset for one in found.messages] == places


@pytest.mark.parametrize("damaged", range(1, 9))
def test_a_damaged_magic_is_damage_wherever_the_batch_goes_on(tmp_path: Path, damaged: int) -> None:
    with open_small(tmp_path / "store", hot_read_bytes=0) as store:
        places = put_batch(store, 9, SEGMENT_BYTES // 4)
        segment, position = divmod(places[damaged], SEGMENT_BYTES)
        path = tmp_path / "store" / "commitlog" / f"{segment * SEGMENT_BYTES:020}"
        flip(path, position + MAGIC_AT, 0x10)
        with pytest.raises(CorruptRecordError) as caught:
            store.batches.find("p", 0)
        assert caught.value.physical_offset == places[damaged]
