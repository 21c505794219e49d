"""Turned bits in the files of a closed database: the next start answers the same, or says so."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.engine import KvBatch, pages
from kvcq.engine.rocks import DERIVED, RocksEngine, damage_mark
from kvcq.errors import EngineDamagedError
from kvcq.tables import UNITS
from store.errors import StoreError
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.seeds import fewer
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def answers(store: MessageStore) -> list[object]:
    """All that a user can see of the small store below."""
    topics = store.list_topics("", None, 100)
    queues = [(topic.name, at) for topic in topics for at in range(topic.queue_count)]
    names = store.list_light_queues("", None, 100)
    queues += [(name, 0) for name in names]
    return [
        topics,
        names,
        store.bounds(queues),
        [store.pull(*queue, 0, max_messages=100).records for queue in queues],
        [store.query(topic.name, "key").records for topic in topics],
        store.list_groups(None, 100),
        store.list_committed("g", None, 100),
    ]


def fill(root: Path, clock: FakeClock) -> None:
    """Several lives, so that the manifest says what was added and what was compacted away."""
    for life in range(3):
        with open_small(root, clock) as store:
            for number in range(5):
                store.put(
                    [Message("T", b"%d" % number, keys=("key",), light_queues=(f"%LMQ%{life}",))]
                )
                store.flush()
            store.commit_offsets("g", [("T", 0, 1 + life)])
            if life:
                store.put([Message(f"gone-{life}", b"")])
                store.delete_topic(f"gone-{life}")
            store.snapshots.take()


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "OPTIONS-*", "*.sst"])
@pytest.mark.parametrize("count", fewer(6, 20))
def test_a_turned_bit_changes_no_answer(tmp_path: Path, pattern: str, count: int) -> None:
    clock, root = FakeClock(), tmp_path / "store"
    fill(root, clock)
    with open_small(root, clock) as store:
        expected = answers(store)
    rng = random.Random(5)
    sites = [
        (path.name, at, bit)
        for path in sorted((root / "kvcq").glob(pattern))
        for at in range(path.stat().st_size)
        for bit in range(8)
    ]
    refused = 0
    for name, at, bit in rng.sample(sites, min(len(sites), count)):
        image = tmp_path / "image"
        shutil.copytree(root, image)
        data = bytearray((image / "kvcq" / name).read_bytes())
        data[at] ^= 1 << bit
        (image / "kvcq" / name).write_bytes(data)
        for _ in range(2):  # damage that a reader met is mended by the next start
            try:
                with open_small(image, clock) as store:
                    found = answers(store)
            except StoreError:
                refused += 1
                assert damage_mark(image / "kvcq").exists()
                continue
            assert found == expected, f"bit {bit} at {at} of {name}"
            break
        else:
            pytest.fail(f"bit {bit} at {at} of {name}: not mended")
        shutil.rmtree(image)


def test_damage_that_a_reader_meets_is_logged_once_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(KvBatch(puts={UNITS: [(b"%05d" % n, bytes(100)) for n in range(1000)]}))
    engine.close()
    for path in (tmp_path / "kvcq").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    for _ in range(2):
        with pytest.raises(EngineDamagedError):
            list(pages(engine, UNITS))
    engine.close()
    [line] = caplog.messages
    assert line.startswith(f"{tmp_path / 'kvcq'} is damaged, a restart rebuilds it: ")
