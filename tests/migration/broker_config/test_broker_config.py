"""Which of a broker's tables are read, and how topics and offsets are written back to them."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from rocksdict import Options, Rdict

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import small_profile
from kvcq.errors import EngineUnavailableError
from migration.broker_config import (
    GroupOffset,
    WrittenBack,
    read_config,
    settings_of,
    write_back,
)
from migration.broker_config.json_files import quoted_numbers
from store.base import write_file
from store.errors import StoreFormatError
from store.metadata import KEEP_ALL, LiteGroup, MessageType, SharedGroup
from store.state import (
    Committed,
    GroupMade,
    LiteTopicsOf,
    Tables,
    TopicsMade,
    TopicTakes,
    changes_of,
    pack_group,
)
from tests.support.state import DictRows
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store.state import Entry

BEFORE = """{
\t"dataVersion":{"counter":7,"timestamp":1},
\t"offsetTable":{
\t\t"orders@billing":{0:5,1:6},
\t\t"orders@gone":{0:1},
\t\t"no separator":{0:3}
\t}
}"""


def _write_back(root: Path, state: State) -> WrittenBack | None:
    return write_back(root, state, state.every_window, None, 0)


def _written(root: Path, state: State) -> int:
    """How many offsets were written."""
    written = _write_back(root, state)
    assert written is not None
    return written.offsets


class State(Tables):
    """Rows of state in memory."""

    def __init__(self) -> None:
        self.rows = DictRows()
        super().__init__(self.rows)

    def take(self, *entries: Entry) -> None:
        self.rows.take(changes_of(entries, 0, self.rows))

    def commit(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        self.take(GroupMade(group, b""), *(Committed(group, *each) for each in offsets))

    def make(self, topic: str, queue_count: int) -> None:
        self.take(TopicsMade([topic], queue_count, 0, KEEP_ALL))


@pytest.fixture
def state() -> State:
    return State()


def test_committed_offsets_come_back_as_rocketmq_writes_them(tmp_path: Path, state: State) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(BEFORE)
    state.commit("billing", [("orders", 0, 9), ("orders", 1, 6), ("%LMQ%a", 0, 2)])
    assert _written(tmp_path, state) == 3
    assert read_config(tmp_path).offsets == [
        GroupOffset("billing", "%LMQ%a", 0, 2),
        GroupOffset("billing", "orders", 0, 9),
        GroupOffset("billing", "orders", 1, 6),
    ]
    text = path.read_text()
    assert '"orders@billing":{0:9,1:6}' in text  # queue ids without quotes
    assert '"no separator":{0:3}' in text  # nobody here could have changed it
    assert "gone" not in text  # the group was deleted here
    assert '"counter":8' in text
    assert path.with_name("consumerOffset.json.bak").read_text() == BEFORE
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "consumerOffset.json",
        "consumerOffset.json.bak",
        "lmqConsumerOffset.json",
    ]


def test_writing_offsets_back_can_be_repeated(tmp_path: Path, state: State) -> None:
    (tmp_path / "config").mkdir()
    state.commit("billing", [("orders", queue_id, 1) for queue_id in range(2500)])
    assert _written(tmp_path, state) == 2500
    first = read_config(tmp_path).offsets
    assert _written(tmp_path, state) == 2500
    assert read_config(tmp_path).offsets == first


def test_without_a_config_directory_nothing_is_written(tmp_path: Path, state: State) -> None:
    state.commit("billing", [("orders", 0, 9)])
    assert _write_back(tmp_path, state) is None
    assert not (tmp_path / "config").exists()


def test_a_store_without_offsets_gets_no_file(tmp_path: Path, state: State) -> None:
    (tmp_path / "config").mkdir()
    assert _write_back(tmp_path, state) is None
    assert not list((tmp_path / "config").iterdir())


def test_p9_a_crash_beside_a_damaged_file_leaves_its_whole_copy(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(BEFORE[:40])
    path.with_name("consumerOffset.json.bak").write_text(BEFORE)
    state.commit("billing", [("orders", 0, 9)])

    def crash(target: Path, data: bytes) -> None:
        if target == path:
            raise OSError("crash")
        write_file(target, data)

    with monkeypatch.context() as patched:
        patched.setattr("migration.broker_config.json_files.write_file", crash)
        with pytest.raises(OSError, match="crash"):
            _write_back(tmp_path, state)
    assert _written(tmp_path, state) == 1
    assert '"no separator":{0:3}' in path.read_text()


def _offsets_file(root: Path, name: str, timestamp: int, mtime_s: int, offset: int) -> Path:
    path = root / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'{{"dataVersion":{{"counter":0,"timestamp":{timestamp}}},'
        f'"offsetTable":{{"orders@billing":{{0:{offset}}}}},'
        f'"lmqOffsetTable":{{"%LMQ%a@%LMQ%reader":{offset}}}}}'
    )
    os.utime(path, (mtime_s, mtime_s))
    return path


@pytest.mark.parametrize(
    ("light_written_s", "light_changed_ms", "read"),
    [(2000, 1, "lmqConsumerOffset.json"), (1010, 1, "consumerOffset.json"), (500, 9, None)],
)
def test_of_two_files_of_offsets_the_one_written_last_is_read(
    tmp_path: Path, light_written_s: int, light_changed_ms: int, read: str | None
) -> None:
    """Within a minute, as after a copy, the one whose data version was changed last."""
    _offsets_file(tmp_path, "consumerOffset.json", 5, 1000, 1)
    _offsets_file(tmp_path, "lmqConsumerOffset.json", light_changed_ms, light_written_s, 2)
    found = read_config(tmp_path)
    light = read == "lmqConsumerOffset.json"
    assert GroupOffset("billing", "orders", 0, 2 if light else 1) in found.offsets
    assert (GroupOffset("%LMQ%reader", "%LMQ%a", 0, 2) in found.offsets) == light
    assert found.sources == (f"config/{read or 'consumerOffset.json'}",)
    passed = [each for each in found.found if each.detail.startswith("not read")]
    assert len(passed) == 1
    assert passed[0].path != found.sources[0]


def test_offsets_of_groups_of_light_queues_go_where_the_broker_looks_for_them(
    tmp_path: Path, state: State
) -> None:
    path = _offsets_file(tmp_path, "lmqConsumerOffset.json", 1, 1000, 2)
    state.commit("%LMQ%reader", [("%LMQ%a", 0, 7)])
    state.commit("billing", [("orders", 0, 8), ("%LMQ%a", 0, 9)])
    sources = ["config/lmqConsumerOffset.json"]
    written = write_back(tmp_path, state, state.every_window, sources, 0)
    assert written is not None
    assert (written.offsets, written.offsets_paths[0]) == (3, sources[0])
    text = path.read_text()
    assert '"%LMQ%a@%LMQ%reader":7' in text
    assert '"orders@billing":{0:8}' in text
    assert '"%LMQ%a@billing":{0:9}' in text
    without_lmq = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert '"%LMQ%a@%LMQ%reader":{0:7}' in without_lmq  # a broker without enableLmq reads this one
    assert '"orders@billing":{0:8}' in without_lmq


def test_rows_that_nobody_noted_as_taken_over_stay(tmp_path: Path, state: State) -> None:
    """Programs that did not read a form must not have emptied it when a later one releases."""
    _offsets_file(tmp_path, "lmqConsumerOffset.json", 1, 1000, 2)
    (tmp_path / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"empty":{"topicName":"empty","writeQueueNums":2}}}'
    )
    state.commit("other", [("orders", 0, 8)])
    assert write_back(tmp_path, state, state.every_window, None, 0) is not None
    found = read_config(tmp_path)
    assert GroupOffset("billing", "orders", 0, 2) in found.offsets
    assert GroupOffset("other", "orders", 0, 8) in found.offsets
    assert found.topics == {"empty": 2}


def _database(root: Path, name: str, rows: dict[str, str], counter: int) -> RocksEngine:
    path = root / "config" / name
    path.parent.mkdir(exist_ok=True)
    engine = RocksEngine.open(path, small_profile("default", "kvDataVersion"))
    batch = KvBatch()
    for key, value in rows.items():
        batch.put("default", key.encode(), value.encode())
    batch.put("kvDataVersion", b"kvDataVersionKey", b'{"counter":%d,"timestamp":1}' % counter)
    engine.write(batch)
    return engine


def test_rows_in_the_write_ahead_log_of_a_broker_that_runs_are_read(tmp_path: Path) -> None:
    """What a broker wrote last is in its log alone; and it may have the database open."""
    path = tmp_path / "config" / "consumerOffsets"
    path.parent.mkdir()
    broker = Rdict(str(path), Options(raw_mode=True))
    versions = broker.create_column_family("kvDataVersion", Options(raw_mode=True))
    versions[b"kvDataVersionKey"] = b'{"counter":1,"timestamp":1}'
    broker[b"orders@billing"] = b'{"offsetTable":{0:5}}'
    before = tree_digest(tmp_path)
    assert read_config(tmp_path).offsets == [GroupOffset("billing", "orders", 0, 5)]
    assert tree_digest(tmp_path) == before
    with pytest.raises(EngineUnavailableError):
        RocksEngine.open(path, small_profile())
    broker.close()


def test_files_whose_version_counts_further_win_over_a_database(
    tmp_path: Path, state: State
) -> None:
    """As a broker imports them at its start; what is written back counts further than both."""
    rows = {"orders@billing": '{"offsetTable":{"0":5}}', "orders@audit": '{"offsetTable":{"0":6}}'}
    _database(tmp_path, "consumerOffsets", rows, 3).close()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text('{"dataVersion":{"counter":9},"offsetTable":{"orders@billing":{0:7}}}')
    found = read_config(tmp_path)
    assert sorted(found.offsets) == [
        GroupOffset("audit", "orders", 0, 6),
        GroupOffset("billing", "orders", 0, 7),
    ]
    assert found.sources == ("config/consumerOffsets",)
    state.commit("billing", [("orders", 0, 8)])
    written = write_back(tmp_path, state, state.every_window, found.sources, 0)
    assert written is not None
    assert written.offsets_paths == (
        "config/consumerOffsets",
        "config/consumerOffset.json",
        "config/lmqConsumerOffset.json",
    )
    assert '"counter":10' in path.read_text()  # the database counts as far: nothing is imported
    assert read_config(tmp_path).offsets == [GroupOffset("billing", "orders", 0, 8)]


def test_a_broker_with_rocksdb_imports_what_a_store_made_here_gives_it(
    tmp_path: Path, state: State
) -> None:
    """It imports a file whose data version counts further than that of its own, new, database: 0.
    A file without a version is an error to it."""
    (tmp_path / "config").mkdir()
    state.make("orders", 4)
    state.commit("billing", [("orders", 0, 9), ("%LMQ%a", 0, 2)])
    assert _write_back(tmp_path, state) is not None
    for name in ("topics.json", "consumerOffset.json", "lmqConsumerOffset.json"):
        version = json.loads(quoted_numbers((tmp_path / "config" / name).read_text()))
        assert version["dataVersion"]["counter"] == 1, name
    before, after = (
        _offsets_in(tmp_path, "consumerOffset"),
        _offsets_in(tmp_path, "lmqConsumerOffset"),
    )
    assert before == after == {"orders@billing": {"0": 9}, "%LMQ%a@billing": {"0": 2}}


def test_a_broker_is_told_which_messages_a_topic_takes(tmp_path: Path, state: State) -> None:
    (tmp_path / "config").mkdir()
    for name in MessageType:
        state.make(name.name.lower(), 1)
        state.take(TopicTakes(name.name.lower(), name))
    state.take(LiteTopicsOf("lite", 90_000))
    assert _write_back(tmp_path, state) is not None
    text = (tmp_path / "config" / "topics.json").read_text()
    table = json.loads(quoted_numbers(text))["topicConfigTable"]
    assert {name: row["attributes"] for name, row in table.items()} == {
        "any": {},
        **{
            name: {"message.type": name.upper()}
            for name in ("normal", "fifo", "delay", "transaction", "priority")
        },
        "lite": {"message.type": "LITE", "lite.topic.expiration": "2"},
    }


def test_what_a_broker_says_of_a_topic_stays_beside_its_type(tmp_path: Path, state: State) -> None:
    (tmp_path / "config").mkdir()
    said = {"attributes": {"message.type": "FIFO", "reserve.time": "9"}, "writeQueueNums": 1}
    table = {"topicConfigTable": {"stays": said, "changed": said}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(table))
    for name in ("stays", "changed"):
        state.make(name, 1)
    state.take(TopicTakes("changed", MessageType.DELAY))
    assert _write_back(tmp_path, state) is not None
    text = (tmp_path / "config" / "topics.json").read_text()
    rows = json.loads(quoted_numbers(text))["topicConfigTable"]
    assert rows["stays"] == said
    assert rows["changed"]["attributes"] == {"message.type": "DELAY", "reserve.time": "9"}


SHARED = (
    SharedGroup(),
    SharedGroup(5, backoff_ms=(1000, 60_000)),
    SharedGroup(max_deliveries=None),
    SharedGroup(in_order=True),
    SharedGroup(3, in_order=True, is_paused=True, lite=LiteGroup("p", 7, is_exclusive=True)),
    SharedGroup(in_order=True, lite=LiteGroup("p", is_wildcard=True)),
)


@pytest.mark.parametrize("settings", SHARED)
def test_a_shared_group_comes_back_with_the_settings_that_it_had(
    tmp_path: Path, state: State, settings: SharedGroup
) -> None:
    (tmp_path / "config").mkdir()
    state.make("orders", 1)
    state.take(GroupMade("g", pack_group(settings)))
    written = _write_back(tmp_path, state)
    assert written is not None
    assert written.groups_changed == 1
    assert settings_of(read_config(tmp_path).groups["g"]) == settings.settled
    again = _write_back(tmp_path, state)
    assert again is not None
    assert again.groups_changed == 0


def test_a_group_of_the_brokers_has_what_was_changed_here_and_keeps_the_rest(
    tmp_path: Path, state: State
) -> None:
    (tmp_path / "config").mkdir()
    lite = {"lite.bind.topic": "p", "lite.sub.wildcard": "true"}
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}}
    said = {
        "groupName": "g",
        "retryMaxTimes": 16,
        "brokerId": 3,
        "groupRetryPolicy": policy,
        "attributes": {"own": "1", **lite},
    }
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps({"subscriptionGroupTable": {"g": said}}))
    state.make("orders", 1)
    state.take(GroupMade("g", pack_group(settings_of(said))))
    assert _write_back(tmp_path, state) is not None
    assert read_config(tmp_path).groups == {"g": said}
    # Deleted, and created again.
    state.take(GroupMade("g", pack_group(SharedGroup(3, is_paused=True))))
    assert _write_back(tmp_path, state) is not None
    assert read_config(tmp_path).groups == {
        "g": {
            "groupName": "g",
            "retryMaxTimes": 2,
            "brokerId": 3,
            "attributes": {"own": "1"},
            "consumeEnable": False,
            "consumeMessageOrderly": False,
        }
    }


def test_what_a_broker_kept_in_databases_is_written_to_files_as_well(
    tmp_path: Path, state: State
) -> None:
    """A release on files is for a broker that reads no database."""
    rows = {"orders@billing": '{"offsetTable":{"0":5}}'}
    _database(tmp_path, "consumerOffsets", rows, 3).close()
    _database(
        tmp_path, "topics", {"orders": '{"topicName":"orders","writeQueueNums":4}'}, 7
    ).close()
    _database(tmp_path, "subscriptionGroups", {"billing": '{"groupName":"billing"}'}, 2).close()
    state.make("orders", 4)
    state.make("new", 2)
    state.commit("billing", [("orders", 0, 8)])
    assert (
        write_back(tmp_path, state, state.every_window, read_config(tmp_path).sources, 0)
        is not None
    )
    for database in ("consumerOffsets", "topics", "subscriptionGroups"):
        shutil.rmtree(tmp_path / "config" / database)
    found = read_config(tmp_path)
    assert found.topics == {"orders": 4, "new": 2}
    assert found.groups.keys() == {"billing"}
    assert found.offsets == [GroupOffset("billing", "orders", 0, 8)]


def _offsets_in(root: Path, name: str) -> object:
    text = (root / "config" / f"{name}.json").read_text()
    return json.loads(quoted_numbers(text))["offsetTable"]


def test_a_database_row_that_makes_no_sense_is_an_error_that_names_the_database(
    tmp_path: Path,
) -> None:
    _database(tmp_path, "topics", {"orders": "[1]"}, 1).close()
    with pytest.raises(StoreFormatError, match="config/topics"):
        read_config(tmp_path)
