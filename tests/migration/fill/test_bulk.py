"""History through sorted files, made by another process or handed over: same rows, any fault."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq.tables.keys import BOUNDS, INDEX, UNITS
from migration.columnar.liveness import Liveness, liveness_of
from migration.fill import bulk as bulk_backfill
from migration.state import SideName
from store.errors import InvalidArgumentError
from store.message import Message
from store.state import STATE_TOPIC
from tests.support.checked import checked
from tests.support.migrating import (
    LIGHT,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
    side_of,
    sorter,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.columnar import BulkPlan
    from store.message_store import MessageStore

FIRST, LAST = b"", b"\xff" * 8


@pytest.fixture
def store(tmp_path: Path, damaged: bool) -> Iterator[MessageStore]:
    """On files, with 3000 messages."""
    root = tmp_path / "store"
    make_on_files(root)
    with checked(open_store(config(root)), damaged=damaged) as opened:
        for first in range(0, 3000, 1000):
            opened.put(messages(first, 1000))
        opened.delete_topic("audit-us")
        opened.flush()
        yield opened


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces small enough that there are several."""
    monkeypatch.setattr(bulk_backfill, "LEAST_BYTES", 20_000)
    monkeypatch.setattr(bulk_backfill, "_PIECE_BYTES", 100_000)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 1000)


def rows_of(store: MessageStore) -> dict[str, list[tuple[bytes, bytes]]]:
    side = side_of(store, SideName.ROCKSDB)
    engine = side.store._engine  # type: ignore[attr-defined]
    return {family: engine.scan(family, FIRST, LAST) for family in (UNITS, BOUNDS, INDEX)}


def test_it_writes_the_rows_that_dispatch_writes(store: MessageStore, small: None) -> None:
    job = live(store).start()
    done(job)
    assert job.view().numbers["rows"] > 0
    made = rows_of(store)
    done(live(store).rollback())
    bulk_backfill.LEAST_BYTES = 1 << 40  # restored with the fixture
    done(live(store).start())
    again = rows_of(store)
    for family, rows in again.items():
        assert set(rows) ^ set(made[family]) == set(), family
    assert again == made
    assert differences(store) == []
    assert not (store.config.root / "kvcq.bulk").exists()


def test_without_the_process_the_backfill_goes_on(
    store: MessageStore, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = subprocess.Popen

    def broken(_: object, **settings: object) -> subprocess.Popen[bytes]:
        return original(["false"], **settings)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", broken)
    done(live(store).start())
    assert differences(store) == []


def test_the_process_finds_a_store_that_is_named_by_a_relative_path(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path("store")
    make_on_files(root)
    with open_store(config(root)) as opened:
        opened.put(messages(0, 3000))
        opened.flush()
        done(live(opened).start())
        assert differences(opened) == []
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_process_is_heard_above_descriptor_1023(store: MessageStore, small: None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if hard not in (-1, resource.RLIM_INFINITY) and hard < wanted:
        pytest.skip(f"no more than {hard} descriptors are allowed here")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    opened: list[int] = []
    try:
        opened += (os.open(os.devnull, os.O_RDONLY) for _ in range(2000))
        job = live(store).start()
        done(job)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert job.view().numbers["rows"] > 0
    assert differences(store) == []


def test_files_made_before_a_deletion_are_rid_of_what_ended(
    store: MessageStore, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bulk_backfill.BulkBackfill._take_in
    calls = [0]

    def delete_first(self: bulk_backfill.BulkBackfill, *args: object) -> None:
        calls[0] += 1
        if calls[0] == 2:
            store.delete_topics(["payments", LIGHT])
        original(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(bulk_backfill.BulkBackfill, "_take_in", delete_first)
    done(live(store).start())
    assert calls[0] > 2
    assert differences(store) == []
    side = side_of(store, SideName.ROCKSDB)
    assert not {"payments", LIGHT} & {last[0] for last in side.store.last_units()}


def test_topics_made_while_the_process_works_are_not_left_out(
    store: MessageStore, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bulk_backfill.BulkBackfill._plan
    made: list[str] = []

    def made_meanwhile(self: bulk_backfill.BulkBackfill, start: int, lives: Liveness) -> BulkPlan:
        found = plan(self, start, lives)
        if len(made) < 3:
            made.append(f"made-{len(made)}")
            store.put([Message(made[-1], b"x" * 100) for _ in range(50)])
            store.flush()
        return found

    monkeypatch.setattr(bulk_backfill.BulkBackfill, "_plan", made_meanwhile)
    done(live(store).start())
    assert made
    assert differences(store) == []


def test_a_tail_without_a_row_is_passed(
    store: MessageStore, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a topic that was deleted: more of it than a piece has."""
    monkeypatch.setattr(bulk_backfill, "_PIECE_BYTES", 60_000)
    store.put([Message("gone", b"x" * 1000) for _ in range(300)])
    store.delete_topic("gone")
    store.flush()
    done(live(store).start())
    assert differences(store) == []


def test_deleted_topics_and_light_queues_are_respected(store: MessageStore, tmp_path: Path) -> None:
    store.delete_topic(LIGHT)
    store.delete_topic("orders")
    living = Liveness({"payments": 0, STATE_TOPIC: 0}, {LIGHT: store.log.appended_offset})
    worker = sorter(store.config.root, tmp_path, living)
    answer = worker.make(store.log.appended_offset)
    assert answer["end"] == store.log.appended_offset
    done(live(store).start())
    before = rows_of(store)
    names = {key[5 : 5 + int.from_bytes(key[:4], "big")] for key, _ in before[UNITS]}
    assert names == {b"payments", b"audit-eu", STATE_TOPIC.encode()}
    assert differences(store) == []


@pytest.fixture
def lagging(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> MessageStore:
    """A store whose RocksDB side has nothing, and whose backfill was stopped."""
    monkeypatch.setattr(
        "migration.fill.catch_up.Filler.catch_up",
        lambda *_: (_ for _ in ()).throw(OSError("later")),
    )
    job = live(store).start()
    assert job.wait(60)
    monkeypatch.undo()
    return store


def lives(store: MessageStore) -> Liveness:
    return liveness_of(store.tables, store.applier.endings())


def sorted_files(store: MessageStore, directory: Path, end: int) -> dict[str, list[Path]]:
    directory.mkdir()
    sorter(store.config.root, directory, lives(store)).make(end)
    return {family: sorted(directory.glob(f"{family}-*.sst")) for family in (UNITS, BOUNDS, INDEX)}


def test_handed_over_files_move_the_watermark_forward_and_only_so(
    lagging: MessageStore, tmp_path: Path
) -> None:
    store = lagging
    end = store.flushed_offset
    files = sorted_files(store, tmp_path / "sst", end)
    with pytest.raises(InvalidArgumentError, match="begin"):
        live(store).ingest(files, end, start_offset=end - 1)
    with pytest.raises(InvalidArgumentError, match="durable"):
        live(store).ingest(files, end + 1)
    with pytest.raises(InvalidArgumentError, match="not a file"):
        live(store).ingest({UNITS: [tmp_path / "missing"]}, end)
    assert live(store).double.watermark(SideName.ROCKSDB) == 0
    assert live(store).ingest(files, end)
    assert live(store).double.watermark(SideName.ROCKSDB) == end
    assert not live(store).ingest(files, end)
    done(live(store).resume())
    assert differences(store) == []
    assert not live(store).ingest(files, end)
    live(store).cutover()
    store.put([message for message in messages(3000, 40) if message.topic != "audit-us"])
    assert differences(store) == []


def test_a_store_killed_in_the_middle_of_taking_files_in_goes_on(
    lagging: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lagging
    end = store.flushed_offset
    files = sorted_files(store, tmp_path / "sst", end)
    side = side_of(store, SideName.ROCKSDB)
    engine = side.store._engine  # type: ignore[attr-defined]
    original = engine.ingest
    done_families: list[str] = []

    def die(family: str, *args: object, **settings: object) -> None:
        if done_families:
            raise OSError("killed here")
        done_families.append(family)
        original(family, *args, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(engine, "ingest", die)
        with pytest.raises(OSError, match="killed"):
            live(store).ingest(files, end)
    root = store.config.root
    store.close()
    with open_store(config(root)) as again:
        assert live(again).double.watermark(SideName.ROCKSDB) == 0
        done(live(again).resume())
        assert differences(again) == []


@pytest.mark.slow
def test_messages_are_all_there_after_a_bulk_backfill_with_traffic(
    tmp_path: Path, small: None
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        for first in range(0, 6000, 1000):
            store.put(messages(first, 1000))
        store.flush()
        job = live(store).start()
        put = 6000
        while job.is_running and put < 20_000:
            store.put(messages(put, 20))
            if not put % 100:  # a topic that the process does not know
                store.put([Message(f"made-{put}", b"x"), Message("made", b"x")])
            put += 20
        done(job)
        assert differences(store) == []
        live(store).cutover()
        assert check_messages(store, put) == put


def test_producers_are_held_back_only_while_what_is_left_does_not_shrink(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("migration.fill.bulk.time.monotonic", lambda: now_s[0])
    double = live(store).double
    trend = bulk_backfill.Trend(double)
    for left, brake in ((100, 0.0), (80, 0.0), (79, 0.2), (90, 0.4), (40, 0.4), (39, 0.6)):
        trend.look(left)
        assert double.brake == pytest.approx(brake)
        now_s[0] += 4.0
    for _ in range(5):
        trend.look(39)
        now_s[0] += 4.0
    assert double.brake == pytest.approx(0.8)
    double.brake = 0.0


def test_a_brake_lets_go_when_the_backfill_ends(store: MessageStore, small: None) -> None:
    live(store).double.brake = 0.5
    done(live(store).start())
    assert live(store).double.brake == 0.0
    store.put(messages(3000, 20))
