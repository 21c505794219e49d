"""A lost topic table is made again from the log, and only on request."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import metadata_profile
from migration.check import check_store
from migration.repair.metadata import repair_metadata
from migration.repair.queues import set_queues_aside
from store.config import StoreConfig
from store.errors import StoreFormatError, UnknownTopicError
from store.format.record import unpack_record
from store.message import Message
from tests.support.command_line import kvcq
from tests.support.fake_clock import FakeClock
from tests.support.migrating import open_store
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.metadata import TopicConfig


def config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=1 << 20, preallocate=False)


def fill(root: Path) -> None:
    with open_store(config(root)) as store:
        store.put([Message("A", b"1", 3, tag="t"), Message("B", b"2", 0)])
        store.put([Message("A", b"3", 5, light_queues=("%LMQ%x",))])


def repaired(root: Path) -> list[TopicConfig]:
    found = repair_metadata(root)
    assert found is not None, "it was sound"
    return found


def test_a_store_without_its_topic_table_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "meta")
    with pytest.raises(StoreFormatError, match=r"kvcq repair .* --metadata"):
        open_store(config(tmp_path / "s"))


def test_topics_come_back_with_the_queues_their_records_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "meta")
    found = repaired(root)
    assert [(topic.name, topic.queue_count) for topic in found] == [("A", 6), ("B", 1)]
    with open_store(config(root)) as store:
        assert store.pull("A", 3, 0).records
        assert store.put([Message("B", b"4", 0)]).placed[0].queue_offset == 1
        assert store.pull("%LMQ%x", 0, 0).records


def test_a_damaged_table_is_kept_under_another_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    (root / "meta" / "CURRENT").write_bytes(b"rubbish")
    repair_metadata(root)
    assert (root / "meta.damaged-1").is_dir()
    with open_store(config(root)) as store:
        assert [topic.name for topic in store.list_topics("", None, 10)] == ["A", "B"]


def test_a_sound_table_needs_no_repair_and_one_with_a_bad_row_is_not_replaced(
    tmp_path: Path,
) -> None:
    root = tmp_path / "s"
    fill(root)
    assert repair_metadata(root) is None
    told = kvcq("repair", str(root), "--metadata")
    assert told.exit_code == 0
    assert "meta/ is intact: nothing to repair" in told.stderr
    told = kvcq("repair", str(root), "--metadata", "--json")
    assert json.loads(told.stdout) == {"repaired": None, "topics": None}
    engine = RocksEngine.open(root / "meta", metadata_profile())
    (family,) = (each.name for each in metadata_profile().families)
    (key,) = (key for key, _ in engine.scan(family, b"", b"\xff") if key.endswith(b"A"))
    engine.write(KvBatch(puts={family: [(key, b"rubbish")]}))
    engine.close()
    with pytest.raises(StoreFormatError, match="not replaced"):
        repair_metadata(root)
    assert not (root / "meta.damaged-1").exists()


def test_queues_set_aside_are_made_again_from_the_log(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    aside = set_queues_aside(root)
    assert aside.path is not None
    assert aside.path.is_dir()
    assert aside.damage == []
    with open_store(config(root)) as store:
        assert store.pull("A", 5, 0).records
        assert [tuple(each) for each in store.bounds([("A", 3), ("A", 5)])] == [(0, 1), (0, 1)]


def lose(root: Path) -> None:
    """As a turned bit does it: the manifest seems to end early."""
    manifest = next((root / "meta").glob("MANIFEST-*"))
    data = bytearray(manifest.read_bytes())
    data[5] ^= 0x80
    manifest.write_bytes(data)


def test_a_turned_bit_is_refused_with_the_way_out_and_the_way_out_works(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    lose(root)
    with pytest.raises(StoreFormatError, match=f"kvcq repair {root} --metadata"):
        open_store(config(root))
    repair_metadata(root)
    with open_store(config(root)) as store:
        assert [topic.name for topic in store.list_topics("", None, 10)] == ["A", "B"]
        assert store.pull("A", 3, 0).records
    assert check_store(root) == []


def test_queues_are_not_made_again_while_the_topics_are_lost(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    lose(root)
    with pytest.raises(StoreFormatError, match="--metadata"):
        set_queues_aside(root)
    assert (root / "kvcq").is_dir()


def test_an_emptied_table_is_a_lost_one(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "meta")
    (root / "meta").mkdir()
    with pytest.raises(StoreFormatError, match="--metadata"):
        open_store(config(root))
    assert [topic.name for topic in repaired(root)] == ["A", "B"]


def test_deleted_topics_stay_deleted_as_long_as_the_queues_know(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    with open_store(config(root)) as store:
        store.delete_topic("A")
        store.delete_topic("B")
        store.put([Message("B", b"of a later B", 0)])
    shutil.rmtree(root / "meta")
    (found,) = repaired(root)
    assert (found.name, found.queue_count) == ("B", 1)
    set_queues_aside(root)  # made again, they have nothing of the dead ones either
    with open_store(config(root)) as store:
        (record,) = store.pull("B", 0, 0).records
        assert unpack_record(record).body == b"of a later B"
        with pytest.raises(UnknownTopicError):
            store.pull("A", 3, 0)
    assert check_store(root) == []


def test_topics_whose_messages_have_left_the_log_are_found_in_the_queues(tmp_path: Path) -> None:
    root = tmp_path / "s"
    clock = FakeClock()
    with open_small(root, clock) as store:
        store.put([Message("old", b"x" * 1000, 2)])
        while store.log.appended_offset < 3 * store.config.segment_bytes:
            store.put([Message("new", b"x" * 1000, 0)])
        store.flush()
        clock.advance(10**9)
        assert store._services.retention.run_once(now=True)
    shutil.rmtree(root / "meta")
    assert {topic.name: topic.queue_count for topic in repaired(root)} == {
        "old": 3,
        "new": 1,
    }
    with open_small(root, clock) as store:
        assert tuple(store.bounds([("old", 2)])[0]) == (1, 1)  # its offsets go on
