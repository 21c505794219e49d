"""P13: a flipped bit is found, and never served as data; a damaged database is made again."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.errors import StoreError, StoreFormatError
from store.format.record import unpack_record
from store.message import Message
from store.metadata import Retention
from tests.crash.images import flip
from tests.support.rebuild import differences, live_engine
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

QUEUES = [("A", 0), ("A", 1), ("B", 0), ("B", 1), ("%LMQ%a", 0)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "store"
    with open_small(root) as store:
        for number in range(60):
            store.put(
                [
                    Message(
                        topic,
                        f"{topic} {number}".encode().ljust(300),
                        queue_id=number % 2,
                        tag="t",
                        keys=(f"k{number % 4}",),
                        light_queues=("%LMQ%a",) if number % 3 == 0 else (),
                    )
                    for topic in ("A", "B")
                ]
            )
        store.commit_offsets("g", [("A", 0, 5)])
        store.create_topics([("idle", 3)], {"idle": Retention(messages=7)})
        store.flush()
        for family in ("default", "offset", "index", "state"):
            live_engine(store).compact(family)
    return root


@pytest.fixture(scope="module")
def truth(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[object, bytes]:
    copy = tmp_path_factory.mktemp("truth") / "store"
    shutil.copytree(template, copy)
    with open_small(copy) as store:
        found, errors = read_all(store)
    assert errors == 0
    return found


def read_all(store: MessageStore) -> tuple[dict[object, bytes], int]:
    """Every record by every way there is, and how many reads raised the store's own errors."""
    found: dict[object, bytes] = {}
    errors = 0
    try:
        found["topics"] = repr(store.list_topics("", None, 9)).encode()
        found["groups"] = repr(store.list_committed("g", None, 9)).encode()
    except StoreError:
        errors += 1
    for topic, queue_id in QUEUES:
        try:
            end = store.bounds([(topic, queue_id)])[0].max_offset
        except StoreError:
            errors += 1
            continue
        for offset in range(end):
            try:
                for record in store.pull(topic, queue_id, offset, max_messages=1).records:
                    found[topic, queue_id, offset] = record
            except StoreError:
                errors += 1
    for number in range(4):
        try:
            for record in store.query("A", f"k{number}", limit=100).records:
                found[number, unpack_record(record).physical_offset] = record
        except StoreError:
            errors += 1
    return found, errors


def subset(found: dict[object, bytes], truth: dict[object, bytes]) -> bool:
    return all(truth.get(place) == record for place, record in found.items())


@pytest.mark.parametrize("seed", seeds(2, 10))
def test_p13_a_flipped_bit_in_the_log(
    template: Path, truth: dict[object, bytes], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    root = tmp_path / "store"
    shutil.copytree(template, root)
    records = [record for place, record in truth.items() if not isinstance(place, str)]
    place = chance.choice([unpack_record(record).physical_offset for record in records])
    flip(root / "commitlog" / f"{0:020}", place + chance.randrange(300), 1 << chance.randrange(8))
    assert {finding.is_fault for finding in check_store(root)} == {True}
    with open_small(root) as store:
        found, errors = read_all(store)
    assert errors
    assert len(found) < len(truth)
    assert subset(found, truth)


def test_p13_flipped_bits_in_the_checkpoint(
    template: Path, truth: dict[object, bytes], tmp_path: Path
) -> None:
    for position in (0, 7, 33, 40, 47, 48, 51, 52, 4095):
        root = tmp_path / str(position)
        shutil.copytree(template, root)
        flip(root / "checkpoint", position, 0x10)
        assert [finding.place for finding in check_store(root)] == ["checkpoint"]
        with open_small(root) as store:
            assert read_all(store) == (truth, 0)


def test_p13_flipped_bits_in_store_json(template: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(template, root)
    path = root / "store.json"
    text = path.read_bytes()
    for position in range(len(text) - 1):  # the last byte is a line's end
        for mask in (1, 0x20, 0x80):
            path.write_bytes(text)
            flip(path, position, mask)
            with pytest.raises(StoreFormatError):
                open_small(root).close()


@pytest.mark.parametrize("seed", range(12))
def test_p13_flipped_bits_in_the_database(
    template: Path, truth: dict[object, bytes], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    root = tmp_path / "store"
    shutil.copytree(template, root)
    files = sorted(path for path in (root / "kvcq").iterdir() if path.stat().st_size)
    path = files[seed % len(files)]
    for _ in range(8):
        flip(path, chance.randrange(path.stat().st_size), 1 << chance.randrange(8))
    try:
        store = open_small(root)
    except StoreError:
        # Found too late to be set aside by this opening: it is by the next one.
        store = open_small(root)
    with store:
        found, errors = read_all(store)
        assert subset(found, truth)
        assert errors or found == truth
    if errors:
        with open_small(root) as store:
            assert read_all(store) == (truth, 0)
            assert differences(store) == []


@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST", "gone", "empty", "sst"])
def test_p13_a_damaged_database_is_made_again(
    template: Path, truth: dict[object, bytes], tmp_path: Path, what: str
) -> None:
    root = tmp_path / "store"
    shutil.copytree(template, root)
    kvcq = root / "kvcq"
    if what == "gone":
        shutil.rmtree(kvcq)
    elif what == "empty":
        shutil.rmtree(kvcq)
        kvcq.mkdir()
    elif what == "CURRENT":
        (kvcq / "CURRENT").unlink()
    elif what == "MANIFEST":
        path = next(kvcq.glob("MANIFEST-*"))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        for path in kvcq.glob("*.sst"):
            path.write_bytes(b"x" * path.stat().st_size)
    with open_small(root) as store:
        assert read_all(store) == (truth, 0)
        assert differences(store) == []
    if what in ("CURRENT", "MANIFEST", "sst"):
        assert [path for path in root.iterdir() if path.name.startswith("kvcq.")]
