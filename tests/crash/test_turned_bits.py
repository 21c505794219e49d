"""P13 for every small file of a store: after a turned bit it is refused, or serves the truth."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store.errors import StoreError
from store.message import Message
from tests.crash.images import flip
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.crash

#: Bytes at the end of a table file that no checksum of RocksDB's covers.
FOOTER_BYTES = 53
#: RocksDB's own tale of what it does, a random name, and settings that are written, never read.
UNREAD = ("LOG", "IDENTITY", "OPTIONS", "rocksdict-config")

Served = tuple[list[str], list[int | None], list[bytes]]


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """In memory where there is such a place: a store is written for each turned bit."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def template(room: Path) -> Path:
    """A store in its third life: 5 was committed in the first one, 100 in the second."""
    root = room / "template"
    with open_small(root) as store:
        store.create_topics([("T", 2), ("empty", 1)])
        store.put([Message("T", b"%d" % number, 0, keys=("k",)) for number in range(100)])
        store.commit_offsets("g", [("T", 0, 5)])
    with open_small(root) as store:
        store.commit_offsets("g", [("T", 0, 100)])
    open_small(root).close()
    return root


def served(root: Path) -> Served:
    with open_small(root) as store:
        topics = [topic.name for topic in store.list_topics("", None, 10)]
        records = list(store.pull("T", 0, 0, max_messages=1000).records)
        records += store.query("T", "k", limit=1000).records
        return topics, store.committed_offsets("g", [("T", 0)]), records


def places(root: Path) -> list[tuple[Path, int]]:
    """Every bit that could matter: file below the root, number of the bit."""
    found = []
    for path in sorted(each for each in root.rglob("*") if each.is_file()):
        if path.parent.name == "commitlog":
            continue
        size = path.stat().st_size
        start = size - FOOTER_BYTES if path.suffix == ".sst" else 0
        if path.name.startswith("checkpoint"):
            size = min(size, 64)  # what follows is not used
        step = 499 if path.name.startswith(UNREAD) else 1
        found += [(path.relative_to(root), bit) for bit in range(start * 8, size * 8, step)]
    return found


@pytest.mark.parametrize(
    "sample", [pytest.param(36, id="some"), pytest.param(1 << 20, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.timeout(0)
def test_p13_a_turned_bit_is_refused_or_the_store_serves_the_truth(
    room: Path, template: Path, sample: int
) -> None:
    truth = served(shutil.copytree(template, room / f"truth-{sample}"))
    assert truth[0] == ["T", "empty"]
    assert truth[1] == [100]
    assert len(truth[2]) == 200
    by_file: dict[Path, list[int]] = {}
    for path, bit in places(template):
        by_file.setdefault(path, []).append(bit)
    assert {path.name[:8] for path in by_file} >= {"MANIFEST", "CURRENT", "store.js"}
    chance = random.Random(9)
    counts = {"refused": 0, "the truth": 0}
    chosen = [
        (path, bit)
        for path, bits in by_file.items()
        for bit in chance.sample(bits, min(len(bits), max(1, sample // len(by_file))))
    ]
    for path, bit in chosen:
        root = shutil.copytree(template, room / "damaged")
        flip(root / path, bit // 8, 1 << bit % 8)
        try:
            assert served(root) == truth, (path, bit)
            counts["the truth"] += 1
        except StoreError:
            counts["refused"] += 1
        shutil.rmtree(root)
    print(sum(counts.values()), "turned bits:", counts)  # noqa: T201 - what `make soak` shows
    assert min(counts.values()) > 0


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_p13_a_manifest_that_seems_torn_never_brings_an_older_life_back(
    room: Path, template: Path
) -> None:
    """The top bit of any record's length: RocksDB alone would drop the rest, and its files."""
    truth = served(shutil.copytree(template, room / "truth-manifest"))
    manifest = next((template / "kvcq").glob("MANIFEST-*")).relative_to(template)
    data = (template / manifest).read_bytes()
    at = 0
    while at < len(data):
        root = shutil.copytree(template, room / "damaged")
        flip(root / manifest, at + 5, 0x80)
        assert served(root) == truth, at
        assert served(root) == truth, at
        shutil.rmtree(root)
        at += 7 + int.from_bytes(data[at + 4 : at + 6], "little")
