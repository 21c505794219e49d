"""Topics, groups and offsets that a RocketMQ broker wrote, in every form that it keeps them in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import is_own_topic, read_config
from migration.errors import IllegalStepError
from migration.migrator import open_migrator
from migration.plan.plan import plan_directory
from migration.release import Home, release
from migration.steps.adopting import adopt
from store.format.record import unpack_record
from store.message import Message
from tests.support.broker_store import FORMS, LAYOUT, SEGMENT_BYTES, extract_broker, found_by_broker
from tests.support.migrating import config, done, open_store
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path

    from migration.broker_config import BrokerConfig
    from store.message_store import MessageStore

SOURCES = {
    "lmq": ("config/topics.json", "config/lmqConsumerOffset.json"),
    "separate": ("config/topics", "config/consumerOffsets"),
    "single": ("config/metadata", "config/metadata"),
    "v2": ("config/rdb", "config/rdb"),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(form: str, tmp_path: Path) -> Path:
    return extract_broker(tmp_path, form)


def _offsets(found: BrokerConfig) -> dict[str, int]:
    return {f"{each.topic}@{each.group}:{each.queue_id}": each.offset for each in found.offsets}


def _open(root: Path) -> MessageStore:
    return open_store(config(root, segment_bytes=SEGMENT_BYTES))


def test_what_the_broker_finds_is_read_and_nothing_changes(form: str, root: Path) -> None:
    before = tree_digest(root)
    found = read_config(root)
    assert tree_digest(root) == before
    theirs = found_by_broker(form)
    assert _offsets(found) == theirs["offsets"]
    assert found.sources == SOURCES[form]
    assert found.topics is not None
    assert found.topics["empty"] == 2
    assert "gone" not in found.topics
    if form == "v2":  # what every broker has is in no table there
        assert found.topics == {"empty": 2, "orders": 4}
        assert found.groups.keys() == {"audit", "billing", "silent"}
    else:
        assert found.topics == theirs["topics"]
        assert found.groups.keys() == set(theirs["groups"])


def test_the_plan_names_every_table_and_finds_no_fault(form: str, root: Path) -> None:
    before = tree_digest(root)
    plan = plan_directory(root, LAYOUT, lambda _step, _done: None)
    assert tree_digest(root) == before
    assert plan.is_clean, (plan.faults, plan.blocking)
    assert {each.holds for each in plan.config} == {"topics", "groups", "offsets"}
    assert {each.path for each in plan.config} >= set(SOURCES[form])
    offsets = [each for each in plan.config if each.holds == "offsets"]
    assert [(each.offsets, each.detail) for each in offsets] == [(10, "taken over")]
    assert plan.queues_in_rocksdb == (0 if form == "lmq" else 5)


def test_a_store_is_taken_over_with_its_topics_offsets_and_no_deleted_topic(
    form: str, root: Path
) -> None:
    adopt(root, layout=LAYOUT)
    theirs = found_by_broker(form)
    with _open(root) as store:
        names = {each.name: each.queue_count for each in store.list_topics("", None, 1000)}
        assert names["empty"] == 2
        assert "gone" not in names
        for name, offset in theirs["offsets"].items():
            topic, _, rest = name.partition("@")
            group, _, queue_id = rest.rpartition(":")
            assert store.committed_offsets(group, [(topic, int(queue_id))]) == [offset], name
        for queue, bodies in theirs["bodies"].items():
            topic, _, queue_id = queue.rpartition(":")
            pulled = store.pull(topic, int(queue_id), 0, max_messages=1000)
            assert [unpack_record(each).body.decode() for each in pulled.records] == bodies


def test_a_release_writes_back_in_the_form_that_was_taken_over(form: str, root: Path) -> None:
    before = read_config(root)
    adopt(root, layout=LAYOUT)
    with _open(root) as store:
        store.create_topics([("made-here", 3)])
        store.delete_topic("empty")
        store.put([Message(topic="made-here", body=b"new", queue_id=2)])
        store.commit_offsets("billing", [("orders", 0, 14), ("made-here", 2, 1)])
        store.commit_offsets("fresh", [("%LMQ%device-1", 0, 3)])
        store.delete_group("audit")
    home = Home.FILES if form == "lmq" else Home.ROCKSDB
    if home is Home.ROCKSDB:
        with open_migrator(root) as migrator:
            done(migrator.live.start())
            done(migrator.live.verify())
    lines = release(root, home=home)
    assert any(SOURCES[form][1] in line for line in lines), lines
    after = read_config(root)
    assert after.sources == before.sources
    assert after.groups == before.groups
    assert before.topics is not None
    expected = {name: count for name, count in before.topics.items() if name != "empty"}
    assert after.topics == {**expected, "made-here": 3}
    offsets = {name: at for name, at in _offsets(before).items() if "@audit" not in name}
    offsets |= {"orders@billing:0": 14, "made-here@billing:2": 1, "%LMQ%device-1@fresh:0": 3}
    assert _offsets(after) == offsets
    names = {each.name for each in (root / "config").rglob("*")}
    assert not names & {"rocksdict-config.json", "KVCQ-NOTE"}
    # What was given back can be taken over again.
    adopt(root, layout=LAYOUT)
    with _open(root) as store:
        assert store.committed_offsets("billing", [("orders", 0)]) == [14]


@pytest.mark.parametrize("form", ["separate", "single", "v2"])
def test_a_store_moved_off_rocksdb_is_not_released_without_saying_for_which_broker(
    form: str, tmp_path: Path
) -> None:
    """Its queues are in files then, and the broker that it came from looks for them in RocksDB."""
    root = extract_broker(tmp_path, form)
    before = read_config(root)
    adopt(root, layout=LAYOUT)
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify())
        migrator.live.cutover()
        migrator.live.finish()
        for _ in range(3):
            job = migrator.live.rollback()
            if job is not None:
                done(job)
    with pytest.raises(IllegalStepError, match="storeType=default") as refused:
        release(root)
    assert refused.value.next_step.options == ("--files",)
    release(root, home=Home.FILES)
    for path in {root / source for source in before.sources}:
        shutil.rmtree(path)  # a broker with storeType=default does not look there
    after = read_config(root)
    assert before.topics is not None
    assert after.topics is not None
    assert after.topics.items() >= before.topics.items()
    assert _offsets(after) == _offsets(before)


def test_topics_that_every_broker_has_are_not_taken_for_deleted_ones() -> None:
    assert is_own_topic("SCHEDULE_TOPIC_XXXX")
    assert is_own_topic("RMQ_SYS_TRANS_HALF_TOPIC")
    assert is_own_topic("rmq_sys_REVIVE_LOG_DefaultCluster")
    assert not is_own_topic("orders")
