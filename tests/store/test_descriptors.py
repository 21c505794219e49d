"""A process that runs out of file descriptors: refused for a while, nothing lost, nothing dead."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq.engine.rocks.failures import failure
from kvcq.errors import EngineBusyError
from server.wire.status import refusal_of
from store.config import FlushMode
from store.errors import OutOfDescriptorsError, StoreBusyError
from store.format.record import unpack_record
from store.log.preallocate import Preallocator
from store.message import Message
from tests.support.checked import assert_whole
from tests.support.descriptors import no_descriptor_left
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def _put_until_refused(store: MessageStore, first: int) -> int:
    """The number of the message that was refused."""
    for number in range(first, first + 100):
        try:
            store.put([Message("T", b"%d" % number + b"." * 20_000)])
        except StoreBusyError:
            return number
    raise AssertionError("a roll needs a descriptor")


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("preallocate", [True, False])
def test_puts_are_refused_while_there_is_no_descriptor_and_go_on_when_there_is(
    tmp_path: Path, mode: FlushMode, preallocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.log.preallocate.RETRY_S", 0.01)
    with open_small(tmp_path, flush_mode=mode, preallocate=preallocate) as store:
        store.put([Message("T", b"first", 0)])
        with no_descriptor_left():
            refused = _put_until_refused(store, 0)
            with pytest.raises(OutOfDescriptorsError):
                store.put([Message("T", b"." * 60_000)])
            store.put([Message("T", b"fits", 1)])
            assert len(store.pull("T", 1, 0).records) == 1
        missing = store.log.segment_end(store.log.appended_offset - 1)
        assert store.log.wait_for_segment(missing, 60)
        source = store.log._segments._source
        for number in range(refused, refused + 10):
            if preallocate:
                assert isinstance(source, Preallocator)
                assert source._changes.until(lambda: not source._failed, 60)
            store.put([Message("T", b"%d" % number + b"." * 20_000)])
        store.flush()
        found = [
            unpack_record(record).body.rstrip(b".")
            for record in store.pull("T", 0, 1, max_messages=1000, max_bytes=1 << 30).records
        ]
        assert found == [b"%d" % number for number in range(refused + 10)]
    assert_whole(tmp_path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_read_of_the_queues_that_finds_none_may_be_tried_again(number: int) -> None:
    text = f"IO error: While open a file for random read: /x/000013.sst: {os.strerror(number)}"
    found = failure("get", Exception(text))
    assert isinstance(found, EngineBusyError)
    assert refusal_of(found, "id").reason == "OUT_OF_DESCRIPTORS"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_whatever_meets_it_the_caller_may_try_again(number: int) -> None:
    refusal = refusal_of(OSError(number, os.strerror(number)), "id")
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OUT_OF_DESCRIPTORS")


@pytest.mark.parametrize("mode", FlushMode)
def test_queues_that_could_not_be_written_out_go_on_without_a_restart(
    tmp_path: Path, mode: FlushMode
) -> None:
    clock, pause = FakeClock(), threading.Event()
    with open_small(tmp_path / "store", clock, flush_mode=mode) as store:
        store.put([Message("Gone", b"x", 0)])
        store.put([Message("T", b"0", 0, keys=("k",), light_queues=("%LMQ%a",))])
        store.flush()
        for number in range(1, 10):
            store.put([Message("T", b"%d" % number, 0, keys=("k",), light_queues=("%LMQ%a",))])
        store.delete_topic("Gone")
        with no_descriptor_left():
            with pytest.raises(OutOfDescriptorsError):
                store.queues.flush()
            store.append([Message("T", b"10", 0)])
            while store._services.reput.waits_for is None:  # the dispatching thread is waited for
                pause.wait(0.01)
            with pytest.raises(OutOfDescriptorsError):
                store.put([Message("T", b"refused", 0)])
            assert len(store.pull("T", 0, 0).records) == 10
            store._services.jobs._run("maintain", store.maintain)
        store.maintain()
        store.wait_visible()
        store.put([Message("T", b"11", 0)])
        assert store.bounds([("T", 0), ("%LMQ%a", 0)]) == [(0, 12), (0, 10)]
        assert len(store.query("T", "k").records) == 10
        store.flush()
    assert not (tmp_path / "store" / "abort").exists()
    assert_whole(tmp_path / "store")


def test_a_store_closed_before_there_are_any_again_has_all_of_it_at_the_next_opening(
    tmp_path: Path,
) -> None:
    store = open_small(tmp_path / "store")
    for number in range(10):
        store.put([Message("T", b"%d" % number, 0)])
    with no_descriptor_left(), pytest.raises(OutOfDescriptorsError):
        store.queues.flush()
    store.close()
    assert (tmp_path / "store" / "abort").exists()
    with open_small(tmp_path / "store") as store:
        assert store.bounds([("T", 0)]) == [(0, 10)]
    assert_whole(tmp_path / "store")
