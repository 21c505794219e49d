"""A store whose files are removed while it is open: noticed, and nothing more is acknowledged."""

from __future__ import annotations

import contextlib
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.errors import StoreFailedError
from store.message import Message
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _remove(root: Path) -> None:
    shutil.rmtree(root)


def _remove_the_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def _remove_the_lock(root: Path) -> None:
    (root / "lock").unlink()


def _remove_the_database(root: Path) -> None:
    shutil.rmtree(root / "kvcq")


def _replace(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))
    root.mkdir()


@pytest.mark.parametrize(
    "mode", [FlushMode.SYNC, pytest.param(FlushMode.ASYNC, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "remove", [_remove, _remove_the_log, _remove_the_lock, _remove_the_database, _replace]
)
def test_no_put_is_acknowledged_into_files_that_are_gone(
    tmp_path: Path, remove: Callable[[Path], None], mode: FlushMode
) -> None:
    root = tmp_path / "store"
    store = open_small(root, flush_mode=mode)
    failed = threading.Event()
    store.health.when_failed(failed.set)
    store.put([Message("T", b"x")])
    store.maintain()
    assert not failed.is_set()
    remove(root)
    store.maintain()
    assert failed.is_set()
    for _ in range(2):
        with pytest.raises(StoreFailedError, match="removed or replaced"):
            store.put([Message("T", b"y")])
        store.maintain()
    assert len(store.pull("T", 0, 0).records) == 1, "what is still readable is read"
    with contextlib.suppress(StoreFailedError):
        store.close()
    assert not (root / "checkpoint").exists() or (root / "abort").exists(), "not a clean end"


@pytest.mark.parametrize(
    ("remove", "what_to_do"),
    [(_remove_the_database, "a restart rebuilds it"), (_remove_the_log, "put the files back")],
)
def test_the_log_says_what_to_do(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    remove: Callable[[Path], None],
    what_to_do: str,
) -> None:
    store = open_small(tmp_path)
    store.put([Message("T", b"x")])
    remove(tmp_path)
    store.maintain()
    store.maintain()
    [line] = caplog.messages
    assert what_to_do in line
    with contextlib.suppress(StoreFailedError):
        store.close()


def test_closing_is_no_failure(tmp_path: Path) -> None:
    failed = threading.Event()
    with open_small(tmp_path) as store:
        store.health.when_failed(failed.set)
        store.put([Message("T", b"x")])
    assert not failed.is_set()
