"""P14: a disk that is really full: refused, told once, readable, and over without a restart."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineBusyError, EngineFailedError, EngineFullError, EngineUnavailableError
from migration.check import check_store
from store.config import FlushMode
from store.errors import DiskFullError, StoreFailedError
from store.format.record import unpack_record
from store.message import Message
from tests.support.command_line import run_here
from tests.support.engines import ALL
from tests.support.fake_clock import FakeClock
from tests.support.server_process import ServerProcess
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

#: RocksDB looks for room every five seconds.
TRIES = 300
PAUSE_S = 0.1
MANY = 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


def in_time(call: Callable[[], object]) -> None:
    """Call until the disk is not full any more: RocksDB's own threads are waited for."""
    pause = threading.Event()
    for _ in range(TRIES):
        try:
            call()
        except DiskFullError:
            pause.wait(PAUSE_S)
        else:
            return
    pytest.fail("the disk is full for ever")


def write_until_full(engine: RocksEngine, first: int) -> int:
    """Rows `first` and up, one a batch; returns the number of the first one refused for room.

    A stall is waited out: memtables fill faster than RocksDB's thread finds that none can go.
    """
    number = first
    for _ in range(MANY):
        try:
            engine.write(KvBatch(puts={"default": [(b"%06d" % number, os.urandom(500))]}))
            number += 1
        except EngineFullError:
            return number
        except EngineBusyError:
            with contextlib.suppress(EngineFullError):
                engine.flush()
    return pytest.fail("the disk is never full")


def assert_rows(engine: RocksEngine, count: int) -> None:
    assert [key for key, _ in engine.scan("default", *ALL)] == [b"%06d" % n for n in range(count)]


def test_the_derived_database_refuses_reads_on_and_resumes(disk: SmallDisk) -> None:
    small = [replace(family, memtable_bytes=1 << 20) for family in DERIVED.families]
    profile = replace(DERIVED, families=tuple(small))
    engine = RocksEngine.open(disk.root / "kvcq", profile)
    disk.fill()
    count = write_until_full(engine, 0)
    for call in (engine.flush, engine.settle, lambda: engine.compact("default")) * 3:
        with contextlib.suppress(EngineFullError):
            call()
    assert_rows(engine, count)  # what was taken stays readable, and nothing of what was refused
    disk.free()
    row = (b"%06d" % count, b"again")

    def write() -> None:
        engine.settle()
        engine.write(KvBatch(puts={"default": [row]}))

    in_time(write)
    engine.flush()
    assert_rows(engine, count + 1)
    engine.close()
    engine = RocksEngine.open(disk.root / "kvcq", profile)
    assert_rows(engine, count + 1)
    engine.close()


class Puts:
    """Puts numbered messages, and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.count = 0

    def one(self, store: MessageStore) -> None:
        store.put([Message("T", b"%d" % self.count, 0, light_queues=("%LMQ%a",))])
        self.count += 1

    def until_full(self, store: MessageStore) -> None:
        for _ in range(MANY):
            try:
                self.one(store)
            except DiskFullError:
                return
        pytest.fail("the disk is never full")

    def assert_served(self, store: MessageStore, *, all_of_them: bool) -> None:
        """Everything that is visible, from the first one on without a hole."""
        for queue in ("T", "%LMQ%a"):
            found: list[bytes] = []
            high = store.bounds([(queue, 0)])[0].max_offset
            while len(found) < high:
                records = store.pull(queue, 0, len(found), max_messages=1000).records
                found += [unpack_record(record).body for record in records]
            assert found == [b"%d" % number for number in range(high)]
            assert high == self.count if all_of_them else high <= self.count


def commit_many(store: MessageStore) -> None:
    for number in range(MANY):
        store.commit_offsets(f"group-{number}", [("T", 0, 1)])


@pytest.mark.parametrize(
    "freed",
    [
        pytest.param(8 << 20, id="8 MiB"),
        pytest.param(32 << 20, id="32 MiB", marks=pytest.mark.slow),
        pytest.param(None, id="all", marks=pytest.mark.slow),
    ],
)
def test_a_store_refuses_puts_serves_what_it_has_and_goes_on_without_a_restart(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture, freed: int | None
) -> None:
    caplog.set_level(logging.INFO, "store")
    puts = Puts()
    root = disk.root / "store"
    clock = FakeClock()
    with open_small(root, clock, segment_bytes=4 << 20) as store:
        puts.one(store)
        store.flush()
        disk.fill()
        for _ in range(10):
            puts.one(store)
        with pytest.raises(DiskFullError):
            store.flush()
        puts.until_full(store)
        for _ in range(20):
            with pytest.raises(DiskFullError, match="queues cannot be written"):
                puts.one(store)
        puts.assert_served(store, all_of_them=False)
        with pytest.raises(DiskFullError):  # its log may have a page left
            commit_many(store)
        assert store.committed_offsets("group-0", [("T", 0)]) in ([1], [None])
        for _ in range(40):  # as each second
            clock.advance(1)
            store._services.jobs._run("maintain", store.maintain)
        disk.free(freed)

        def put() -> None:
            clock.advance(1)
            store._services.jobs._run("maintain", store.maintain)
            puts.one(store)
            store.commit_offsets("g", [("T", 0, 1)])

        in_time(put)
        store.wait_visible()
        puts.assert_served(store, all_of_them=True)
        # The last run may have begun too early.
        store._services.jobs._run("maintain", store.maintain)
        store.flush()
        told = [record.getMessage() for record in caplog.records]
        for line in ("dispatch waits", "dispatch goes on", "is tried again", "runs again"):
            assert sum(line in each for each in told) == 1, told
        assert not [record for record in caplog.records if record.exc_info]
    assert not (root / "abort").exists()
    assert check_store(root) == []


@pytest.mark.parametrize(
    "mode", [FlushMode.ASYNC, pytest.param(FlushMode.SYNC, marks=pytest.mark.slow)]
)
def test_a_store_closed_on_a_full_disk_closes_and_the_next_opening_has_all_of_it(
    disk: SmallDisk, mode: FlushMode
) -> None:
    puts = Puts()
    root = disk.root / "store"
    store = open_small(root, segment_bytes=4 << 20, flush_mode=mode)
    puts.one(store)
    store.flush()
    disk.fill()
    for _ in range(10):
        puts.one(store)
    store.close()
    assert (root / "abort").exists()
    with pytest.raises((DiskFullError, EngineUnavailableError)):  # not taken for damage
        open_small(root, segment_bytes=4 << 20, flush_mode=mode)
    assert not list(root.glob("*.damaged*"))
    disk.free()
    with open_small(root, segment_bytes=4 << 20, flush_mode=mode) as store:
        puts.one(store)
        puts.assert_served(store, all_of_them=True)
    assert check_store(root) == []


@pytest.mark.parametrize("ends_there", [False, True], ids=["no queue ends", "queues end"])
def test_retention_makes_room_on_a_full_disk(
    disk: SmallDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, ends_there: bool
) -> None:
    root, image = disk.root / "store", tmp_path / "image"
    clock = FakeClock()
    light = [f"%LMQ%{number}" for number in range(300)]
    ended = [(name, 0) for name in ("A", *light)] if ends_there else []
    with open_small(root, clock, segment_bytes=1 << 20, reserved_hours=1) as store:
        if ends_there:
            store.put([Message("A", b"x", 0, light_queues=tuple(light))] * 3)
        for _ in range(20):
            store.put([Message("T", bytes(200_000), 0)])
        store.flush()
        store.snapshots.look()
        disk.fill()
        clock.advance(3 * 3600)
        # A snapshot of before is there: there is no room for one now.
        assert store._services.retention.run_once(now=True) == 3
        copy_open(root, image, ignore=shutil.ignore_patterns("kvcq"))
        disk.free()

        def note() -> None:
            clock.advance(1)
            store.maintain()
            store.put([Message("T", b"there is room", 0)])

        in_time(note)
        assert store._services.retention.run_once(now=True) == 0
        assert store.log.start_offset == 3 << 20
    assert check_store(root) == []
    # Stopped on the full disk, and the derived database lost.
    assert "segments are missing" not in str(check_store(image))
    for path in (image, root):
        with open_small(path, clock, segment_bytes=1 << 20) as store:
            assert "segments between are missing" not in caplog.text
            assert store.bounds(ended) == [(3, 3)] * len(ended)
            assert store.queues.next_offsets([("T", 0)])[0] in (20, 21)
        assert check_store(path) == []


def test_an_error_of_the_device_stays_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"0", 0)])

        def broken(_engine: RocksEngine, _batch: KvBatch) -> None:
            raise EngineFailedError("IO error: Input/output error")

        monkeypatch.setattr(RocksEngine, "write", broken)
        store.put([Message("T", b"1", 0)])
        monkeypatch.undo()
        with pytest.raises(StoreFailedError):
            store.put([Message("T", b"2", 0)])
        assert len(store.pull("T", 0, 0).records) == 1


@pytest.mark.integration
@pytest.mark.slow
def test_sigterm_on_a_full_disk_ends_the_server_in_order(disk: SmallDisk) -> None:
    data = disk.root / "data"
    with ServerProcess(data) as server:
        server.wait_for("ready")
        put = ("put", "T", "--server", server.target, "--lines")
        assert run_here(*put, stdin=b"one\ntwo\n").returncode == 0
        disk.fill()
        server.send(signal.SIGTERM)
        assert server.wait() == 0, server.errors
        assert "Traceback" not in "".join(server.errors)
        assert [event["event"] for event in server.events][-1] == "stopped"
    disk.free()
    checked = run_here("check", str(data))
    assert checked.returncode == 0, checked.stdout
    with ServerProcess(data) as server:
        server.wait_for("ready")
        dumped = run_here("pull", "T", "--server", server.target)
        assert dumped.returncode == 0, dumped.stderr
        assert b"one" in dumped.stdout
        assert b"two" in dumped.stdout
