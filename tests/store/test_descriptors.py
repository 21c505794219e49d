"""A process that runs out of file descriptors: refused for a while, nothing lost, nothing dead."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq.errors import EngineBusyError
from kvcq.rocks.failures import failure
from migration.check import check_store
from server.status import refusal_of
from store.config import FlushMode
from store.errors import OutOfDescriptorsError, StoreBusyError
from store.message import Message
from store.preallocate import Preallocator
from store.record import unpack_record
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """None can be opened meanwhile, by anybody in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0] + 1, 3), limits[1]))
    try:
        while True:
            try:
                taken.append(os.dup(taken[0]))
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


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
    monkeypatch.setattr("store.preallocate.RETRY_S", 0.01)
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
                with source._changed:
                    assert source._changed.wait_for(lambda: not source._failed, 60)
            store.put([Message("T", b"%d" % number + b"." * 20_000)])
        store.flush()
        found = [
            unpack_record(record).body.rstrip(b".")
            for record in store.pull("T", 0, 1, max_messages=1000, max_bytes=1 << 30).records
        ]
        assert found == [b"%d" % number for number in range(refused + 10)]
    assert check_store(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_read_of_the_queues_that_finds_none_may_be_tried_again(number: int) -> None:
    text = f"IO error: While open a file for random read: /x/000013.sst: {os.strerror(number)}"
    assert isinstance(failure("get", Exception(text)), EngineBusyError)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_whatever_meets_it_the_caller_may_try_again(number: int) -> None:
    refusal = refusal_of(OSError(number, os.strerror(number)), "id")
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "OUT_OF_DESCRIPTORS")
