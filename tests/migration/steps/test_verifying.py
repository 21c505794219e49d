from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.inspect import Kind
from kvcq.tables.keys import UNITS, unit_key
from migration.errors import IllegalStepError
from migration.fill.feed import LogFeed
from migration.fill.pace import Pace
from migration.jobs import Job, JobState
from migration.state import SideName
from migration.state.phase import Phase
from migration.state.state import BrokenOff, read_state
from migration.steps.verify import Verification
from store.consume_queue import DispatchRequest
from store.errors import DamagedQueueError
from tests.support.command_line import kvcq
from tests.support.migrating import (
    ALL_KEYS,
    LIGHT,
    WAIT_S,
    add_units,
    advance,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    migrator,
    open_store,
    side_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.tables import UnitColumns
    from migration.steps.verify import Verified
    from store.message_store import MessageStore


def test_a_verification_that_was_broken_off_is_told_until_one_ends(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.DOUBLE_WRITE)
    reached = threading.Event()

    def slow(_pace: Pace, job: Job, _lag: int) -> None:
        reached.set()
        job.pause(WAIT_S)

    with monkeypatch.context() as patched:
        patched.setattr(Pace, "after_batch", slow)
        job = live(store).verify(ALL_KEYS)
        assert reached.wait(WAIT_S)
        assert migrator(store).status().verify_broken_off == ""  # it runs
        state = read_state(root)
        assert state is not None
        assert state.broken_off == BrokenOff("the process ended")  # what a kill would leave
        job.cancel()
        assert job.wait(WAIT_S)
    assert migrator(store).status().verify_broken_off == "verify was cancelled"
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    assert differences(store) == []
    assert migrator(store).status().verify_broken_off == ""


@pytest.mark.parametrize("step", ["rollback", "finish"])
def test_a_step_that_ends_jobs_meets_a_verification_that_is_ending(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    advance(store, Phase.DOUBLE_WRITE if step == "rollback" else Phase.ROCKSDB)
    compared, cancelled = threading.Event(), threading.Event()
    run, cancel = Verification.run, Job.stop_soon

    def run_until_cancelled(self: Verification) -> Verified:
        found = run(self)
        compared.set()
        assert cancelled.wait(WAIT_S)
        return found

    def cancel_and_tell(self: Job) -> None:
        cancel(self)
        cancelled.set()

    monkeypatch.setattr(Verification, "run", run_until_cancelled)
    monkeypatch.setattr(Job, "stop_soon", cancel_and_tell)
    job = live(store).verify(ALL_KEYS)
    assert compared.wait(WAIT_S)
    taking = threading.Thread(target=getattr(live(store), step), daemon=True)
    taking.start()
    taking.join(WAIT_S)
    assert not taking.is_alive()
    assert job.view().state is JobState.CANCELLED
    assert live(store).state.phase is (Phase.FILES if step == "rollback" else Phase.FINISHED)
    assert live(store).state.verified is None or step == "finish"


def test_a_verification_of_a_state_that_changed_meanwhile_says_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.VERIFIED)
    run = Verification.run

    def change_before_the_end(self: Verification) -> Verified:
        found = run(self)
        live(store).cutover()
        return found

    monkeypatch.setattr(Verification, "run", change_before_the_end)
    before = live(store).state.verified
    job = live(store).verify(ALL_KEYS)
    assert job.wait(WAIT_S)
    assert "the state changed meanwhile" in job.view().error
    assert live(store).state.phase is Phase.ROCKSDB
    assert live(store).state.verified == before


@pytest.mark.damages
def test_planted_differences_are_reported_exactly(store: MessageStore) -> None:
    from kvcq.tables.keys import BOUNDS, max_key
    from kvcq.tables.values import pack_max
    from store.consume_queue import CqUnit
    from tests.support.rows import pack_unit

    done(live(store).start())
    side = side_of(store, SideName.ROCKSDB)
    engine = side.store._engine  # type: ignore[attr-defined]
    units = dict(side.store.read_units("orders", 0, 0, 100))
    wrong = CqUnit(units[3][0], units[3][1], 12345, units[3][3])
    extra = CqUnit(*units[70])
    high = store.bounds([("orders", 0)])[0].max_offset
    engine.write(
        KvBatch(
            deletes=[(UNITS, unit_key("orders", 0, 5)), (UNITS, unit_key(LIGHT, 0, 2))],
            puts={
                UNITS: [
                    (unit_key("orders", 0, 3), pack_unit(wrong)),
                    (unit_key("orders", 0, high), pack_unit(extra)),
                ],
                BOUNDS: [(max_key("orders", 0), pack_max(extra.physical_offset, high))],
            },
        )
    )
    found = {(d.topic, d.queue_id, d.queue_offset, d.place, d.side) for d in differences(store)}
    assert found == {
        ("orders", 0, 3, "tag_code", "rocksdb"),
        ("orders", 0, 5, "unit", "rocksdb"),
        (LIGHT, 0, 2, "unit", "rocksdb"),
        ("orders", 0, high, "unit", "rocksdb"),
    }
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    by_field = {d.place: d for d in live(store).differences if d.queue_offset == 3}
    assert by_field["tag_code"].expected == str(units[3][2])
    assert by_field["tag_code"].found == "12345"
    with pytest.raises(IllegalStepError, match="verification"):
        live(store).cutover()


@pytest.mark.damages
@pytest.mark.parametrize("name", list(SideName))
def test_a_unit_of_a_queue_that_the_log_does_not_have_is_reported(
    store: MessageStore, name: SideName
) -> None:
    done(live(store).start())
    side = side_of(store, name)
    # Its record is a message of another queue.
    at, size, tag_code, *_ = side.store.read_units("orders", 0, 3, 1)[0][1]
    request = DispatchRequest("nobody", 0, 0, at, size, tag_code, 0, (), (), in_queue=True)
    add_units(side.store, [request])
    found = differences(store)
    assert [(each.topic, each.queue_offset, each.side) for each in found] == [
        ("nobody", 0, name.value)
    ]
    assert (found[0].expected, found[0].place) == ("a record of this place", "unit")
    assert "queue 0 of 'orders', offset 3" in found[0].found


@pytest.mark.damages
def test_a_queue_that_a_side_lacks_is_reported_unit_by_unit_and_blames_nothing_else(
    store: MessageStore,
) -> None:
    done(live(store).start())
    side = side_of(store, SideName.ROCKSDB)
    high = store.bounds([("orders", 1)])[0].max_offset
    engine = side.store._engine  # type: ignore[attr-defined]
    start, end = unit_key("orders", 1, 0), unit_key("orders", 1, high)
    engine.write(KvBatch(delete_ranges=[(UNITS, start, end)]))
    found = differences(store)
    assert [(each.topic, each.queue_id, each.queue_offset) for each in found] == [
        ("orders", 1, offset) for offset in range(high)
    ]
    assert {(each.kind, each.found, each.side) for each in found} == {
        (Kind.MISSING_UNIT, "nothing", "rocksdb")
    }


def test_a_topic_that_is_deleted_meanwhile_is_no_difference(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    side = side_of(store, SideName.ROCKSDB)
    read = side.store.units_between
    reached: list[int] = []

    def delete_and_read(start: int, end: int) -> Iterator[UnitColumns]:
        if not reached:
            store.delete_topic("payments")
        reached.append(start)
        return read(start, end)

    monkeypatch.setattr(side.store, "units_between", delete_and_read)
    assert differences(store) == []
    assert len(reached) == 2  # the sums differed, and a closer look cleared that


def test_a_segment_that_expires_before_it_is_read_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root, reserved_hours=1e-6)) as store:
        store.put(messages(0, 300))
        for _ in range(3):
            store.put([message._replace(body=bytes(400_000)) for message in messages(300, 2)])
        done(live(store).start())
        store.flush()
        start, read = store.log.start_offset, LogFeed.read

        def expire_and_read(
            self: LogFeed, at: int, end: int, count: int
        ) -> tuple[list[DispatchRequest], int]:
            while not store._services.retention.run_once(now=True):
                pass  # it has expired after 3.6 ms
            monkeypatch.setattr(LogFeed, "read", read)
            return read(self, at, end, count)

        monkeypatch.setattr(LogFeed, "read", expire_and_read)
        assert differences(store) == []
        assert store.log.start_offset > start


@pytest.mark.parametrize("name", list(SideName))
def test_a_verification_that_breaks_off_takes_the_last_one_back(
    store: MessageStore,
    root: Path,
    name: SideName,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    advance(store, Phase.VERIFIED)
    side = side_of(store, name)

    def damaged(_start: int, _end: int) -> None:
        raise DamagedQueueError("orders", 0, 7, "the file is cut off")

    monkeypatch.setattr(side.store, "units_between", damaged)
    job = live(store).verify()
    assert job.wait(WAIT_S)
    assert job.view().state is JobState.FAILED
    assert job.view().error.startswith(f"the {name.value} side cannot be read: queue ")
    assert all(record.exc_info is None for record in caplog.records)
    with pytest.raises(IllegalStepError, match="verification"):
        live(store).cutover()
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.DOUBLE_WRITE
    assert state.verified is None
    assert "the file is cut off" in state.history[-1][1]
    monkeypatch.undo()
    assert differences(store) == []
    assert live(store).cutover().phase is Phase.ROCKSDB


def test_a_damaged_queue_file_ends_verify_with_the_remedy(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    queue = root / "consumequeue" / "orders" / "0"
    first = min(queue.iterdir())
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 20)
    ended = kvcq("migrate", "verify", str(root))
    assert ended.exit_code == 1, ended.output
    assert "Traceback" not in ended.output
    assert f"resume {root} --rebuild files" in " ".join(ended.output.split())
    refused = kvcq("migrate", "cutover", str(root))
    assert refused.exit_code == 1, refused.output
    again = kvcq("migrate", "resume", str(root), "--rebuild", "files")
    assert again.exit_code == 0, again.output
    for step in ("verify", "cutover"):
        taken = kvcq("migrate", step, str(root))
        assert taken.exit_code == 0, taken.output
