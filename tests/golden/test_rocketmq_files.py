"""The consume queue files and index files that RocketMQ wrote, read with our legacy side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.files import FileQueueOptions, FileQueueStore, note_whole
from migration.formats.index import IndexLayout
from store.consume_queue import Boundary
from tests.golden.rocketmq_log import golden_log
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    UNITS_PER_FILE,
    expected,
    extract_golden,
)
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS = FileQueueOptions(
    units_per_file=UNITS_PER_FILE, index=IndexLayout(slots=INDEX_SLOTS, entries=INDEX_ENTRIES)
)
_FOREVER_MS = (1 << 63) - 1


@pytest.fixture(params=["both", "prefilled"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    return extract_golden(tmp_path, name)


@pytest.fixture
def files(name: str, root: Path) -> Iterator[FileQueueStore]:
    """The golden files; whatever a test reads, they stay as they are."""
    log = golden_log(name)
    times = {record.physical_offset: record.store_time_ms for record in log.records}
    records = {request.physical_offset: request for request in log.requests}
    note_whole(root, log.end, indexed=True)
    before = tree_digest(root)
    store = FileQueueStore(
        root,
        store_time_ms=times.get,
        record_at=records.get,
        options=OPTIONS,
    )
    yield store
    assert tree_digest(root) == before
    store.close()


def test_bounds_of_rocketmqs_queue_files_are_read(name: str, files: FileQueueStore) -> None:
    log_start = expected(name)["log"]["start"]
    for queue in expected(name)["queues"]["files"]:
        bounds = files.bounds(queue["topic"], queue["queue_id"], log_start)
        assert bounds == (queue["min"], queue["max"]), queue["topic"]


def test_units_of_rocketmqs_queue_files_are_read(name: str, files: FileQueueStore) -> None:
    for queue in expected(name)["queues"]["files"]:
        units = files.read_units(
            queue["topic"], queue["queue_id"], queue["min"], queue["max"] - queue["min"]
        )
        assert [[offset, *unit] for offset, unit in units] == queue["units"]


def test_search_by_time_answers_as_rocketmq_does(name: str, files: FileQueueStore) -> None:
    log_start = expected(name)["log"]["start"]
    for queue in expected(name)["queues"]["files"]:
        for time_ms, lower, upper in queue["searches"]:
            found = [
                files.search_time(queue["topic"], queue["queue_id"], time_ms, boundary, log_start)
                for boundary in (Boundary.LOWER, Boundary.UPPER)
            ]
            assert found == [lower, upper], (queue["topic"], time_ms)


def test_a_query_by_key_returns_the_messages_that_carry_it_and_no_others(
    name: str, files: FileQueueStore
) -> None:
    keys = golden_log(name).keys()
    for query in expected(name)["key_queries"]:
        topic, key = query["topic"], query["key"]
        hits = files.query_key(topic, key, 0, _FOREVER_MS, None, 1 << 20)
        assert [hit.physical_offset for hit in hits] == keys.get((topic, key), [])
