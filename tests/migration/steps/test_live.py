from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.tables.keys import UNITS, unit_key
from migration.errors import IllegalStepError
from migration.state import SideName
from migration.state.phase import Phase
from migration.state.state import read_state
from store.errors import StoreClosedError
from store.format.record import unpack_record
from tests.support.command_line import kvcq
from tests.support.migrating import (
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    migrator,
    open_store,
    settle,
    side_of,
    spoil_a_file_unit,
)

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def test_a_store_runs_on_files_alone(store: MessageStore, root: Path) -> None:
    assert check_messages(store, 600) == 600
    assert live(store)._opener.rocksdb().is_empty
    store.close()
    with open_store(config(root)) as again:
        assert check_messages(again, 600) == 600
        again.put(messages(600, 10))
        assert check_messages(again, 610) == 610


def test_all_the_way_and_back_nothing_is_lost_or_repeated(store: MessageStore, root: Path) -> None:
    put = 600
    job = live(store).start()
    done(job)
    assert job.view().percent == 100
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
    assert live(store)._opener.rocksdb().is_empty
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
            # Verifying is a guest beside it, and looks at each key.
            while not stop.wait(0.01):
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
    assert live(store).double.phase is Phase.VERIFIED
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
        while not store._services.retention.run_once(now=True):
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
        while not store._services.retention.run_once(now=True):
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


def test_what_to_type_next_on_a_directory_names_it(store: MessageStore, root: Path) -> None:
    store.close()
    before = kvcq("migrate", "plan", str(root))
    assert f"kvcq migrate start {root}" in " ".join(before.output.split())
    said = {}
    for step, following in (("start", "verify"), ("verify", "cutover"), ("cutover", "finish")):
        taken = kvcq("migrate", step, str(root), "--json")
        assert taken.exit_code == 0, taken.output
        said = json.loads(taken.stdout)
        assert said["nextCommand"] == f"kvcq migrate {following} {root}"
    assert "rollback" in said["hint"]
    illegal = kvcq("migrate", "start", str(root))
    assert illegal.exit_code == 1
    assert f"kvcq migrate finish {root}" in " ".join(illegal.output.split())


def test_no_step_gives_up_the_side_that_is_right(store: MessageStore, root: Path) -> None:
    advance(store, Phase.ROCKSDB)
    side = side_of(store, SideName.ROCKSDB)
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


def test_a_rollback_fills_files_with_what_came_in_since_they_were_given_up(
    store: MessageStore,
) -> None:
    done(live(store).start())
    advance(store, Phase.FINISHED)
    store.put(messages(600, 80))
    store.wait_visible()
    job = live(store).rollback()
    assert job is not None
    done(job)
    assert live(store).state.phase is Phase.ROCKSDB
    assert live(store).rollback() is None
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    assert check_messages(store, 680) == 680
    assert differences(store) == []


def test_the_database_is_looked_after_while_its_queues_are_in_files(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full disk, say, it takes writes again."""
    looks: list[RocksEngine] = []
    monkeypatch.setattr(RocksEngine, "settle", lambda engine: looks.append(engine))
    store.queues.maintain()
    assert looks
