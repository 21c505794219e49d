"""Tags in the index files: written as RocketMQ 5.5 does, where it did, and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from migration.files.record_lookup import RecordLookup
from migration.formats.index import (
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    IndexLayout,
    index_key,
    key_hashes,
    tag_as_key,
)
from migration.migrator import open_migrator
from migration.plan.legacy import take_inventory
from migration.release import release
from migration.state.phase import Phase
from migration.state.state import FileLayout, read_state, write_state
from migration.steps.adopting import adopt
from migration.steps.inheriting import Inheritance
from store.message import Message
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import config, done, open_store

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)
#: Of the golden store `both`, tags among them.
ENTRIES, TAG_ENTRIES = 5150, 1513


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests have random records in topics of the broker's own: what becomes of
    real ones, test_inheriting.py shows."""
    monkeypatch.setattr("migration.steps.live.inherit", lambda *_: Inheritance())


def entries(root: Path, layout: IndexLayout) -> list[tuple[int, int]]:
    """Hash and physical offset of every entry of all index files."""
    found: list[tuple[int, int]] = []
    for path in sorted((root / "index").iterdir()):
        data = path.read_bytes()
        count = HEADER.unpack(data[:HEADER_SIZE])[5] - 1
        at = layout.entry_position(1)
        rows = np.frombuffer(data[at : at + count * ENTRY_SIZE], dtype=ENTRY_DTYPE)
        found += zip(rows["key_hash"].tolist(), rows["physical_offset"].tolist(), strict=True)
    return found


def _all_the_way_and_back(root: Path) -> None:
    """Adopted, moved to RocksDB alone, and brought back to files, which are made anew."""
    adopt(root, layout=LAYOUT)
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify(key_every=1))
        assert list(migrator.live.differences) == []
        migrator.live.cutover()
        migrator.live.finish()
        assert not (root / "index").exists()
        done(migrator.live.rollback())
        done(migrator.live.rollback())
        migrator.live.rollback()
    release(root)


def test_finish_rollback_and_release_keep_every_entry_of_rocketmqs_index(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    before = entries(root, LAYOUT.index)
    assert len(before) == ENTRIES
    _all_the_way_and_back(root)
    assert Counter(entries(root, LAYOUT.index)) == Counter(before)


def test_where_rocketmq_indexed_no_tags_none_come_in(tmp_path: Path) -> None:
    """Brokers before 5.5: their index has the entries of keys alone."""
    root = extract_golden(tmp_path, "both")
    adopt(root, layout=LAYOUT)
    state = read_state(root)
    assert state is not None
    write_state(root, replace(state, layout=LAYOUT))
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify())
        migrator.live.cutover()
        migrator.live.finish()
        done(migrator.live.rollback())
        done(migrator.live.rollback())
        migrator.live.rollback()
    release(root)
    assert len(entries(root, LAYOUT.index)) == ENTRIES - TAG_ENTRIES
    # What is taken over then shows the same.
    assert take_inventory(root, LAYOUT, lambda *_: None).layout.index_tags_from is None


def test_what_is_put_after_the_adoption_is_indexed_with_its_tag(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    adopt(root, layout=LAYOUT)
    state = read_state(root)
    assert state is not None
    assert state.layout.index_tags_from is not None
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        appended = store.put([Message(topic="orders", body=b"x", tag="fresh")])
    at = appended.requests[0].physical_offset
    new = [each for each in entries(root, LAYOUT.index) if each[1] == at]
    hashed = int(key_hashes([index_key("orders", tag_as_key("fresh"))])[0])
    assert new == [(hashed, at)]
    # No query by key finds it under that.
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert store.query("orders", "T#fresh").records == []


@pytest.mark.slow
def test_a_tag_that_the_index_lacks_is_a_difference(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    adopt(root, layout=LAYOUT)
    for path in (root / "index").iterdir():
        data = bytearray(path.read_bytes())
        at = LAYOUT.index.entry_position(1)
        rows = np.frombuffer(data, dtype=ENTRY_DTYPE, offset=at)
        hashed = int(key_hashes([index_key("orders", tag_as_key("paid"))])[0])
        rows["key_hash"][rows["key_hash"] == hashed] = hashed ^ 1
        path.write_bytes(bytes(data))
    with open_migrator(root) as migrator:
        assert migrator.live.state.phase is Phase.FILES
        done(migrator.live.start())
        done(migrator.live.verify(key_every=1))
        found = list(migrator.live.differences)
        assert found
        assert {(each.topic, each.place, each.side) for each in found} == {
            ("orders", "tag paid", "files")
        }


@pytest.mark.parametrize(
    ("properties", "body", "tag"),
    [
        ({}, b"", "paid"),
        ({}, b"\x02TAGS\x01body\x02", "paid"),
        ({"text": "TAGS\x01value"}, b"", "paid"),
        ({"MYTAGS": "other"}, b"TAGS\x01body", "标签😀"),
    ],
)
def test_a_tag_is_read_from_its_property_and_from_nothing_that_looks_like_it(
    tmp_path: Path, properties: dict[str, str], body: bytes, tag: str
) -> None:
    settings = config(tmp_path / "store")
    with open_store(settings) as store:
        store.create_topics([("orders", 1)])
        store.put([Message(topic="orders", body=body, tag=tag, properties=properties)])
        store.put([Message(topic="orders", body=body, tag=tag, keys=("k",))])
        requests = [store.pull("orders", 0, at, max_messages=1).records[0] for at in range(2)]
    assert len(requests) == 2
    lookup = RecordLookup(settings.root / "commitlog", settings.segment_bytes)
    made = lookup.request(0)  # of the topic
    assert made is not None
    first = lookup.request(made.record_size)
    assert first is not None
    second = lookup.request(made.record_size + first.record_size)
    assert second is not None
    assert lookup.tags([first, second]) == [tag, tag]
    gone = second._replace(physical_offset=settings.segment_bytes * 7)
    assert lookup.tags([gone, second]) == ["", tag]
    lookup.close()
