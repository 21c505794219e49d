"""server/jobs/expire.py: what has expired goes at once, whatever the hour, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.jobs import JobState
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.store_jobs import jobs_of, run
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def fill(store: MessageStore, segments: int) -> None:
    while store.log.appended_offset < segments * SEGMENT_BYTES:
        store.put([Message("T", b"x" * 1000, 0)])
    store.flush()


def test_all_that_has_expired_goes_in_batches(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1.0) as store:
        fill(store, 13)  # more than retention drops at a time
        clock.advance(1800)
        fill(store, 16)
        clock.advance(1801)
        view = run(jobs_of(store), "expire", pb.ExpireJob())
        assert view.state is JobState.DONE, view.error
        assert view.numbers["segments_dropped"] == 13
        assert view.numbers["bytes_freed"] == view.numbers["log_start_offset"] == 13 * SEGMENT_BYTES
        assert store.log.start_offset == 13 * SEGMENT_BYTES


def test_what_has_not_expired_stays(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1.0) as store:
        fill(store, 3)
        clock.advance(3599)
        view = run(jobs_of(store), "expire", pb.ExpireJob())
        assert (view.state, view.numbers["segments_dropped"]) == (JobState.DONE, 0)
        assert store.log.start_offset == 0
