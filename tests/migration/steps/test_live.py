from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from migration.errors import IllegalStepError, MigrationStateError
from migration.fill.catch_up import Filler
from migration.jobs import Job, JobState
from migration.migrator import rebuild_side
from migration.opening import open_store
from migration.sides.double import DoubleQueueStore
from migration.state.routes import SideName
from migration.state.routing import Route, RoutingPolicy, Rule, parse_rules
from migration.state.state import BrokenOff, Phase, read_state
from migration.steps.verify import Verification
from server.cli.main import main
from store.errors import DamagedQueueError, DiskFullError, StoreBusyError, StoreClosedError
from store.format.record import unpack_record
from tests.support.checked import checked
from tests.support.migrating import (
    ALL_KEYS,
    LIGHT,
    TOPICS,
    WAIT_S,
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    migrator,
    settle,
)
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.sides.side import SideStore
    from migration.state.state import MigrationState
    from migration.steps.verify import Verified
    from store.message_store import MessageStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_on_files(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, damaged: bool) -> Iterator[MessageStore]:
    """On files, with 600 messages."""
    with checked(open_store(config(root)), damaged=damaged) as opened:
        opened.put(messages(0, 600))
        yield opened


def test_a_store_runs_on_files_alone(store: MessageStore, root: Path) -> None:
    assert check_messages(store, 600) == 600
    assert not (root / "kvcq").exists()
    store.close()
    with open_store(config(root)) as again:
        assert check_messages(again, 600) == 600
        again.put(messages(600, 10))
        assert check_messages(again, 610) == 610


def test_all_the_way_and_back_nothing_is_lost_or_repeated(store: MessageStore, root: Path) -> None:
    put = 600
    job = live(store).start()
    done(job)
    assert job.status().percent == 100
    store.put(messages(put, 50))
    put += 50
    for phase in (Phase.VERIFIED, Phase.ROCKSDB, Phase.FINISHED):
        advance(store, phase)
        store.put(messages(put, 50))
        put += 50
        assert check_messages(store, put) == put
    assert not (root / "consumequeue").exists()
    assert not (root / "index").exists()
    for phase in (Phase.ROCKSDB, Phase.DOUBLE_WRITE, Phase.FILES):
        done(live(store).rollback())
        assert live(store).state.phase is phase
        assert check_messages(store, put) == put
        store.put(messages(put, 50))
        put += 50
        if phase is not Phase.FILES:
            assert differences(store) == []
    assert not (root / "kvcq").exists()
    store.close()
    with open_store(config(root)) as again:
        assert check_messages(again, put) == put


def test_messages_that_come_in_during_every_step_are_read_exactly_once(
    store: MessageStore,
) -> None:
    stop, ended = threading.Event(), threading.Event()
    put = [600]

    def produce() -> None:
        try:
            while not stop.wait(0.002):
                store.put(messages(put[0], 20))
                put[0] += 20
        finally:
            ended.set()

    read: list[int] = []

    def consume() -> None:
        at = 0
        while not ended.wait(0.002) or at < store.bounds([("orders", 0)])[0].max_offset:
            pulled = store.pull("orders", 0, at)
            read.extend(int(unpack_record(record).body) for record in pulled.records)
            at = pulled.next_offset

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(produce), pool.submit(consume)]
        try:
            done(live(store).start())
            assert differences(store) == []
            live(store).cutover()
            done(live(store).rollback())
            assert differences(store) == []
            live(store).cutover()
            live(store).finish()
            done(live(store).rollback())
            assert differences(store) == []
        finally:
            stop.set()
        for thread in threads:
            thread.result()
    assert check_messages(store, put[0]) == put[0]
    assert read == [number for number in range(put[0]) if number % 8 == 0]


def test_an_illegal_step_names_the_reason_and_the_next_command(store: MessageStore) -> None:
    with pytest.raises(IllegalStepError) as refused:
        live(store).cutover()
    assert refused.value.next_command == "kvcq migrate start"
    with pytest.raises(IllegalStepError, match="everything is in files"):
        live(store).rollback()
    with pytest.raises(IllegalStepError, match="reads come from files"):
        live(store).finish()
    done(live(store).start())
    with pytest.raises(IllegalStepError, match="verification") as refused:
        live(store).cutover()
    assert refused.value.next_command == "kvcq migrate verify"
    assert live(store).state.phase is Phase.DOUBLE_WRITE


def test_steps_that_are_done_may_be_repeated(store: MessageStore) -> None:
    done(live(store).start())
    done(live(store).start())
    advance(store, Phase.ROCKSDB)
    assert live(store).cutover().phase is Phase.ROCKSDB
    advance(store, Phase.FINISHED)
    assert live(store).finish().phase is Phase.FINISHED
    assert check_messages(store, 600) == 600


def test_cancelling_when_nothing_runs_says_so(store: MessageStore) -> None:
    with pytest.raises(IllegalStepError, match="no job runs: there is nothing to cancel"):
        live(store).cancel()
    job = live(store).start()
    done(job)
    with pytest.raises(IllegalStepError, match=f"job {job.job_id} has ended"):
        live(store).cancel(job.job_id)
    assert live(store).state.stopped == ""


def test_a_backfill_of_a_small_store_counts_its_rows(store: MessageStore) -> None:
    job = live(store).start()
    done(job)
    assert job.status().rows == 600


def test_a_verification_that_was_broken_off_is_told_until_one_ends(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.DOUBLE_WRITE)
    reached = threading.Event()

    def slow(self: Verification, _: object) -> None:
        reached.set()
        self._job.pause(WAIT_S)

    with monkeypatch.context() as patched:
        patched.setattr(Verification, "_compare", slow)
        job = live(store).verify(ALL_KEYS)
        assert reached.wait(WAIT_S)
        assert migrator(store).status().verify_broken_off == ""  # it runs
        state = read_state(root)
        assert state is not None
        assert state.broken_off == BrokenOff("the process ended")  # what a kill would leave
        live(store).cancel()
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
    run, cancel = Verification.run, Job.cancel

    def run_until_cancelled(self: Verification) -> Verified:
        found = run(self)
        compared.set()
        assert cancelled.wait(WAIT_S)
        return found

    def cancel_and_tell(self: Job) -> None:
        cancel(self)
        cancelled.set()

    monkeypatch.setattr(Verification, "run", run_until_cancelled)
    monkeypatch.setattr(Job, "cancel", cancel_and_tell)
    job = live(store).verify(ALL_KEYS)
    assert compared.wait(WAIT_S)
    taking = threading.Thread(target=getattr(live(store), step), daemon=True)
    taking.start()
    taking.join(WAIT_S)
    assert not taking.is_alive()
    assert job.status().state is JobState.CANCELLED
    assert live(store).state.phase is (Phase.FILES if step == "rollback" else Phase.FINISHED)
    assert live(store).state.verified is None or step == "finish"


def test_a_verification_of_routes_that_changed_meanwhile_says_nothing(
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
    assert "the routes changed meanwhile" in job.status().error
    assert live(store).state.phase is Phase.ROCKSDB
    assert live(store).state.verified == before


def test_no_job_begins_once_the_migration_is_closed(store: MessageStore) -> None:
    advance(store, Phase.DOUBLE_WRITE)
    live(store).close()
    with pytest.raises(StoreClosedError):
        live(store).verify()


def test_a_rollback_takes_the_verification_back_and_says_so(store: MessageStore) -> None:
    advance(store, Phase.ROCKSDB)
    done(live(store).rollback())
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    assert live(store).state.verified is None
    assert "the verification is invalidated" in live(store).state.history[-1][1]


def test_a_hybrid_keeps_no_directories_of_what_left_the_files(
    store: MessageStore, root: Path
) -> None:
    advance(store, Phase.ROCKSDB)
    (root / "consumequeue" / "idle" / "0").mkdir(parents=True)  # of a topic without messages
    (root / "consumequeue" / "bare").mkdir()
    done(live(store).set_routing(RoutingPolicy(parse_rules(["orders=files"]), Route.ROCKSDB)))
    live(store).finish()
    assert [each.name for each in (root / "consumequeue").iterdir()] == ["orders"]


def test_a_cancelled_backfill_goes_on_where_it_was(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migration.fill.catch_up.BATCH", 50)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 100)
    original = Filler._catch_up_once
    reached = threading.Event()

    def slow(self: Filler, *args: object) -> None:
        original(self, *args)  # type: ignore[arg-type]
        side = self._double.side(SideName.ROCKSDB)
        assert side is not None
        if side.store.dispatched_offset > 20_000:
            reached.set()
            self._job.pause(WAIT_S)

    monkeypatch.setattr(Filler, "_catch_up_once", slow)
    job = live(store).start()
    assert reached.wait(WAIT_S)
    live(store).cancel()
    assert job.wait(WAIT_S)
    assert job.status().state is JobState.CANCELLED
    assert "cancelled" in live(store).state.stopped
    live(store).look()
    assert live(store).filling is job  # nobody goes on by himself
    with pytest.raises(IllegalStepError, match="cancelled") as refused:
        live(store).verify()
    assert refused.value.next_command == "kvcq migrate resume"
    monkeypatch.setattr(Filler, "_catch_up_once", original)
    watermark = live(store).double.watermark(SideName.ROCKSDB)
    assert watermark is not None
    assert watermark > 20_000
    done(live(store).resume())
    assert differences(store) == []


def test_a_backfill_goes_on_after_reopening(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migration.fill.catch_up.BATCH", 50)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 100)
    monkeypatch.setattr("migration.sides.pair.JOIN_BYTES", 100)
    original = Filler._catch_up_once
    reached = threading.Event()

    def once(self: Filler, *args: object) -> None:
        original(self, *args)  # type: ignore[arg-type]
        reached.set()
        self._job.pause(WAIT_S)

    monkeypatch.setattr(Filler, "_catch_up_once", once)
    live(store).start()
    assert reached.wait(WAIT_S)
    store.close()
    monkeypatch.setattr(Filler, "_catch_up_once", original)
    with open_store(config(root)) as again:
        assert live(again).filling is not None
        settle(again)
        assert differences(again) == []
        assert check_messages(again, 600) == 600


def test_the_failure_of_the_other_side_stops_the_migration_and_not_the_store(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None

    def full(*_: object) -> None:
        raise DiskFullError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(side.store, "dispatch", full)
        store.put(messages(600, 40))
        store.wait_visible()
    assert "no space left" in live(store).state.stopped
    store.put(messages(640, 40))
    store.wait_visible()
    assert check_messages(store, 680) == 680
    with pytest.raises(IllegalStepError, match="no space left"):
        live(store).verify()
    done(live(store).resume())
    assert live(store).state.stopped == ""
    assert differences(store) == []
    store.put(messages(680, 40))
    store.wait_visible()
    assert differences(store) == []


def test_the_failure_of_files_after_the_cutover_stops_the_way_back_only(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.ROCKSDB)
    side = live(store).double.side(SideName.FILES)
    assert side is not None
    with monkeypatch.context() as patched:
        patched.setattr(side.store, "dispatch", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        store.put(messages(600, 40))
        store.wait_visible()
    with pytest.raises(IllegalStepError, match="gone"):
        live(store).rollback()
    done(live(store).resume())
    done(live(store).rollback())
    assert differences(store) == []
    assert check_messages(store, 640) == 640


def test_a_stopped_side_stays_out_after_reopening_until_resumed(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None
    with monkeypatch.context() as patched:
        patched.setattr(side.store, "dispatch", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        store.put(messages(600, 40))
        store.wait_visible()
    store.close()
    with open_store(config(root)) as again:
        again.put(messages(640, 40))
        again.wait_visible()
        again.delete_topic("payments")
        assert not live(again).double.is_joined(SideName.ROCKSDB)
        done(live(again).resume())
        assert differences(again) == []


def test_a_busy_side_is_left_behind_and_brought_up_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None

    def busy(*_: object) -> None:
        raise StoreBusyError("stalls")

    with monkeypatch.context() as patched:
        patched.setattr(side.store, "dispatch", busy)
        store.put(messages(600, 40))
        store.wait_visible()
        assert not side.joined
    assert live(store).state.stopped == ""
    live(store).look()
    settle(store)
    assert differences(store) == []


def test_a_disk_full_during_the_backfill_stops_it_and_resume_finishes_it(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvcq.consume_queue_store import KvConsumeQueueStore

    original = KvConsumeQueueStore.dispatch
    calls = [0]

    def full(self: KvConsumeQueueStore, *args: object) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise OSError(28, "No space left on device")
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr("migration.fill.catch_up.BATCH", 50)
    monkeypatch.setattr(KvConsumeQueueStore, "dispatch", full)
    job = live(store).start()
    assert job.wait(WAIT_S)
    assert job.status().state is JobState.FAILED
    assert "No space left" in live(store).state.stopped
    store.put(messages(600, 40))
    store.wait_visible()
    assert check_messages(store, 640) == 640
    done(live(store).resume())
    assert differences(store) == []


def test_a_disk_too_full_for_the_state_leaves_the_step_untaken(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.VERIFIED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("migration.state.keeper.write_state", full)
        with pytest.raises(OSError, match="No space"):
            live(store).cutover()
    assert live(store).state.phase is Phase.VERIFIED
    assert live(store).double.routes.phase is Phase.VERIFIED
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.VERIFIED
    assert live(store).cutover().phase is Phase.ROCKSDB
    assert check_messages(store, 600) == 600


def test_a_topic_deleted_in_the_middle_is_gone_on_both_sides_and_can_come_back(
    store: MessageStore, root: Path
) -> None:
    done(live(store).start())
    store.delete_topic("payments")
    assert differences(store) == []
    store.create_topics([("payments", 2)])
    store.put([message for message in messages(600, 80) if message.topic == "payments"])
    assert differences(store) == []
    store.close()
    with open_store(config(root)) as again:
        settle(again)
        assert differences(again) == []
        advance(again, Phase.ROCKSDB)
        assert again.bounds([("payments", 0)])[0] == (0, 10)


def test_queues_whose_messages_expired_go_on_at_their_offsets_on_the_new_side(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root, reserved_hours=1e-6)) as store:
        store.put([message._replace(topic="old") for message in messages(0, 300)])
        # Fill the segment, so that the old topic is only in the first one.
        for _ in range(3):
            store.put([message._replace(body=bytes(400_000)) for message in messages(0, 2)])
        store.flush()
        while not store.retention.run_once(now=True):
            pass  # it has expired after 3.6 ms
        low, high = store.bounds([("old", 0)])[0]
        assert low == high > 0
        done(live(store).start())
        assert differences(store) == []
        live(store).cutover()
        assert store.bounds([("old", 0)])[0] == (low, high)
        live(store).finish()
        done(live(store).rollback())
        done(live(store).rollback())
        assert store.bounds([("old", 0)])[0] == (low, high)
        placed = store.put([messages(0, 1)[0]._replace(topic="old")]).placed
        assert placed[0].queue_offset == high


def test_queues_that_ended_before_the_take_over_outlive_the_loss_of_the_database(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root, reserved_hours=1e-6)) as store:
        store.put([message._replace(topic="old") for message in messages(0, 300)])
        for _ in range(3):
            store.put([message._replace(body=bytes(400_000)) for message in messages(0, 2)])
        store.flush()
        store.retention._before_drop = lambda _start, _end: None  # RocketMQ keeps no ends
        while not store.retention.run_once(now=True):
            pass  # it has expired after 3.6 ms
        low, high = store.bounds([("old", 0)])[0]
        assert low == high > 0
    with open_store(config(root)) as store:
        done(live(store).start())
        assert differences(store) == []
        live(store).cutover()
        live(store).finish()
    shutil.rmtree(root / "kvcq")
    with open_store(config(root)) as store:
        assert store.bounds([("old", 0)])[0] == (low, high)


@pytest.mark.damages
def test_planted_differences_are_reported_exactly(store: MessageStore) -> None:
    from kvcq.tables.keys import BOUNDS, max_key
    from kvcq.tables.values import pack_max, pack_unit
    from store.consume_queue import CqUnit

    done(live(store).start())
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None
    engine = side.store._engine  # type: ignore[attr-defined]
    units = dict(side.store.stored_units("orders", 0, 0, 100))
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
    found = {(d.topic, d.queue_id, d.queue_offset, d.field, d.side) for d in differences(store)}
    assert found == {
        ("orders", 0, 3, "tag_code", "rocksdb"),
        ("orders", 0, 5, "unit", "rocksdb"),
        (LIGHT, 0, 2, "unit", "rocksdb"),
        ("orders", 0, high, "unit", "rocksdb"),
    }
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    by_field = {d.field: d for d in live(store).differences if d.queue_offset == 3}
    assert by_field["tag_code"].in_log == str(units[3][2])
    assert by_field["tag_code"].in_side == "12345"
    with pytest.raises(IllegalStepError, match="verification"):
        live(store).cutover()


@pytest.mark.parametrize("name", list(SideName))
def test_a_verification_that_breaks_off_takes_the_last_one_back(
    store: MessageStore,
    root: Path,
    name: SideName,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    advance(store, Phase.VERIFIED)
    side = live(store).double.side(name)
    assert side is not None

    def damaged(topic: str, queue_id: int, _start: int, _count: int) -> None:
        raise DamagedQueueError(topic, queue_id, 7, "the file is cut off")

    monkeypatch.setattr(side.store, "stored_units", damaged)
    job = live(store).verify()
    assert job.wait(WAIT_S)
    assert job.status().state is JobState.FAILED
    assert job.status().error.startswith(f"the {name.value} side cannot be read: queue ")
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
    ended = CliRunner().invoke(main, ["migrate", "verify", str(root)])
    assert ended.exit_code == 1, ended.output
    assert "Traceback" not in ended.output
    assert f"resume {root} --rebuild files" in " ".join(ended.output.split())
    refused = CliRunner().invoke(main, ["migrate", "cutover", str(root)])
    assert refused.exit_code == 1, refused.output
    again = CliRunner().invoke(main, ["migrate", "resume", str(root), "--rebuild", "files"])
    assert again.exit_code == 0, again.output
    for step in ("verify", "cutover"):
        taken = CliRunner().invoke(main, ["migrate", step, str(root)])
        assert taken.exit_code == 0, taken.output


def test_a_side_made_anew_by_resume_takes_a_verification_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.VERIFIED)
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None
    live(store).double.stop_side(side, DamagedQueueError("orders", 0, 7, "a row is wrong"))
    opener = live(store)._opener
    opening = opener.open

    def anew(name: SideName, state: MigrationState) -> SideStore:
        opener.remove(name)
        return opening(name, state)

    monkeypatch.setattr(opener, "open", anew)
    assert live(store).resume() is not None
    settle(store)
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    with pytest.raises(IllegalStepError, match="verification"):
        live(store).cutover()
    assert differences(store) == []


def test_what_to_type_next_on_a_directory_names_it(store: MessageStore, root: Path) -> None:
    store.close()
    before = CliRunner().invoke(main, ["migrate", "plan", str(root)])
    assert f"kvcq migrate start {root}" in " ".join(before.output.split())
    said = {}
    for step, following in (("start", "verify"), ("verify", "cutover"), ("cutover", "finish")):
        taken = CliRunner().invoke(main, ["migrate", step, str(root), "--json"])
        assert taken.exit_code == 0, taken.output
        said = json.loads(taken.stdout)
        assert said["nextCommand"] == f"kvcq migrate {following} {root}"
    assert "rollback" in said["hint"]
    illegal = CliRunner().invoke(main, ["migrate", "start", str(root)])
    assert illegal.exit_code == 1
    assert f"kvcq migrate finish {root}" in " ".join(illegal.output.split())


@pytest.mark.parametrize("name", list(SideName))
def test_a_side_made_anew_takes_a_verification_back(
    store: MessageStore, root: Path, name: SideName
) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    shutil.rmtree(root / ("consumequeue" if name is SideName.FILES else "kvcq"))
    rebuild_side(root, name)
    with open_store(config(root)) as again:
        settle(again)
        assert live(again).state.phase is Phase.DOUBLE_WRITE
        assert live(again).state.verified is None
        with pytest.raises(IllegalStepError, match="verification"):
            live(again).cutover()
        assert differences(again) == []


@pytest.mark.parametrize("name", list(SideName))
@pytest.mark.parametrize("phase", [Phase.DOUBLE_WRITE, Phase.VERIFIED, Phase.ROCKSDB])
def test_a_side_that_nothing_proved_wrong_is_not_made_again(
    store: MessageStore, root: Path, phase: Phase, name: SideName
) -> None:
    advance(store, phase)
    store.close()
    before = tree_digest(root)
    refused = CliRunner().invoke(main, ["migrate", "resume", str(root), "--rebuild", name.value])
    assert refused.exit_code == 1
    assert "no verification has found" in " ".join(refused.output.split())
    assert f"kvcq migrate verify {root}" in " ".join(refused.output.split())
    assert tree_digest(root) == before


def test_only_the_side_that_differs_is_made_again_and_only_once(
    store: MessageStore, root: Path
) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    spoil_a_file_unit(root)
    assert CliRunner().invoke(main, ["migrate", "verify", str(root)]).exit_code == 1
    resume = ["migrate", "resume", str(root), "--rebuild"]
    assert CliRunner().invoke(main, [*resume, "rocksdb"]).exit_code == 1
    assert CliRunner().invoke(main, [*resume, "files"]).exit_code == 0
    assert CliRunner().invoke(main, [*resume, "files"]).exit_code == 1
    assert CliRunner().invoke(main, ["migrate", "verify", str(root)]).exit_code == 0


def test_rocksdb_is_made_again_when_a_check_finds_it_wrong(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None
    engine = side.store._engine  # type: ignore[attr-defined]
    engine.write(KvBatch(deletes=[(UNITS, unit_key("orders", 0, 3))]))
    store.close()
    rebuild_side(root, SideName.ROCKSDB)
    with open_store(config(root)) as again:
        settle(again)
        assert differences(again) == []


def test_no_step_gives_up_the_side_that_is_right(store: MessageStore, root: Path) -> None:
    advance(store, Phase.ROCKSDB)
    side = live(store).double.side(SideName.ROCKSDB)
    assert side is not None
    engine = side.store._engine  # type: ignore[attr-defined]
    units = engine.get(UNITS, unit_key("orders", 0, 3))
    engine.write(KvBatch(deletes=[(UNITS, unit_key("orders", 0, 3))]))
    assert {each.side for each in differences(store)} == {"rocksdb"}
    with pytest.raises(IllegalStepError, match="RocksDB differs from the log") as refused:
        live(store).finish()
    assert refused.value.next_command is None  # the service has to be stopped for it
    assert refused.value.next_step.command(root) == f"kvcq migrate resume {root} --rebuild rocksdb"
    engine.write(KvBatch(puts={UNITS: [(unit_key("orders", 0, 3), units)]}))
    store.close()
    spoil_a_file_unit(root)
    with open_store(config(root)) as again:
        assert {each.side for each in differences(again)} == {"files"}
        with pytest.raises(IllegalStepError, match="the files differ from the log"):
            live(again).rollback()
        live(again).finish()
        assert migrator(again).status().next_step.command(root) is None


def spoil_a_file_unit(root: Path) -> None:
    first = min((root / "consumequeue" / "orders" / "0").iterdir())
    with first.open("r+b") as file:
        file.seek(3 * 20 + 12)
        file.write(b"\1" * 8)  # its tag code


# --- routing -----------------------------------------------------------------------------------

HYBRID = RoutingPolicy((Rule("audit-*", Route.FILES), Rule(LIGHT, Route.FILES)), Route.ROCKSDB)


def names_on(store: MessageStore, name: SideName) -> set[str]:
    side = live(store).double.side(name)
    return set() if side is None else {last[0] for last in side.store.last_units()}


def test_a_hybrid_is_a_state_to_stay_in(store: MessageStore, root: Path) -> None:
    done(live(store).start(HYBRID))
    assert names_on(store, SideName.ROCKSDB) == {"orders", "payments"}
    advance(store, Phase.FINISHED)
    store.put(messages(600, 80))
    store.wait_visible()
    assert names_on(store, SideName.FILES) == {"audit-eu", "audit-us", LIGHT}
    assert names_on(store, SideName.ROCKSDB) == {"orders", "payments"}
    assert check_messages(store, 680) == 680
    assert differences(store) == []
    assert store.list_light_queues("", None, 10) == [LIGHT]
    store.close()
    with open_store(config(root)) as again:
        assert check_messages(again, 680) == 680
        again.put(messages(680, 80))
        again.wait_visible()
        assert check_messages(again, 760) == 760
        again.delete_topic("audit-us")
        assert names_on(again, SideName.FILES) == {"audit-eu", LIGHT}


def test_routing_changes_while_messages_come_in(store: MessageStore) -> None:
    advance(store, Phase.ROCKSDB)
    put = 600
    policies = [
        HYBRID,
        RoutingPolicy((Rule("orders", Route.FILES),), Route.BOTH),
        RoutingPolicy((), Route.ROCKSDB),
        RoutingPolicy((Rule("*", Route.FILES),), Route.BOTH),
        RoutingPolicy(),
    ]
    stop = threading.Event()
    counter = [put]

    def produce() -> None:
        while not stop.wait(0.02):
            store.put(messages(counter[0], 20))
            counter[0] += 20

    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(produce)
        try:
            for policy in policies:
                done(live(store).set_routing(policy))
                assert live(store).state.routing == policy
                assert live(store).state.pending is None
                assert differences(store) == []
        finally:
            stop.set()
        thread.result()
    assert check_messages(store, counter[0]) == counter[0]
    done(live(store).rollback())
    assert differences(store) == []
    assert check_messages(store, counter[0]) == counter[0]


def test_a_rollback_fills_files_with_what_was_in_rocksdb_alone(store: MessageStore) -> None:
    done(live(store).start())
    advance(store, Phase.ROCKSDB)
    done(live(store).set_routing(RoutingPolicy((), Route.ROCKSDB)))
    store.put(messages(600, 80))
    store.wait_visible()
    job = live(store).rollback()
    assert job is not None
    done(job)
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    assert check_messages(store, 680) == 680
    assert differences(store) == []


def test_a_change_of_routing_takes_a_verification_back(store: MessageStore) -> None:
    advance(store, Phase.VERIFIED)
    done(live(store).set_routing(RoutingPolicy((Rule("orders", Route.FILES),), Route.BOTH)))
    assert live(store).state.phase is Phase.DOUBLE_WRITE


# --- opening -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "directory"), [(Phase.FILES, "consumequeue"), (Phase.ROCKSDB, "kvcq")]
)
def test_a_missing_side_that_serves_messages_is_refused(
    store: MessageStore, root: Path, phase: Phase, directory: str
) -> None:
    advance(store, phase)
    store.close()
    (root / directory).rename(root / "elsewhere")
    with pytest.raises(MigrationStateError, match="is missing") as refused:
        open_store(config(root))
    assert "--rebuild" in str(refused.value)
    (root / "elsewhere").rename(root / directory)
    with open_store(config(root)) as again:
        assert check_messages(again, 600) == 600


def test_the_other_side_may_be_missing_and_is_made_anew(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    (root / "kvcq").rename(root / "elsewhere")
    with open_store(config(root)) as again:
        assert live(again).state.phase is Phase.DOUBLE_WRITE
        settle(again)
        assert differences(again) == []


def test_a_store_that_never_had_a_migration_stands_in_rocksdb_alone(tmp_path: Path) -> None:
    with open_store(config(tmp_path / "store")) as store:
        assert not isinstance(store.queues, DoubleQueueStore)
        assert not (tmp_path / "store" / "migration.json").exists()


def test_all_topics_are_listed_in_a_hybrid(store: MessageStore) -> None:
    done(live(store).start(HYBRID))
    advance(store, Phase.FINISHED)
    double = live(store).double
    assert double.list_names("o", None, 10) == ["orders"]
    assert double.list_names("audit", None, 10) == ["audit-eu", "audit-us"]
    assert double.list_names("audit", "audit-eu", 10) == ["audit-us"]
    assert {name.name for name in store.list_topics("", None, 10)} == set(TOPICS)
