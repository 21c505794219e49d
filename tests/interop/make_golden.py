"""Writes tests/golden/rocketmq anew: `python -m tests.interop.make_golden`.

The bytes differ from run to run (store times, names of index files), the messages do not.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import tempfile
from pathlib import Path

from tests.interop.judge import Judge, Shape, merge_views
from tests.support import golden_store

SEED = 20_260_101
COUNT = 1200
VIEWS = {"both": ("files", "rocksdb"), "rocksdb": ("rocksdb",), "prefilled": ("files", "rocksdb")}


def golden_shape(name: str) -> Shape:
    return Shape(
        segment_bytes=golden_store.SEGMENT_BYTES,
        units_per_file=golden_store.UNITS_PER_FILE,
        index_slots=golden_store.INDEX_SLOTS,
        index_entries=golden_store.INDEX_ENTRIES,
        crc_item=name == "rocksdb",
    )


def pack(root: Path, target: Path) -> None:
    """`root` as one archive, without the names of whoever made it."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(root, root.name, filter=anonymous)


def make_golden(judge: Judge, directory: Path, seed: int) -> None:
    """Write all golden stores and what RocketMQ reads in them to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in golden_store.STORES:
            root = Path(scratch) / name
            judge.write(name, root, seed=seed, count=COUNT)
            pack(root, directory / f"{name}.tar.xz")
            answer = merge_views(
                {view: judge.read(root, view, golden_shape(name)) for view in VIEWS[name]}
            )
            text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
            target = directory / f"{name}.expected.json.xz"
            target.write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    make_golden(Judge(), golden_store.DIRECTORY, SEED)
