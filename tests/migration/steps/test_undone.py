"""Groups that pop are shared here, with their settings, and are given again what they had."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from migration.plan.plan import plan_directory
from migration.release import Home, release
from migration.steps.adopting import adopt
from store.base import no_progress
from store.format import unpack_record
from store.message_store import MessageStore
from tests.migration.steps.test_inheriting import NOW_MS, opened
from tests.support.fake_clock import FakeClock
from tests.support.waiting_broker import WaitingBroker
from tests.support.written_broker import LAYOUT

if TYPE_CHECKING:
    from pathlib import Path

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
RETRY = "%RETRY%billing_orders"


class PoppingBroker(WaitingBroker):
    """Hands messages over as a broker does."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, NOW_MS)
        self.create(REVIVE, 2)
        self.create(RETRY)
        self.create("%DLQ%billing")
        self.groups = {
            "billing": {"groupName": "billing", "retryMaxTimes": 4},
            "in-turn": {"groupName": "in-turn", "consumeMessageOrderly": True},
            "pulls": {"groupName": "pulls", "retryMaxTimes": 16},
        }

    def _revive(self, tag: str, first: int, **said: object) -> None:
        body = {"c": "billing", "t": "orders", "q": 0, "so": first, "pt": 1, "bn": "b", **said}
        self.put(
            REVIVE, properties={"TAGS": tag}, body=json.dumps(body, separators=(",", ":")).encode()
        )

    def hand_over(self, first: int, count: int, bits: int = 0) -> None:
        self._revive("ck", first, n=count, d=list(range(count)), bm=bits, it=60_000)

    def acknowledge(self, first: int, *offsets: int) -> None:
        if len(offsets) == 1:
            self._revive("ack", first, ao=offsets[0])
        else:
            self._revive("bAck", first, aol=list(offsets), ao=0)


@pytest.fixture
def broker(tmp_path: Path) -> PoppingBroker:
    broker = PoppingBroker(tmp_path / "store")
    for number in range(20):
        broker.put(
            "orders", body=b"m%d" % number, properties={"UNIQ_KEY": f"id{number}", "own": "x"}
        )
    broker.hand_over(0, 4)  # done with: all of it is in the retry topic, or acknowledged
    broker.hand_over(4, 6)
    broker.acknowledge(4, 4)
    broker.acknowledge(4, 6, 7)
    broker.hand_over(10, 2, bits=1)
    broker.put(RETRY, body=b"m0", properties={"UNIQ_KEY": "id0"}, reconsume_times=1)
    broker.put(RETRY, body=b"m1", properties={"UNIQ_KEY": "id1"}, reconsume_times=2)
    broker.put(RETRY, body=b"old", properties={"UNIQ_KEY": "gone"}, reconsume_times=1)
    broker.put(
        "%DLQ%billing",
        body=b"dead",
        properties={"UNIQ_KEY": "d", "RETRY_TOPIC": "orders"},
        store_time_ms=NOW_MS,
    )
    broker.offsets = {
        "orders@billing": {0: 12},
        "orders@pulls": {0: 5},
        f"{RETRY}@billing": {0: 1},
        f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {0: 1},
    }
    return broker


def given(store: MessageStore) -> dict[str, int]:
    """Bodies that the group is given, with how often they were."""
    received = store.groups.receive("billing", "orders", max_messages=100)
    return {
        unpack_record(each.record).body.decode(): each.deliveries for each in received.deliveries
    }


def test_a_plan_counts_what_is_in_flight_and_to_be_given_again(broker: PoppingBroker) -> None:
    root = broker.stop()
    found = {each.kind: each for each in plan_directory(root, LAYOUT, no_progress).held_back}
    assert found["messages in flight"].waiting == 4
    assert found["messages to be delivered again"].waiting == 2
    assert found["dead letters"].waiting == 1
    assert "1 shared groups" in found["messages in flight"].outcome


def test_a_receive_that_makes_no_sense_is_skipped(
    broker: PoppingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker._revive("ck", 12, n=1, d="0", bm=0, it=60_000)
    root = broker.stop()
    found = {each.kind: each for each in plan_directory(root, LAYOUT, no_progress).held_back}
    assert found["messages in flight"].waiting == 4
    assert "makes no sense" in caplog.text


def test_a_group_that_pops_is_shared_with_its_settings(broker: PoppingBroker) -> None:
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        settings = store.groups.describe("billing")
        assert settings is not None
        assert settings.max_deliveries == 5
        in_turn = store.groups.describe("in-turn")
        assert in_turn is not None
        assert in_turn.in_order
        assert store.groups.describe("pulls") is None
        assert store.committed_offsets("pulls", [("orders", 0)]) == [5]


def test_what_was_not_done_is_given_again_and_nothing_else(broker: PoppingBroker) -> None:
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        again = {"m5": 2, "m8": 2, "m9": 2, "m11": 2, "m1": 3}
        assert given(store) == again | {f"m{number}": 1 for number in range(12, 20)}
        letters = store.groups.list_dead_letters("billing", -1, 10)
        said = [(unpack_record(each.record).body, each.topic) for each in letters]
        assert said == [(b"dead", "orders"), (b"old", "orders")]
        assert store.groups.redrive("billing", [], max_messages=10).redriven == 2
    assert [each for each in check_store(root) if each.is_fault] == []


def test_it_goes_back_and_is_taken_again(broker: PoppingBroker) -> None:
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        received = store.groups.receive("billing", "orders", max_messages=100)
        store.groups.acknowledge("billing", [each.handle for each in received.deliveries])
    told = release(root, home=Home.FILES)
    assert not any("shared groups written" in line for line in told), told
    text = (root / "config" / "consumerOffset.json").read_text()
    table = json.loads(re.sub(r"(?<=[{,])(\d+):", r'"\1":', text))["offsetTable"]
    assert table["orders@billing"] == {"0": 20, "1": 0}
    assert table[f"{RETRY}@billing"] == {"0": 3}
    assert table[f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP"] == {"0": 5}
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        assert given(store) == {}
        assert len(store.groups.list_dead_letters("billing", -1, 10)) == 2


def test_a_copy_in_flight_of_what_left_the_log_is_one_dead_letter(
    broker: PoppingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put(RETRY, body=b"copy", properties={"UNIQ_KEY": "left"}, reconsume_times=1)
    broker._revive("ck", 3, t=RETRY, n=1, d=[0], bm=0, it=60_000)
    broker.offsets[f"{RETRY}@billing"] = {0: 4}
    root = broker.stop()
    adopt(root, layout=LAYOUT)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "commit_offsets", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(root, FakeClock(NOW_MS))
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        letters = store.groups.list_dead_letters("billing", -1, 10)
        said = [(unpack_record(each.record).body, each.topic) for each in letters]
        assert said == [(b"dead", "orders"), (b"copy", "orders")]


def test_a_copy_that_no_put_would_take_is_a_dead_letter(broker: PoppingBroker) -> None:
    broker.create("%RETRY%billing")
    broker.put("%RETRY%billing", body=b"no origin", properties={"own": "x"})
    broker.put(RETRY, body=b"odd tag", properties={"UNIQ_KEY": "left", "TAGS": "a||b"})
    broker.put(RETRY, body=b"full", properties={"UNIQ_KEY": "left too", "own": "x" * 32_700})
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        letters = store.groups.list_dead_letters("billing", -1, 10)
        bodies = {unpack_record(each.record).body for each in letters}
        assert bodies == {b"dead", b"old", b"no origin", b"odd tag", b"full"}
