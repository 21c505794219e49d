"""Set the derived database aside, so that the next opening makes it again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.clock import SystemClock
from store.errors import StoreFormatError
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path


def set_queues_aside(root: Path) -> Path | None:
    """`kvcq/` has another name; None when there was none. The log says everything that was in it.

    Raises StoreFormatError when `root` is no store of ours, StoreLockedError while it is open.
    """
    kind, identity = inspect(root)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, "is not a store of ours")
    directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
    try:
        return move_aside(directory.kvcq, "replaced") if directory.kvcq.exists() else None
    finally:
        directory.close()


def move_aside(path: Path, why: str) -> Path:
    """Rename to `<name>.<why>-<number>`, the first number that is free."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside
