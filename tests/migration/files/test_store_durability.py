"""The store over files: what a crash and a full disk leave."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from migration.files.checkpoint import CHECKPOINT_FILE, read_checkpoint
from store.errors import (
    DiskFullError,
    FlushError,
    StoreClosedError,
    StoreFailedError,
    StoreFormatError,
)
from tests.support.dispatch_log import expected, seen
from tests.support.file_stores import catch_up, crash, filled, hits, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_kill_at_any_point_loses_nothing_that_is_in_the_log(tmp_path: Path) -> None:
    log = filled(45)
    store = open_store(tmp_path / "live", log)
    for cut in range(0, 45, 4):
        store.dispatch(log.requests[cut : cut + 4], log.requests[min(cut + 4, 44)].physical_offset)
        if cut % 3 == 0:
            store.flush()
        durable = store.durable_offset
        left = crash(tmp_path / "live", tmp_path / f"crash-{cut}")
        again = open_store(left, log)
        assert again.dispatched_offset == durable
        catch_up(again, log)
        assert seen(again, log) == expected(log)
        assert hits(again, "T0", "k0") == [
            each.physical_offset
            for each in log.requests
            if each.topic == "T0" and "k0" in each.keys
        ]
        again.close()


def test_power_loss_keeps_the_durable_part_and_rebuilds_the_rest(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    half = log.requests[20].physical_offset
    store.dispatch(log.requests[:20], half)
    store.flush()
    durable = crash(tmp_path / "live", tmp_path / "durable")
    store.dispatch(log.requests[20:], log.end)
    # Pages of the second half: each file has them, or has lost them, or has lost its size.
    for seed in range(24):
        left = crash(tmp_path / "live", tmp_path / f"loss-{seed}")
        for n, path in enumerate(sorted(left.rglob("*"))):
            old = durable / path.relative_to(left)
            if not path.is_file() or path.name == CHECKPOINT_FILE:
                continue
            choice = (seed >> (n % 3)) + n
            if choice % 3 == 0:
                path.write_bytes(old.read_bytes() if old.exists() else bytes(path.stat().st_size))
            elif choice % 3 == 1 and not old.exists():
                path.write_bytes(b"")
        again = open_store(left, log)
        assert again.dispatched_offset == half
        catch_up(again, log)
        assert seen(again, log) == expected(log)
        assert len(hits(again, "T1", "k1")) == 10
        again.close()
        assert not [path for path in left.rglob("0*") if path.is_file() and not path.stat().st_size]


def test_checkpoint_says_only_what_is_fsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(20)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    recorded: list[int] = []
    fdatasync = os.fdatasync

    def watched(fd: int) -> None:
        checkpoint = read_checkpoint(tmp_path)
        assert checkpoint is not None
        recorded.append(checkpoint.dispatched_offset)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", watched)
    store.flush()
    assert set(recorded) == {0}
    assert len(recorded) >= 8  # a file for each queue, and the index
    assert store.durable_offset == log.end
    recorded.clear()
    store.flush()
    assert recorded == []  # nothing is dirty


def test_failed_fsync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(20)
    store = open_store(tmp_path, log)
    catch_up(store, log)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushError):
            store.flush()
    for step in (store.flush, lambda: store.dispatch([], log.end)):
        with pytest.raises(StoreFailedError):
            step()
    assert seen(store, log) == expected(log)
    store.close()
    again = open_store(tmp_path, log)
    assert again.dispatched_offset == 0


@pytest.mark.parametrize("allowed", range(14))
def test_full_disk_takes_nothing_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    store.dispatch(log.requests[:20], log.requests[20].physical_offset)
    before = seen(store, log)
    pwrite, left = os.pwrite, [allowed]

    def full(fd: int, data: bytes, position: int) -> int:
        left[0] -= 1
        if left[0] < 0 and bytes(data).strip(b"\0"):
            raise OSError(errno.ENOSPC, "no space")
        return pwrite(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        try:
            catch_up(store, log)
        except DiskFullError:
            assert seen(store, log) == before
            assert store.dispatched_offset == log.requests[20].physical_offset
        else:
            assert allowed > 8
    catch_up(store, log)
    assert seen(store, log) == expected(log)
    store.close()
    assert seen(open_store(tmp_path, log), log) == expected(log)


@pytest.mark.parametrize("position", range(0, 160, 7))
def test_damaged_checkpoint_is_refused(tmp_path: Path, position: int) -> None:
    log = filled(3)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    path = tmp_path / CHECKPOINT_FILE
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x11
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match=CHECKPOINT_FILE):
        open_store(tmp_path, log)


def test_store_that_was_closed_takes_nothing(tmp_path: Path) -> None:
    log = filled(3)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    store.close()
    reads: list[Callable[[], object]] = [
        lambda: store.bounds("T0", 0, 0),
        lambda: store.dispatch([], 0),
        lambda: store.query_key("T0", "k", 0, 0, None, 1),
        store.flush,
    ]
    for read in reads:
        with pytest.raises(StoreClosedError):
            read()
