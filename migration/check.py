"""Looks a stopped store over, whichever sides it has. Changes no byte."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcq.inspect import CheckResult, Finding, Kind, look_over, open_database
from migration.state import STATE_FILE, Phase, Routes, SideName, read_state
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from kvcq.inspect import OpenedStore, Side

#: RocksDB is not there, nor meant to be.
_ON_FILES = (Phase.ADOPTING, Phase.FILES)


def check_store(root: Path, progress: Callable[[str, float], None] | None = None) -> list[Finding]:
    """The findings of `examine_store`; [] is a clean store."""
    return examine_store(root, progress).findings


def examine_store(root: Path, progress: Callable[[str, float], None] | None = None) -> CheckResult:
    """What is to be said about the store in `root`, with all its sides; see `look_over`."""
    return look_over(root, progress, _sides)


def _sides(opened: OpenedStore, stack: ExitStack) -> list[Side]:
    sides: list[Side] = []
    root = opened.directory.root
    try:
        state = read_state(root)
    except StoreFormatError as error:
        opened.findings.add(Kind.IDENTITY, STATE_FILE, "a state that can be read", error.reason)
        state = None
    split = None
    if state is not None:
        split = partial(Routes(state.phase, state.routing).split, side=SideName.ROCKSDB)
        if (root / "consumequeue").exists():
            alone = state.phase in _ON_FILES
            first = "kvcq migrate start, then " if alone else ""
            opened.findings.add(
                Kind.FILES_UNREAD,
                "consumequeue",
                "files that agree with the log",
                "files that were not looked at",
                note=f"Queue files and index files (state {state.phase.value.upper()}) are not "
                f"looked at here; {first}kvcq migrate verify compares them with the log.",
            )
    if state is None or state.phase not in _ON_FILES or opened.directory.kvcq.exists():
        side = open_database(opened, stack, split)
        if side is not None:
            sides.append(side)
    return sides
