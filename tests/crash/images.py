"""What a power loss leaves of a store: files as they are, but pages that no fsync covered.

A page above the flushed offset is there, or it is zero as before, or torn: some of its sectors are
there. RocksDB files are taken as they lie: what it has flushed is in them, its memtables are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.tree import copy_open

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from store.message_store import MessageStore

PAGE = 4096
SECTOR = 512
CHECKPOINTS = ("checkpoint", "checkpoint.previous")


def power_loss(store: MessageStore, target: Path, chance: random.Random) -> int:
    """Write the image of the open store to `target`; returns the offset that was flushed.

    Nothing else may be at work in the store: a copy that is made while it is has parts of different
    moments, which no power loss leaves.
    """
    flushed = store.flushed_offset
    copy_open(store.config.root, target)
    lose_unflushed(target, flushed, store.config.segment_bytes, chance)
    return flushed


def lose_unflushed(root: Path, flushed: int, segment_bytes: int, chance: random.Random) -> None:
    """Of a store at rest the log loses pages at and above the offset `flushed`."""
    for path in sorted((root / "commitlog").iterdir()):
        start = int(path.name)
        if start + segment_bytes > flushed:
            path.write_bytes(lose(path.read_bytes(), max(0, flushed - start), chance))


def lose(data: bytes, durable: int, chance: random.Random) -> bytes:
    """`data` with pages at and above position `durable` kept, zeroed or torn."""
    image = bytearray(data)
    for page in range(durable - durable % PAGE, len(image), PAGE):
        fate = chance.choice(("kept", "zeroed", "torn"))
        for sector in range(page, page + PAGE, SECTOR):
            if fate == "kept" or (fate == "torn" and chance.random() < 0.5):
                continue
            first = max(sector, durable)
            if first < sector + SECTOR:
                image[first : sector + SECTOR] = bytes(sector + SECTOR - first)
    return bytes(image)


def flip(path: Path, position: int, mask: int) -> None:
    """Change bits of one byte of the file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def lose_checkpoints(root: Path) -> None:
    """Neither file that says what is durable is there any more."""
    for name in CHECKPOINTS:
        (root / name).unlink(missing_ok=True)


def damage_checkpoints(root: Path) -> None:
    """Neither file that says what is durable can be read."""
    for name in CHECKPOINTS:
        (root / name).write_bytes(b"x" * 4096)
