"""P1 and P5: what was fsynced is there after a power loss; of the rest, nothing by halves."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.format.checkpoint import Checkpoint, write_checkpoint
from store.format.record import unpack_record
from store.log.recovery import recover_log
from store.log.segment_set import SegmentSet
from store.message import Message
from store.state import STATE_TOPIC
from store.store_dir import StoreDir
from tests.crash.images import damage_checkpoints, lose_checkpoints, power_loss
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, records
from tests.support.seeds import seeds
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash


def put_some(store: MessageStore, chance: random.Random, count: int) -> dict[int, bytes]:
    """Puts of all sizes; returns physical offset to body."""
    written = {}
    for _ in range(count):
        batch = [
            Message(
                chance.choice(("A", "B")),
                chance.randbytes(chance.choice((0, 3, 700, 5000))),
                queue_id=chance.randrange(3),
                tag=chance.choice(("", "t")),
                keys=("k",) if chance.random() < 0.5 else (),
                properties={"p": "v" * chance.choice((1, 600))} if chance.random() < 0.5 else None,
                light_queues=("%LMQ%a",) if chance.random() < 0.3 else (),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        done = store.put(batch)
        for message, placed in zip(batch, done.placed, strict=True):
            written[placed.physical_offset] = message.body
    return written


@pytest.mark.parametrize("queues", ["behind", "at", "ahead"])
@pytest.mark.parametrize("seed", seeds(2, 6))
def test_p1_flushed_messages_survive(tmp_path: Path, seed: int, queues: str) -> None:
    chance = random.Random(seed * 7 + len(queues))
    image = tmp_path / "image"
    with open_small(tmp_path / "store") as store:
        written = put_some(store, chance, 20)
        if queues != "behind":
            store.flush()  # log, queues, checkpoint
        else:
            store._services.flush.request(store.log.appended_offset)
            assert store._appends.flushed.wait_for(store.log.appended_offset, 30)
        written |= put_some(store, chance, chance.choice((1, 5, 30)))
        if queues == "ahead":
            store.queues.flush()
        flushed = power_loss(store, image, chance)
    assert [str(finding) for finding in check_store(image) if finding.is_fault] == []
    with open_small(image) as store:
        found = {
            each.physical_offset: unpack_record(store.get(each.physical_offset)).body
            for each in records(store, store.log.appended_offset)
            if each.topic != STATE_TOPIC
        }
        # What was flushed, then a run of what was not: no gap, nothing changed, nothing older.
        assert list(found.items()) == list(written.items())[: len(found)]
        assert store.log.appended_offset >= flushed
        assert differences(store) == []
        put_some(store, chance, 10)
        assert differences(store) == []
    assert check_store(image) == []


def test_p1_the_last_record_torn_at_every_byte(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        store.put([Message("A", b"first", tag="t")])
        store.flush()
        last = store.put([Message("A", b"second", tag="t", keys=("k",))]).placed[0]
        image = (root / "commitlog" / f"{0:020}").read_bytes()
    start, end = last.physical_offset, last.physical_offset + last.record_size
    directory = tmp_path / "log"
    directory.mkdir()
    for kept in range(start, end + 1):
        (directory / f"{0:020}").write_bytes(image[:kept].ljust(SEGMENT_BYTES, b"\0"))
        segments = SegmentSet.load(directory, SEGMENT_BYTES)
        recovered = recover_log(segments, start, clean=False)
        segments.close()
        assert recovered.end_offset == (end if kept == end else start), kept
        # Nothing of it can come back.
        assert not any((directory / f"{0:020}").read_bytes()[recovered.end_offset :])


@pytest.mark.parametrize("kept", [1, 40, 100, 120])
def test_a_store_with_a_torn_record_goes_on(tmp_path: Path, kept: int) -> None:
    image = tmp_path / "image"
    with open_small(tmp_path / "store") as store:
        store.put([Message("A", b"first")])
        store.flush()
        last = store.put([Message("A", b"second", keys=("k",))]).placed[0]
        store.queues.flush()
        copy_open(store.config.root, image)
    path = image / "commitlog" / f"{0:020}"
    data = path.read_bytes()
    path.write_bytes(data[: last.physical_offset + kept].ljust(SEGMENT_BYTES, b"\0"))
    with open_small(image) as store:
        assert store.bounds([("A", 0)])[0].max_offset == 1
        assert store.query("A", "k").records == []
        again = store.put([Message("A", b"third")]).placed[0]
        assert again[1:3] == last[1:3]  # the same offsets, taken by nobody
        assert differences(store) == []


def test_p5_an_older_record_behind_the_cut_does_not_come_back(tmp_path: Path) -> None:
    # Hazard H1: cut, then append something shorter, then crash again.
    first, second = tmp_path / "first", tmp_path / "second"
    with open_small(tmp_path / "store") as store:
        store.put([Message("A", b"x" * 200)])
        store.flush()
        torn = store.put([Message("A", b"y" * 300), Message("A", b"z" * 10)]).placed
        copy_open(store.config.root, first)
    path = first / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[torn[0].physical_offset + 50] ^= 1
    path.write_bytes(data)
    with open_small(first) as store:
        assert store.log.appended_offset == torn[0].physical_offset
        store.put([Message("A", b"y" * 300)])  # ends where the old second record began
        shutil.copytree(first, second)
    with open_small(second) as store:
        assert store.bounds([("A", 0)])[0].max_offset == 2


def test_a_topic_made_beyond_the_cut_gets_its_new_messages(tmp_path: Path) -> None:
    # As of a disk that lied about a flush: nothing but the log says what there is.
    image, again = tmp_path / "image", tmp_path / "again"
    chance = random.Random(1)
    with open_small(tmp_path / "store") as store:
        store.put([Message("A", b"x", light_queues=("%LMQ%a",))])
        store.flush()
        durable = store.log.appended_offset
        put_some(store, chance, 10)
        store.create_topics([("New", 1)])
        store.put([Message("A", b"x", light_queues=("%LMQ%a",))])
        store.delete_topic("%LMQ%a")
        copy_open(store.config.root, image)
    for path in (image / "commitlog").iterdir():
        data = path.read_bytes()
        kept = max(0, min(SEGMENT_BYTES, durable - int(path.name)))
        path.write_bytes(data[:kept].ljust(SEGMENT_BYTES, b"\0"))
    with open_small(image) as store:
        assert store.log.appended_offset == durable
        place = store.put([Message("New", b"y", light_queues=("%LMQ%a",))]).placed[0]
        assert unpack_record(store.get(place.physical_offset)).body == b"y"
        assert place.light_queue_offsets == (1,)  # its deletion is lost as well
        assert differences(store) == []
        shutil.copytree(image, again)  # before anything of the queues is flushed
    with open_small(again) as store:
        assert len(store.pull("New", 0, 0).records) == 1
        assert len(store.pull("%LMQ%a", 0, 0).records) == 2
        assert differences(store) == []


def test_without_a_checkpoint_the_whole_log_is_checked(tmp_path: Path) -> None:
    root = tmp_path / "store"
    chance = random.Random(3)
    with open_small(root) as store:
        written = put_some(store, chance, 60)
    for change in ("lost", "damaged", "old"):
        if change == "lost":
            lose_checkpoints(root)
        elif change == "damaged":
            damage_checkpoints(root)
        else:
            write_checkpoint(root / "checkpoint", Checkpoint())
        with open_small(root, FakeClock(FakeClock().now_ms() - 300_000)) as store:
            found = list(records(store, store.log.appended_offset))
            assert len([each for each in found if each.topic != STATE_TOPIC]) == len(written)
            done = store.put([Message("A", b"x")])
            assert (
                done.store_time_ms >= FakeClock().now_ms()
            )  # times go on rising: minutes are carried
            written[done.placed[0].physical_offset] = b"x"


def test_a_store_that_was_never_opened_to_its_end_lost_nothing(tmp_path: Path) -> None:
    # The power goes while the directory is made: store.json is there, and nothing else.
    StoreDir.open(tmp_path, SEGMENT_BYTES, FakeClock()).close()
    with open_small(tmp_path / "whole") as whole:
        copy_open(whole.config.root, tmp_path / "copy")
    for made in ("notes", "kvcq"):
        shutil.copytree(tmp_path / "copy" / made, tmp_path / made)
        assert [str(finding) for finding in check_store(tmp_path) if finding.is_fault] == []
    with open_small(tmp_path) as store:
        store.put([Message("A", b"x")])
    assert check_store(tmp_path) == []
