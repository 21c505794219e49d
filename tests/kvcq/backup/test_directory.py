"""kvcq/backup/directory.py: no link below the place leads out of it, in or out of a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.backup import open_place, take_backup, verify
from kvcq.errors import BackupTargetError
from tests.support.backups import queues_of

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_a_link_in_place_of_a_directory_is_not_written_through(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    place, outside = tmp_path / "backups", tmp_path / "outside"
    outside.mkdir()
    take_backup(store, queues_of(store), str(place), clock=clock)
    [directory] = [path for path in place.iterdir() if path.is_dir()][:1]
    directory.rename(tmp_path / "moved")
    directory.symlink_to(outside)
    with pytest.raises(BackupTargetError, match="is a symbolic link"):
        take_backup(store, queues_of(store), str(place), clock=clock)
    assert list(outside.iterdir()) == []


def test_a_link_in_place_of_a_file_is_not_read(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    place, secret = tmp_path / "backups", tmp_path / "secret"
    take_backup(store, queues_of(store), str(place), clock=clock)
    largest = max(
        (path for path in place.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    largest.rename(secret)
    largest.symlink_to(secret)
    with pytest.raises(BackupTargetError, match="is a symbolic link"):
        verify(open_place(str(place)))
    with pytest.raises(BackupTargetError, match="is a symbolic link"):
        list(open_place(str(place)).read(largest.relative_to(place).as_posix()))


def test_the_place_itself_may_be_a_link(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "backups").symlink_to(tmp_path / "disk")
    take_backup(store, queues_of(store), str(tmp_path / "backups"), clock=clock)
    assert verify(open_place(str(tmp_path / "backups"))).broken == ()
