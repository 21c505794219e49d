"""A log in which somebody set the clock back is taken over: how far is noted for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.state.state import FileLayout
from migration.steps.adopting import adopt
from store.log import Fall, read_falls
from tests.support.log_writer import Entry, LogWriter
from tests.support.migrating import config, open_store

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 64 << 10


def test_a_fall_of_store_times_is_noted_on_taking_over(tmp_path: Path) -> None:
    root = tmp_path / "store"
    log = LogWriter(root / "commitlog", SEGMENT_BYTES, crc_item=False)
    log.extend([Entry(store_time_ms=time_ms) for time_ms in (1000, 5000, 2000, 4000, 6000)])
    log.flush()
    (root / "consumequeue").mkdir()
    adopt(root, layout=FileLayout(1000, 100, 400))
    falls = (Fall(log.rows[2].physical_offset, 5000, 2000),)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert read_falls(store.notes, 0) == falls
