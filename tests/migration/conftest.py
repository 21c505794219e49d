"""A store on files, with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checked import checked
from tests.support.migrating import config, make_on_files, messages, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_on_files(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, damaged: bool) -> Iterator[MessageStore]:
    """On files, with 600 messages."""
    with checked(open_store(config(root)), damaged=damaged) as opened:
        opened.put(messages(0, 600))
        opened.wait_visible()
        yield opened
