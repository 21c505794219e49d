"""What a plan and a start say of a broker's directory that is not as most are."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from migration.errors import LogDamageError
from migration.migrator import open_migrator
from migration.plan.plan import plan_directory
from migration.steps.adopting import adopt
from store.base import no_progress
from store.errors import StoreFormatError
from tests.support.tree import tree_digest
from tests.support.written_broker import LAYOUT, SEGMENT_BYTES, BrokerStore

if TYPE_CHECKING:
    from pathlib import Path

    from migration.plan.plan import Plan


@pytest.fixture
def broker(tmp_path: Path) -> BrokerStore:
    made = BrokerStore(tmp_path / "store")
    made.create("T", 2)
    made.put("T", 20)
    return made


def planned(root: Path) -> Plan:
    return plan_directory(root, LAYOUT, no_progress)


def told_by_start(root: Path) -> list[str]:
    told: list[str] = []
    adopt(root, layout=LAYOUT, tell=told.append)
    return told


def test_a_clean_store_that_ends_with_a_deleted_topic_is_no_copy(
    broker: BrokerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last records stand in no queue, so the queues end before the log does."""
    broker.create("gone")
    broker.put("gone", 5)
    broker.delete("gone")
    root = broker.stop()
    assert planned(root).is_clean
    adopt(root, layout=LAYOUT)
    with caplog.at_level(logging.WARNING), open_migrator(root) as migrator:
        assert migrator.status().sides[0].behind_bytes == 0
    assert [each.getMessage() for each in caplog.records] == []


def test_topics_with_names_that_none_can_have_here_are_left_out_everywhere(
    broker: BrokerStore,
) -> None:
    """They were called taken over, and their queues rebuilt."""
    name = "x" * 200
    broker.create(name)
    broker.put(name, 4)
    root = broker.stop()
    plan = planned(root)
    assert plan.faults == []
    (left_out,) = [each for each in plan.findings if name in each.place]
    assert "its messages are left out" in left_out.detail
    assert plan.topics == 1
    (topics,) = [each for each in plan.config if each.holds == "topics"]
    assert topics.detail == "taken over; not 1 with names no topic can have here"
    told = told_by_start(root)
    assert not any("rebuilt" in line for line in told)
    with open_migrator(root) as migrator:
        assert [each.name for each in migrator.live.on.store.list_topics("", None, 9)] == ["T"]
    assert check_store(root) == []
    assert any(
        (root / "consumequeue" / name / "0").iterdir()
    )  # for the broker, should it come back


def test_segments_spread_over_several_directories_are_named_as_that(
    tmp_path: Path, broker: BrokerStore
) -> None:
    broker.put("T", 2000)
    root = broker.stop()
    elsewhere = tmp_path / "second"
    elsewhere.mkdir()
    segments = sorted((root / "commitlog").iterdir())
    for path in segments[1::2]:
        path.rename(elsewhere / path.name)
    before = tree_digest(root)
    for look in (planned, told_by_start):
        with pytest.raises(StoreFormatError, match="storePathCommitLog names several directories"):
            look(root)
    assert tree_digest(root) == before
    for path in elsewhere.iterdir():
        path.rename(root / "commitlog" / path.name)
    assert planned(root).blocking == ()


def test_a_segment_missing_among_many_is_still_damage(broker: BrokerStore) -> None:
    broker.put("T", 2000)
    root = broker.stop()
    segments = sorted((root / "commitlog").iterdir())
    with segments[1].open("r+b") as file:
        file.truncate(SEGMENT_BYTES // 2)
    with pytest.raises(LogDamageError):
        planned(root)


@pytest.mark.parametrize("with_commitlog", [False, True])
def test_a_dledger_log_is_named_as_that(tmp_path: Path, *, with_commitlog: bool) -> None:
    root = tmp_path / "store"
    for name in ("dledger-n0/data", "consumequeue/T/0", "config"):
        (root / name).mkdir(parents=True)
    if with_commitlog:
        (root / "commitlog").mkdir()
    for look in (planned, told_by_start):
        with pytest.raises(StoreFormatError, match="enableDLegerCommitLog=true"):
            look(root)


def test_a_log_in_another_directory_is_named_as_that(broker: BrokerStore, tmp_path: Path) -> None:
    root = broker.stop()
    (root / "commitlog").rename(tmp_path / "elsewhere")
    for look in (planned, told_by_start):
        with pytest.raises(StoreFormatError, match="storePathCommitLog has"):
            look(root)


def test_read_only_topics_are_told(broker: BrokerStore) -> None:
    root = broker.stop()
    table = {"T": {"readQueueNums": 2, "writeQueueNums": 2, "perm": 4}}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    assert any("perm=4) can be written to here: T" in line for line in told_by_start(root))


def test_an_index_that_is_made_anew_after_a_kill_is_told(broker: BrokerStore) -> None:
    root = broker.kill(broker.log.end)
    (root / "index").mkdir()
    (root / "index" / "20260101000000000").write_bytes(bytes(LAYOUT.index.file_bytes))
    told = told_by_start(root)
    assert [line for line in told if "the index" in line], told
