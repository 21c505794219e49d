from __future__ import annotations

import errno
import shutil
import threading
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.errors import EngineBusyError
from migration.errors import IllegalStepError
from migration.fill.pace import Pace
from migration.jobs import Job, JobState
from migration.sides import DoubleQueueStore
from migration.state import SideName
from migration.state.phase import Phase
from store.errors import DiskFullError, StoreBusyError
from store.message import Message
from tests.support.migrating import (
    WAIT_S,
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
    settle,
    side_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.consume_queue import LastUnit
    from store.message_store import MessageStore


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill of a small store takes many steps."""
    monkeypatch.setattr("migration.fill.catch_up.BATCH", 50)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 100)


def test_a_backfill_of_a_small_store_counts_its_rows(store: MessageStore) -> None:
    store.wait_visible()
    job = live(store).start()
    done(job)
    assert job.view().numbers["rows"] == 601  # and the record that made the topics


@pytest.mark.usefixtures("small_batches")
def test_a_cancelled_backfill_goes_on_where_it_was(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = threading.Event()

    def slow(_pace: Pace, job: Job, _lag: int) -> None:
        if (live(store).double.watermark(SideName.ROCKSDB) or 0) > 20_000:
            reached.set()
            job.pause(WAIT_S)

    with monkeypatch.context() as patched:
        patched.setattr(Pace, "after_batch", slow)
        job = live(store).start()
        assert reached.wait(WAIT_S)
        job.cancel()
        assert job.wait(WAIT_S)
    assert job.view().state is JobState.CANCELLED
    assert "cancelled" in live(store).state.stopped
    live(store).look()
    assert live(store).filling is job  # nobody goes on by himself
    with pytest.raises(IllegalStepError, match="cancelled") as refused:
        live(store).verify()
    assert refused.value.next_command == "kvcq migrate resume"
    watermark = live(store).double.watermark(SideName.ROCKSDB)
    assert watermark is not None
    assert watermark > 20_000
    done(live(store).resume())
    assert differences(store) == []


@pytest.mark.usefixtures("small_batches")
def test_a_backfill_goes_on_if_the_step_that_ended_it_fails(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = threading.Event()

    def once(_pace: Pace, job: Job, _lag: int) -> None:
        reached.set()
        job.pause(WAIT_S)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Pace, "after_batch", once)
        job = live(store).start()
        assert reached.wait(WAIT_S)
        patched.setattr("migration.state.keeper.write_state", full)
        with pytest.raises(OSError, match="no space left"):
            live(store).rollback()
    assert job.view().state is JobState.CANCELLED
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    live(store).look()
    assert live(store).filling is not job
    settle(store)
    assert differences(store) == []


@pytest.mark.usefixtures("small_batches")
def test_a_backfill_goes_on_after_reopening(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migration.sides.pair.JOIN_BYTES", 100)
    reached = threading.Event()

    def once(_pace: Pace, job: Job, _lag: int) -> None:
        reached.set()
        job.pause(WAIT_S)

    with monkeypatch.context() as patched:
        patched.setattr(Pace, "after_batch", once)
        live(store).start()
        assert reached.wait(WAIT_S)
        store.close()
    with open_store(config(root)) as again:
        assert live(again).filling is not None
        settle(again)
        assert differences(again) == []
        assert check_messages(again, 600) == 600


def test_the_failure_of_the_other_side_stops_the_migration_and_not_the_store(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    side = side_of(store, SideName.ROCKSDB)

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


def test_a_side_that_cannot_be_opened_again_stays_the_side_that_failed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(live(store).start())
    double = live(store).double
    side = side_of(store, SideName.ROCKSDB)
    double.stop_side(side, RuntimeError("broken"))

    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    for attempt in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(live(store).on.opener, "open", no_descriptor)
            with pytest.raises(OSError, match="Too many"):
                live(store).resume()
        store.put(messages(600, 10))
        store.statistics()
        store.expire()
        topic = f"gone-{attempt}"
        store.put([Message(topic, b"1")])
        store.delete_topic(topic)  # which the side hears of when it is back
        with pytest.raises(IllegalStepError, match="broken"):
            live(store).verify()
    done(live(store).resume())
    assert double.is_joined(SideName.ROCKSDB)
    assert differences(store) == []


def test_files_that_cannot_be_made_on_the_way_back_are_made_by_resume(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.FINISHED)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(live(store).on.opener, "files", full)
        with pytest.raises(OSError, match="No space"):
            live(store).rollback()
        live(store).look()  # does not try again by itself
        assert "No space" in live(store).state.stopped
    done(live(store).resume())
    assert live(store).state.phase is Phase.ROCKSDB
    assert live(store).state.stopped == ""
    assert differences(store) == []


def _before_the_change(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """It happens once, when all is filled and the phase is about to change."""
    change_phase = DoubleQueueStore.change_phase
    left = [happens]

    def change_after(double: DoubleQueueStore, change: Callable[[], Phase]) -> None:
        if left:
            left.pop()()
        change_phase(double, change)

    monkeypatch.setattr(DoubleQueueStore, "change_phase", change_after)


def test_a_change_of_phase_ends_when_the_side_it_needs_failed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.FINISHED)
    double = live(store).double
    _before_the_change(
        monkeypatch,
        lambda: double.stop_side(side_of(store, SideName.FILES), OSError("broken")),
    )
    job = live(store).rollback()
    assert job is not None
    assert job.wait(WAIT_S)
    assert str(job.error) == "the files side failed: broken"
    assert "broken" in live(store).state.stopped
    done(live(store).resume())
    assert double.is_joined(SideName.FILES)
    assert differences(store) == []


def test_a_change_of_phase_brings_up_a_side_that_lags_meanwhile(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.FINISHED)
    double = live(store).double

    def stalled(*_: object) -> None:
        raise StoreBusyError("too many open files")

    def lag() -> None:
        side = side_of(store, SideName.FILES)
        with monkeypatch.context() as patched:
            patched.setattr(side.store, "dispatch", stalled)
            store.put(messages(600, 40))
            store.wait_visible()
        assert not side.joined

    _before_the_change(monkeypatch, lag)
    done(live(store).rollback())
    assert double.is_joined(SideName.FILES)
    assert differences(store) == []
    assert check_messages(store, 640) == 640


def test_a_side_that_is_rebuilt_with_its_rows_is_told_of_deletions(
    store: MessageStore, root: Path
) -> None:
    advance(store, Phase.ROCKSDB)
    double = live(store).double
    side = side_of(store, SideName.FILES)
    double.stop_side(side, RuntimeError("broken"))
    store.delete_topic("orders")
    for path in (root / "index").iterdir():
        path.unlink()  # so the log is read from its start, for the keys
    done(live(store).resume())
    side = side_of(store, SideName.FILES)
    assert "orders" not in side.store.names()
    store.create_topics([("orders", 4)])
    store.put([Message("orders", b"anew", 0)])
    store.wait_visible()
    assert side.failure is None
    assert differences(store) == []


def test_files_that_were_filled_outlive_a_kill(
    store: MessageStore, root: Path, tmp_path: Path
) -> None:
    advance(store, Phase.FINISHED)
    store.flush()
    done(live(store).rollback())
    killed = tmp_path / "killed"
    shutil.copytree(root, killed)  # what is in memory alone is not there
    with open_store(config(killed)) as again:
        assert check_messages(again, 600) == 600
        assert differences(again) == []


def test_a_stall_at_the_beginning_of_a_backfill_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_on_files(tmp_path / "store")
    stalls = 3
    restore = KvConsumeQueueStore.restore_last_units

    def stalled(queues: KvConsumeQueueStore, units: list[LastUnit]) -> None:
        nonlocal stalls
        if stalls:
            stalls -= 1
            raise EngineBusyError("RocksDB stalls writes")
        restore(queues, units)

    with open_store(config(tmp_path / "store", reserved_hours=1e-6)) as store:
        store.put(messages(0, 100))
        store.put([Message("orders", b"z" * 30_000, 1) for _ in range(60)])
        store.flush()
        end_s = monotonic() + WAIT_S
        while not store.expire():  # a few milliseconds old, by the machine's clock
            assert monotonic() < end_s
        monkeypatch.setattr(KvConsumeQueueStore, "restore_last_units", stalled)
        done(live(store).start())
        assert stalls == 0
        assert live(store).double.is_joined(SideName.ROCKSDB)
        assert differences(store) == []


def test_the_failure_of_files_after_the_cutover_stops_the_way_back_only(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.ROCKSDB)
    side = side_of(store, SideName.FILES)
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
    side = side_of(store, SideName.ROCKSDB)
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
    side = side_of(store, SideName.ROCKSDB)

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
    assert job.view().state is JobState.FAILED
    assert "No space left" in live(store).state.stopped
    store.put(messages(600, 40))
    store.wait_visible()
    assert check_messages(store, 640) == 640
    done(live(store).resume())
    assert differences(store) == []
