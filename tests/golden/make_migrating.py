"""Writes stores that stand in a migration, and are killed, with the program that runs it.

    python tests/golden/make_migrating.py DIRECTORY

Run it with an older program on the path to get the stores of that program: see README.md in
tests/golden/kvcq.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from migration.state.phase import Phase
from store.message import Message
from tests.support.migrating import (
    LIGHT,
    advance,
    config,
    make_on_files,
    messages,
    open_store,
)

COUNT = 640
COMMITTED = [("orders", 0, 7), (LIGHT, 0, 3)]
PHASES = (Phase.FILES, Phase.DOUBLE_WRITE)


def make(root: Path, phase: Phase) -> None:
    """A store in that phase, as a killed process leaves it; the process ends with it."""
    make_on_files(root)
    store = open_store(config(root))
    store.put(messages(0, 600))
    store.create_topics([("gone", 2)])
    store.put([Message("gone", b"x")] * 10)
    store.wait_visible()
    store.commit_offsets("group", COMMITTED)
    advance(store, phase)
    store.delete_topic("gone")
    store.put(messages(600, COUNT - 600))
    store.wait_visible()
    os._exit(0)


if __name__ == "__main__":
    for each in PHASES:
        if (child := os.fork()) == 0:
            make(Path(sys.argv[1]) / each.value, each)
        os.waitpid(child, 0)
