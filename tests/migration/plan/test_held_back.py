"""What a broker would deliver later is counted, and said in plan and start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from migration.plan.held_back import HeldBack
from migration.plan.plan import plan_directory
from migration.steps.adopting import adopt
from migration.waiting import HALF_TOPIC
from store.base import no_progress
from store.format import SCHEDULE_TOPIC
from store.state import TIMER_TOPIC
from tests.support.command_line import answer_of, kvcq
from tests.support.written_broker import LAYOUT, BrokerStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    broker = BrokerStore(tmp_path / "store")
    broker.create("Other")
    broker.put("Other", 2)
    broker.create(SCHEDULE_TOPIC, 18)
    broker.put(SCHEDULE_TOPIC, 5, queue_id=2)  # level 3
    broker.put(SCHEDULE_TOPIC, 2, queue_id=17)
    broker.create(TIMER_TOPIC)
    broker.put(TIMER_TOPIC, 3)
    broker.create(HALF_TOPIC)
    broker.put(HALF_TOPIC, 4)
    root = broker.stop()
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:4}}')
    return root


EXPECTED = (
    HeldBack("delayed messages", SCHEDULE_TOPIC, 7, 3, "delivered when they are due"),
    HeldBack("timer messages", TIMER_TOPIC, 3, 3, "delivered when they are due"),
    HeldBack(
        *("half messages of transactions", HALF_TOPIC, 4, 4),
        "open transactions, which their producers are asked to decide",
    ),
)


def test_a_plan_counts_delayed_timer_and_half_messages(root: Path) -> None:
    assert plan_directory(root, LAYOUT, no_progress).held_back == EXPECTED
    sizes = ["--index-slots", LAYOUT.index_slots, "--index-entries", LAYOUT.index_entries]
    found = answer_of("migrate", "plan", root, *sizes)["heldBack"]
    assert [tuple(each.values()) for each in found] == [tuple(each) for each in EXPECTED]
    shown = kvcq("migrate", "plan", root, *sizes).stdout
    assert "what becomes of it here" in " ".join(shown.split())


def test_a_start_says_what_becomes_of_them(root: Path) -> None:
    told: list[str] = []
    adopt(root, layout=LAYOUT, tell=told.append)
    for each in EXPECTED:
        assert str(each) in told
    assert any("taken over when the store is opened" in line for line in told)


def test_a_store_without_any_is_told_nothing(tmp_path: Path) -> None:
    broker = BrokerStore(tmp_path / "store")
    broker.create("Other")
    broker.put("Other", 2)
    root = broker.stop()
    assert plan_directory(root, LAYOUT, no_progress).held_back == ()
    told: list[str] = []
    adopt(root, layout=LAYOUT, tell=told.append)
    assert not any("deliver" in line for line in told)
    assert json.loads((root / "config" / "topics.json").read_text())
