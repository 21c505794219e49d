"""Offsets are read from RocketMQ's consumerOffset.json, and written back as RocketMQ writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.metadata_store import MetadataStore
from kvcq.options import metadata_profile
from kvcq.rocks import RocksEngine
from migration.rocketmq_config import GroupOffset, read_group_offsets, write_back_offsets
from store.files import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEFORE = """{
\t"dataVersion":{"counter":7,"timestamp":1},
\t"offsetTable":{
\t\t"orders@billing":{0:5,1:6},
\t\t"orders@gone":{0:1},
\t\t"no separator":{0:3}
\t}
}"""


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[MetadataStore]:
    store = MetadataStore(RocksEngine.open(tmp_path / "meta", metadata_profile()))
    yield store
    store.close()


def test_committed_offsets_come_back_as_rocketmq_writes_them(
    tmp_path: Path, metadata: MetadataStore
) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(BEFORE)
    metadata.commit_offsets("billing", [("orders", 0, 9), ("orders", 1, 6), ("%LMQ%a", 0, 2)])
    assert write_back_offsets(tmp_path, metadata) == 3
    assert read_group_offsets(tmp_path) == [
        GroupOffset("billing", "%LMQ%a", 0, 2),
        GroupOffset("billing", "orders", 0, 9),
        GroupOffset("billing", "orders", 1, 6),
    ]
    text = path.read_text()
    assert '"orders@billing":{0:9,1:6}' in text  # queue ids without quotes
    assert '"no separator":{0:3}' in text  # nobody here could have changed it
    assert "gone" not in text  # the group was deleted here
    assert '"counter": 8' in text
    assert path.with_name("consumerOffset.json.bak").read_text() == BEFORE
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "consumerOffset.json",
        "consumerOffset.json.bak",
    ]


def test_writing_offsets_back_can_be_repeated(tmp_path: Path, metadata: MetadataStore) -> None:
    (tmp_path / "config").mkdir()
    metadata.commit_offsets("billing", [("orders", queue_id, 1) for queue_id in range(2500)])
    assert write_back_offsets(tmp_path, metadata) == 2500
    first = read_group_offsets(tmp_path)
    assert write_back_offsets(tmp_path, metadata) == 2500
    assert read_group_offsets(tmp_path) == first


def test_without_a_config_directory_nothing_is_written(
    tmp_path: Path, metadata: MetadataStore
) -> None:
    metadata.commit_offsets("billing", [("orders", 0, 9)])
    assert write_back_offsets(tmp_path, metadata) is None
    assert not (tmp_path / "config").exists()


def test_a_store_without_offsets_gets_no_file(tmp_path: Path, metadata: MetadataStore) -> None:
    (tmp_path / "config").mkdir()
    assert write_back_offsets(tmp_path, metadata) is None
    assert not list((tmp_path / "config").iterdir())


def test_p9_a_crash_beside_a_damaged_file_leaves_its_whole_copy(
    tmp_path: Path, metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(BEFORE[:40])
    path.with_name("consumerOffset.json.bak").write_text(BEFORE)
    metadata.commit_offsets("billing", [("orders", 0, 9)])

    def crash(target: Path, data: bytes) -> None:
        if target == path:
            raise OSError("crash")
        write_file(target, data)

    with monkeypatch.context() as patched:
        patched.setattr("migration.rocketmq_config.write_file", crash)
        with pytest.raises(OSError, match="crash"):
            write_back_offsets(tmp_path, metadata)
    assert write_back_offsets(tmp_path, metadata) == 1
    assert '"no separator":{0:3}' in path.read_text()
