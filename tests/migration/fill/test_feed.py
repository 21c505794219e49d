"""Who fills a side meets damage as live dispatch does: it ends there, unless it may be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.columnar.liveness import liveness_of
from migration.fill.feed import LogFeed
from store.errors import CorruptRecordError
from tests.support.migrating import config, messages, open_store, sorter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

COUNT = 50


@pytest.fixture(params=[False, True], ids=["damage ends it", "damage is left out"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MessageStore]:
    settings = config(tmp_path / "store", skip_damaged_records=request.param)
    with open_store(settings) as opened:
        opened.put(messages(0, COUNT))
        opened.flush()
        segment = opened.log.segments.find(0)
        assert segment is not None
        (_, unit), *_ = opened.queues.read_units("orders", 0, 0, 1)
        segment.buffer[unit.physical_offset + 90] ^= 1  # in the body of the first message
        yield opened


def test_a_feed(store: MessageStore) -> None:
    feed, end = LogFeed(store), store.log.appended_offset
    _, at = feed.read(0, end, 1)  # the record that made the topics
    if not store.config.skip_damaged_records:
        with pytest.raises(CorruptRecordError, match="CRC"):
            feed.read(at, end, 1000)
        return
    requests, at = feed.read(at, end, 1000)
    assert (len(requests), at) == (COUNT - 1, end)


def test_the_process_beside_it(store: MessageStore, tmp_path: Path) -> None:
    skip_damaged = store.config.skip_damaged_records
    worker = sorter(
        store.config.root,
        tmp_path,
        liveness_of(store.tables, store.applier.endings()),
        skip_damaged=skip_damaged,
    )
    end = store.log.appended_offset
    if not skip_damaged:
        with pytest.raises(CorruptRecordError, match="CRC"):
            worker.make(end)
        return
    made = worker.make(end)
    assert (made["records"], made["end"]) == (COUNT, end)
