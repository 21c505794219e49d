"""At its end, a store of a test is looked over by what `kvcq check` asks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from migration.check import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


def assert_whole(root: Path) -> None:
    """The stopped store holds what its log says, in all that is derived from it."""
    faults = [str(finding) for finding in check_store(root) if finding.is_fault]
    assert not faults, "\n".join(faults)


@contextmanager
def checked(store: MessageStore, *, damaged: bool = False) -> Iterator[MessageStore]:
    """The store until the end of the block. It is closed then, and looked over, unless it is one
    that the test damages on purpose.
    """
    with store:
        yield store
    if not damaged:
        assert_whole(store.config.root)
