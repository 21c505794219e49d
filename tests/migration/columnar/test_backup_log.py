"""migration/columnar/backup_log.py: the log of a backup has the records of the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.backup import take_backup
from migration.columnar import (
    LogLayout,
    LogLayoutError,
    ReadOptions,
    advance,
    backup_layout,
    first_store_time,
    read_blocks,
    read_layout,
    split,
)
from tests.support.backups import put_some, queues_of
from tests.support.s3 import BUCKET
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


@pytest.fixture(params=["directory", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "b")
    request.getfixturevalue("bucket_server")
    return f"s3a://{BUCKET}/{request.node.name}"


def records(layout: LogLayout, max_bytes: int = 0) -> list[int]:
    options = ReadOptions(verify_crc=True)
    return [
        offset
        for log_range in split(layout, layout.start, layout.end, max_bytes)
        for block in read_blocks(log_range, options)
        for offset in block.physical_offset.tolist()
    ]


def test_it_has_the_records_of_the_store(url: str, store: MessageStore, clock: FakeClock) -> None:
    first = take_backup(store, queues_of(store), url, clock=clock).backup
    root = store.config.root / "commitlog"
    wanted = records(read_layout(root))
    assert len(wanted) == 321  # and the record that made the topics
    put_some(store, clock, 30)
    take_backup(store, queues_of(store), url, clock=clock)
    layout = backup_layout(url, first.backup_id)
    assert (layout.start, layout.end) == (first.start_offset, first.end_offset)
    assert records(layout) == wanted
    if "://" not in url:
        assert records(layout, 10_000) == wanted
    newest = backup_layout(url)
    assert records(newest) == records(read_layout(root))
    assert len(records(newest)) == 441
    assert [segment.name for segment in newest.segments] == [
        path.name for path in sorted(root.iterdir())
    ]
    oldest = store.log.first_time_from(0)
    assert oldest is not None
    assert first_store_time(newest.segments[0]) == oldest[1]
    assert advance(newest, 0, 1 << 60) == newest.end


def test_an_empty_log_has_no_segments(url: str, tmp_path: Path) -> None:
    with open_small(tmp_path / "empty") as store:
        take_backup(store, queues_of(store), url)
    layout = backup_layout(url)
    assert (layout.segments, layout.start, layout.end) == ((), 0, 0)


def test_what_is_not_there_is_told(url: str, store: MessageStore, tmp_path: Path) -> None:
    with pytest.raises(LogLayoutError):
        backup_layout(url)
    taken = take_backup(store, queues_of(store), url)
    with pytest.raises(LogLayoutError, match="the newest is"):
        backup_layout(url, "19700101T000000.000Z")
    layout = backup_layout(url)
    gone = layout.segments[0]._replace(path=layout.segments[0].path.replace("0000.", "0001."))
    with pytest.raises((LogLayoutError, FileNotFoundError)):
        records(layout._replace(segments=(gone,)))
    assert taken.backup.segments
