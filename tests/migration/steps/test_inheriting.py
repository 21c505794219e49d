"""What a broker had not delivered becomes the store's own: once, whatever is cut short."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from migration.check import check_store
from migration.opening import open_any
from migration.plan.plan import plan_directory
from migration.state import StateKeeper, read_state
from migration.steps import inheriting
from migration.steps.adopting import adopt
from store.base import no_progress
from store.config import StoreConfig
from store.format import unpack_record
from store.puts import AppendPath
from tests.support.fake_clock import FakeClock
from tests.support.tree import copy_open
from tests.support.waiting_broker import WaitingBroker
from tests.support.written_broker import LAYOUT, SEGMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from migration.state import MigrationState
    from migration.steps.inheriting import Inheritance
    from store.message_store import MessageStore

NOW_MS = 2_000_000_000_000
HOUR_MS = 3_600_000


def some_of_each(broker: WaitingBroker) -> set[str]:
    """Some of each kind wait, others do not; returns what waits."""
    broker.delay("delayed-done", 3)
    broker.deliver("delayed-done")
    broker.delivered_levels[3] = 1
    broker.delay("delayed", 3)
    broker.delay("delayed-late", 18)
    broker.delay("delayed-unsaid", 5)  # delivered, and the offset was not written any more
    broker.deliver("delayed-unsaid")
    broker.delay("delayed-nowhere", 5, "deleted")

    broker.enqueue(broker.timer("timer-done", NOW_MS - HOUR_MS), NOW_MS - HOUR_MS)
    broker.deliver("timer-done")
    broker.enqueue(broker.timer("timer", NOW_MS + HOUR_MS), NOW_MS + HOUR_MS)
    recalled = broker.timer("timer-recalled", NOW_MS + HOUR_MS)
    broker.enqueue(recalled, NOW_MS + HOUR_MS)
    recall = broker.timer("recall", NOW_MS + HOUR_MS, TIMER_DEL_UNIQKEY="orders+timer-recalled")
    broker.enqueue(recall, NOW_MS + HOUR_MS, 4)
    broker.enqueue(broker.timer("timer-rolled", NOW_MS + 90 * HOUR_MS), NOW_MS - 5000, 2)
    again = broker.timer("timer-rolled", NOW_MS + 90 * HOUR_MS, TIMER_ROLL_TIMES="1")
    broker.enqueue(again, NOW_MS + 48 * HOUR_MS, 2)
    broker.timer("timer-new", NOW_MS + 2 * HOUR_MS)  # not in the wheel yet

    done, back = broker.half("half-committed"), broker.half("half-rolled-back")
    broker.end(done, back)
    broker.deliver("half-committed")
    broker.half("half-asked")
    broker.half("half-asked", TRANSACTION_CHECK_TIMES="1")  # asked about: put once more
    broker.half("half")
    broker.half("half-unsaid")  # committed, and not noted any more
    broker.deliver("half-unsaid")
    broker.offsets["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"] = {0: 1}
    return {
        *("delayed", "delayed-late", "timer", "timer-rolled", "timer-new"),
        *("half-asked", "half"),
    }


@pytest.fixture
def broker(tmp_path: Path) -> WaitingBroker:
    return WaitingBroker(tmp_path / "store", NOW_MS)


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=SEGMENT_BYTES, preallocate=False)


def opened(root: Path, clock: FakeClock) -> MessageStore:
    return open_any(config_of(root), clock=clock).store


def waiting_in(store: MessageStore) -> dict[str, int]:
    """Names of what waits here, to when it is due; 0 of a half."""
    found = {each.message.body.decode(): each.due_ms for each in store.timers.page().found}
    halves, _ = store.halves.list()
    return (
        found
        | {half.message.body.decode(): 0 for half in store.halves.due("producers")}
        | {f"open {len(halves)}": 0}
    )


def bodies(store: MessageStore, topic: str = "orders") -> list[str]:
    found = []
    for queue_id in range(store.describe_topic(topic).queue_count):
        ((low, high),) = store.bounds([(topic, queue_id)])
        if high > low:
            pulled = store.pull(topic, queue_id, low, max_messages=1000)
            found += [unpack_record(each).body.decode() for each in pulled.records]
    return sorted(found)


def test_what_waits_is_found_in_plan_and_taken_over(broker: WaitingBroker) -> None:
    names = some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    plan = plan_directory(root, LAYOUT, no_progress)
    # A plan counts one more: its topic is gone, which is told when it is taken over.
    assert [each.waiting for each in plan.held_back] == [3, 3, 2]
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    with closing(opened(root, clock)) as store:
        clock.advance(7)
        found = waiting_in(store)
        assert found.pop("open 2") == 0
        assert found.keys() == names
        assert found["delayed"] == broker.due_ms(3)
        assert found["delayed-late"] == broker.due_ms(18)
        assert found["timer-rolled"] == NOW_MS + 90 * HOUR_MS
        (again,) = [each for each in store.halves.list()[0] if each.checks]
        assert (again.group, again.topic, again.checks) == ("producers", "orders", 1)
    state = read_state(root)
    assert state is not None
    assert state.inherits is None


def test_each_is_delivered_once_when_it_is_due(broker: WaitingBroker) -> None:
    some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    with closing(opened(root, clock)) as store:
        before = bodies(store)
        clock.advance(100 * 3600)
        while store.timers.firing.fire():
            pass
        for each in store.halves.list()[0]:
            store.halves.end(each.transaction_id, commit=True)
        came = sorted(
            ["delayed", "delayed-late", "timer", "timer-new", "timer-rolled", "half", "half-asked"]
        )
        assert sorted([*before, *came]) == bodies(store)
        record = store.pull("orders", 1, 0).records[-1]
        properties = unpack_record(record).properties
        assert properties["UNIQ_KEY"] in came
        assert not properties.keys() & {"DELAY", "REAL_TOPIC", "TIMER_ROLL_TIMES"}


class Cut(Exception):
    """The process ends."""


@pytest.mark.parametrize("after", range(12))
def test_what_is_cut_short_goes_on_and_takes_each_once(
    broker: WaitingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed before or behind each of its appends: what the disk has then is opened."""
    names = some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    appended = 0
    killed = tmp_path / "killed"
    true_append = AppendPath.decide_steps

    def append(path: AppendPath, decide: object, **more: bool) -> int:
        nonlocal appended
        appended += 1
        if appended * 2 - 1 == after:
            shutil.copytree(root, killed)
            raise Cut
        end = true_append(path, decide, **more)  # type: ignore[arg-type]
        if appended * 2 == after:
            shutil.copytree(root, killed)
            raise Cut
        return end

    with monkeypatch.context() as patched:
        patched.setattr(inheriting, "_TOGETHER", 1)
        patched.setattr(AppendPath, "decide_steps", append)
        with suppress(Cut):
            opened(root, clock).close()
    with closing(opened(killed if after else root, clock)) as store:
        clock.advance(7)
        found = waiting_in(store)
        assert found.pop("open 2") == 0
        assert found.keys() == names
        assert store.timers.count() == 5


def test_a_loss_of_power_behind_the_take_over_loses_none(
    broker: WaitingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state says durably that all are taken over: so they must be durable before."""
    names = some_of_each(broker)
    root, lost = broker.stop(read_ms=NOW_MS - 1000, next_timer=6), tmp_path / "lost"
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    flushed: list[int] = []
    take, move = inheriting.inherit, StateKeeper.move

    def taken(store: MessageStore, *args: Any) -> Inheritance:  # noqa: ANN401 - passed on
        found = take(store, *args)

        def moved(keeper: StateKeeper, event: str, **changes: Any) -> MigrationState:  # noqa: ANN401
            state = move(keeper, event, **changes)
            flushed.append(store.flushed_offset)
            copy_open(root, lost)
            return state

        monkeypatch.setattr(StateKeeper, "move", moved)
        return found

    monkeypatch.setattr("migration.steps.live.inherit", taken)
    slowly = replace(config_of(root), flush_interval_ms=60_000)
    open_any(slowly, clock=clock).store.close()
    monkeypatch.undo()
    for segment in (lost / "commitlog").iterdir():
        data = segment.read_bytes()
        kept = max(0, flushed[0] - int(segment.name))
        segment.write_bytes(data[:kept].ljust(len(data), b"\0"))
    with closing(opened(lost, clock)) as store:
        clock.advance(7)
        found = waiting_in(store)
        assert found.pop("open 2") == 0
        assert found.keys() == names


def test_without_the_timers_files_the_log_says_what_was_delivered(broker: WaitingBroker) -> None:
    names = some_of_each(broker)
    root = broker.stop()
    plan = plan_directory(root, LAYOUT, no_progress)
    assert [each.waiting for each in plan.held_back] == [3, 3, 2]
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    with closing(opened(root, clock)) as store:
        clock.advance(7)
        assert waiting_in(store).keys() - {"open 2"} == names


def test_a_check_finds_nothing_wrong_afterwards(broker: WaitingBroker) -> None:
    some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    adopt(root, layout=LAYOUT)
    clock = FakeClock(NOW_MS)
    opened(root, clock).close()
    assert check_store(root) == []
