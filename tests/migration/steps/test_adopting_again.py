"""A store that was given back, and that a broker went on with, is taken over once more.

Records of the state from its first life are in its log: they count for nothing any more.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import GroupOffset, read_config
from migration.check import check_store
from migration.release import Home, release
from migration.state.state import FileLayout
from migration.steps.adopting import adopt
from migration.steps.inheriting import Inheritance
from store.message import Message
from store.state import STATE_TOPIC
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import config, differences, done, live, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests have random records in topics of the broker's own: what becomes of
    real ones, test_inheriting.py shows."""
    monkeypatch.setattr("migration.steps.live.inherit", lambda *_: Inheritance())


def opened(root: Path) -> MessageStore:
    return open_store(config(root, segment_bytes=SEGMENT_BYTES))


@pytest.fixture
def given_back(tmp_path: Path) -> Path:
    """In its first life "orders" was deleted, topics were made, and a group committed."""
    root = extract_golden(tmp_path)
    adopt(root, layout=LAYOUT)
    shutil.copytree(root / "consumequeue" / "orders", tmp_path / "orders")
    with opened(root) as store:
        store.put([Message("ours", b"%d" % number) for number in range(5)])
        store.commit_offsets("g", [("ours", 0, 3)])
        store.delete_topic("orders")
    lines = release(root, home=Home.FILES)
    assert any(STATE_TOPIC in line for line in lines)
    return root


def said(root: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((root / "config" / name).read_text())
    return found


def test_a_broker_finds_nothing_of_the_state_in_its_tables(given_back: Path) -> None:
    topics = said(given_back, "topics.json")["topicConfigTable"]
    assert isinstance(topics, dict)
    assert "ours" in topics
    assert STATE_TOPIC not in topics
    assert read_config(given_back).offsets == [GroupOffset("g", "ours", 0, 3)]


def test_what_the_broker_says_counts_and_not_what_the_first_life_said(given_back: Path) -> None:
    root = given_back
    # The broker made its queues again from the log, so "orders" is there; "ours" it deleted.
    shutil.copytree(root.parent / "orders", root / "consumequeue" / "orders")
    shutil.rmtree(root / "consumequeue" / "ours")
    document = said(root, "topics.json")
    table = document["topicConfigTable"]
    assert isinstance(table, dict)
    table["orders"] = table.pop("ours") | {"topicName": "orders"}
    (root / "config" / "topics.json").write_text(json.dumps(document))
    (root / "config" / "lmqConsumerOffset.json").unlink()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@h":{0:1}}}')
    adopt(root, layout=LAYOUT)
    with opened(root) as store:
        names = {topic.name for topic in store.list_topics("", None, 100)}
        assert "orders" in names
        assert not names & {"ours", STATE_TOPIC}
        assert store.list_groups(None, 10) == ["h"]
        assert store.list_committed("h", None, 10) == [("orders", 0, 1)]
        before = store.bounds([("orders", 0)])
        # Records of this life are behind those of the first in their queue.
        store.commit_offsets("h", [("orders", 0, 2)])
        store.put([Message("ours", b"anew")])
        assert tuple(store.bounds([("ours", 0)])[0]) == (0, 1)
        done(live(store).start())
        assert differences(store) == []
        live(store).cutover()
        assert store.bounds([("orders", 0)]) == before
    assert [each for each in check_store(root) if each.is_fault] == []
    with opened(root) as store:
        assert store.list_committed("h", None, 10) == [("orders", 0, 2)]


@pytest.mark.slow
def test_it_goes_back_and_forth(given_back: Path) -> None:
    root = given_back
    for turn in range(2):
        adopt(root, layout=LAYOUT)
        with opened(root) as store:
            assert store.committed_offsets("g", [("ours", 0)]) == [3 + turn]
            store.put([Message("ours", b"more")])
            store.commit_offsets("g", [("ours", 0, 4 + turn)])
            assert differences(store) == []
        release(root)
