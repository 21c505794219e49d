"""A crash leaves all of a batch, or nothing: wherever its records end on the disk."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError
from store.format.batch_mark import BatchMark
from store.format.batch_place import DISTANCE_SHIFT, PLACE
from store.log.recovery import recover_log
from store.log.segment_set import SegmentSet
from store.message import Message
from tests.crash.images import power_loss
from tests.support.log_writer import Entry, LogWriter
from tests.support.rebuild import differences, records
from tests.support.seeds import seeds
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message import Appended

pytestmark = pytest.mark.crash


def ends(appended: Appended) -> list[int]:
    return [request.physical_offset + request.record_size for request in appended.requests]


def cut_image(source: Path, target: Path, kept: int) -> None:
    """The log's files with everything from physical offset `kept` on zero."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in source.iterdir():
        data = path.read_bytes()[: max(0, kept - int(path.name))]
        (target / path.name).write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))


def recovered_end(directory: Path, flushed: int) -> int:
    segments = SegmentSet.load(directory, SEGMENT_BYTES)
    end = recover_log(segments, flushed, clean=False).end_offset
    assert segments.end_offset == end
    segments.close()
    return end


def places_to_cut(appended: Appended, chance: random.Random) -> list[int]:
    """Every border of a record, and some places within each."""
    found = []
    for request in appended.requests:
        start, size = request.physical_offset, request.record_size
        found += [start, start + 1, start + size - 1, start + chance.randrange(size), start + size]
    return found


@pytest.mark.parametrize("flushed", ["nothing", "what is before"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_batch_cut_anywhere_is_there_whole_or_not_at_all(
    tmp_path: Path, before: int, flushed: str
) -> None:
    chance = random.Random(before)
    with open_small(tmp_path / "store") as store:
        store.create_topics([("A", 1)])
        for size in (1, 3, 2)[:before]:
            store.put([Message("A", b"x" * 50)] * size)
        start = store.log.appended_offset
        batch = store.put([Message("A", b"y" * chance.randrange(99)) for _ in range(7)])
    for kept in places_to_cut(batch, chance):
        cut_image(tmp_path / "store" / "commitlog", tmp_path / "log", kept)
        end = recovered_end(tmp_path / "log", start if flushed != "nothing" else 0)
        assert end == (batch.end_offset if kept >= batch.end_offset else start), kept


def test_a_batch_over_segments_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    chance = random.Random(1)
    with open_small(tmp_path / "store") as store:
        start = store.put([Message("A", b"x")]).end_offset
        body = b"y" * (SEGMENT_BYTES // 3)
        batch = store.put([Message("A", body)] * 7)
        assert batch.end_offset > 3 * SEGMENT_BYTES
    for kept in places_to_cut(batch, chance):
        cut_image(tmp_path / "store" / "commitlog", tmp_path / "log", kept)
        end = recovered_end(tmp_path / "log", start)
        assert end == (batch.end_offset if kept >= batch.end_offset else start), kept


def test_a_batch_that_begins_a_segment_is_cut_there(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        start = store.put([Message("A", b"x" * (SEGMENT_BYTES * 3 // 4))]).end_offset
        body = b"y" * (SEGMENT_BYTES // 2)
        batch = store.put([Message("A", body), Message("A", b"z"), Message("A", b"z")])
        assert batch.requests[0].physical_offset == SEGMENT_BYTES
    for kept in ends(batch)[:-1]:
        cut_image(tmp_path / "store" / "commitlog", tmp_path / "log", kept)
        assert recovered_end(tmp_path / "log", start) == SEGMENT_BYTES


def test_separate_puts_of_one_append_are_cut_one_by_one(tmp_path: Path) -> None:
    """Callers that know nothing of each other: what is whole of them stays."""
    with open_small(tmp_path / "store") as store:
        done = store.append([Message("A", b"x" * 40)] * 5, separate=True)
    for kept in ends(done):
        cut_image(tmp_path / "store" / "commitlog", tmp_path / "log", kept)
        assert recovered_end(tmp_path / "log", 0) == kept
        cut_image(tmp_path / "store" / "commitlog", tmp_path / "log", kept - 1)
        assert recovered_end(tmp_path / "log", 0) == kept - done.requests[0].record_size


def test_the_queues_of_a_batch_that_is_cut_are_cut_too(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with open_small(tmp_path / "store") as store:
        store.put([Message("A", b"first", keys=("k",))])
        store.flush()
        torn = store.put(
            [Message(name, b"x", keys=("k",), light_queues=("%LMQ%l",)) for name in ("A", "B", "C")]
        )
        store.queues.flush()  # ahead of the log
        copy_open(store.config.root, image)
    cut_image(tmp_path / "store" / "commitlog", image / "commitlog", torn.requests[2][3])
    with open_small(image) as store:
        # The record that made B and C is whole: a topic is there before its first message.
        assert store.log.appended_offset == torn.requests[0].physical_offset
        assert [bounds.max_offset for bounds in store.bounds([("A", 0), ("B", 0)])] == [1, 0]
        assert len(store.query("A", "k").records) == 1
        again = store.put([Message("A", b"x"), Message("B", b"x", light_queues=("%LMQ%l",))])
        assert [each.queue_offset for each in again.requests] == [1, 0]
        assert again.requests[1].light_queues == (("%LMQ%l", 0),)
        assert differences(store) == []


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_after_a_power_loss_batches_are_whole(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    image = tmp_path / "image"
    borders = {0}
    with open_small(tmp_path / "store") as store:
        for number in range(30):
            sizes = [chance.choice((5, 300, 5000)) for _ in range(chance.randrange(1, 9))]
            store.put([Message("A", chance.randbytes(size)) for size in sizes])
            borders.add(store.log.appended_offset)
            if number == 15:
                store.flush()
        power_loss(store, image, chance)
    with open_small(image) as store:
        # A blank between segments may stand on either side of the cut.
        end = store.log.appended_offset
        place = list(records(store, end))[-1:]
        assert not place or place[0].physical_offset + place[0].record_size in borders
        assert differences(store) == []


def test_what_is_flushed_never_ends_within_a_batch(tmp_path: Path) -> None:
    """A full segment is flushed at once, the little behind it later: recovery begins there."""
    with open_small(tmp_path / "store") as store:
        start = store.put([Message("A", b"x")]).end_offset
        store.flush()
        body = b"y" * (SEGMENT_BYTES // 3)
        store.put([Message("A", body)] * 3)
        assert store.log.flush(least_pages=1000) == start
        assert store.log.flush(least_pages=0) == store.log.appended_offset


def test_a_record_with_an_impossible_place_cuts_nothing(tmp_path: Path) -> None:
    """As when another program copied the field along with a message."""
    writer = LogWriter(tmp_path / "log", SEGMENT_BYTES)
    writer.extend([Entry()] * 3)
    for distance in (10, len(writer.rows[0].record), 1 << 30):
        writer.extend([Entry(prepared_offset=PLACE + (distance << DISTANCE_SHIFT) + 3)])
        writer.flush()
        assert recovered_end(tmp_path / "log", 0) == writer.end


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("mark", [False, True])
def test_a_transaction_cannot_tear_a_batch_since_it_is_no_part_of_one(
    tmp_path: Path, count: int, mark: bool
) -> None:
    half = Message("T", b"half", sys_flag=0x8, prepared_transaction_offset=5)
    batch = [Message("T", b"x")] * count
    batch[1] = half
    with open_small(tmp_path / "store") as store:
        numbered = BatchMark("p", 0, count, 7, count) if mark else None
        with pytest.raises(InvalidArgumentError) as caught:
            store.append(batch, mark=numbered)
        assert caught.value.field == "messages[1].sys_flag"
        assert store.log.appended_offset == 0
        assert store.list_topics("", None, 9) == []
        with pytest.raises(InvalidArgumentError):
            store.append([half], mark=BatchMark("p", 0, 1, 7, 1))
        # By itself it is whole whatever a crash leaves, and so are puts that only share the append.
        store.append([half])
        store.append(batch, separate=True)
        assert store.bounds([("T", 0)])[0].max_offset == count + 1
