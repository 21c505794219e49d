"""kvcq/backup/verifying.py: every byte counts, and nothing is written."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NoReturn

import pytest

from kvcq.backup import list_backups, open_place, take_backup, verify
from kvcq.backup.directory import Directory
from kvcq.backup.manifest import MARKER, manifest_name, pack_marker
from kvcq.errors import BackupRefusedError, BackupTargetError
from tests.support.backups import put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.backup import Backup


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 30)
        return take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock).backup


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_whole_backup_is_whole(backup: Backup, tmp_path: Path) -> None:
    before = contents(tmp_path / "b")
    shares: list[float] = []
    found = verify(open_place(str(tmp_path / "b")), None, lambda _step, share: shares.append(share))
    assert found == (1, len(backup.files), backup.size, (), 0)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert contents(tmp_path / "b") == before


def test_a_turned_bit_anywhere_is_found(backup: Backup, tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "b"))
    for number, file in enumerate(backup.files):
        path = tmp_path / "b" / file.name
        data = path.read_bytes()
        for at in {0, file.size - 1, (number + 1) * 104729 % file.size} if file.size else set():
            turned = bytearray(data)
            turned[at] ^= 1 << number % 8
            path.write_bytes(turned)
            [broken] = verify(place).broken
            assert (broken.name, broken.backups) == (file.name, (backup.backup_id,))
            assert "CRC-32C" in broken.reason
        path.write_bytes(data)
    assert verify(place).broken == ()


@pytest.mark.parametrize("fault", ["bit", "gone", "other"])
def test_what_says_whose_backups_these_are_is_looked_at_and_written_again(
    backup: Backup, tmp_path: Path, fault: str
) -> None:
    place = open_place(str(tmp_path / "b"))
    marker = tmp_path / "b" / MARKER
    sound = marker.read_bytes()
    match fault:
        case "gone":
            marker.unlink()
        case "bit":
            marker.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
        case _:
            marker.write_bytes(pack_marker(backup.store_created_ms + 1, backup.segment_bytes))
    [broken] = verify(place).broken
    assert (broken.name, broken.backups) == (MARKER, (backup.backup_id,))
    clock = FakeClock()
    if fault == "other":
        return
    with (
        open_small(tmp_path / "other", FakeClock(7)) as other,
        pytest.raises(BackupRefusedError, match="another store"),
    ):
        take_backup(other, queues_of(other), str(tmp_path / "b"), clock=clock)
    with open_small(tmp_path / "store", clock) as store:
        take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    assert marker.read_bytes() == sound
    assert verify(place).broken == ()


def test_files_that_are_missing_or_short_are_found(backup: Backup, tmp_path: Path) -> None:
    first, second = backup.files[0], backup.files[1]
    (tmp_path / "b" / first.name).unlink()
    path = tmp_path / "b" / second.name
    path.write_bytes(path.read_bytes()[:-1])
    broken = {each.name: each.reason for each in verify(open_place(str(tmp_path / "b"))).broken}
    assert broken[first.name] == "is missing"
    assert broken[second.name] == f"has {second.size - 1} bytes, not {second.size}"
    assert len(broken) == 2


def test_a_damaged_manifest_is_told(backup: Backup, tmp_path: Path) -> None:
    path = tmp_path / "b" / manifest_name(backup.backup_id)
    path.write_bytes(path.read_bytes().replace(b'"bytes": ', b'"bytes": 1', 1))
    [broken] = verify(open_place(str(tmp_path / "b"))).broken
    assert broken.name == manifest_name(backup.backup_id)
    assert "checksum" in broken.reason


def test_what_no_backup_names_is_counted(backup: Backup, tmp_path: Path) -> None:
    (tmp_path / "b" / "files" / "commitlog" / "x.1.00000000").write_bytes(b"x")
    found = verify(open_place(str(tmp_path / "b")))
    assert (found.unused, found.broken) == (1, ())


def test_no_backup_is_not_a_whole_one(backup: Backup, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BackupRefusedError, match="no complete backup"):
        verify(open_place(str(tmp_path / "empty")))
    with pytest.raises(BackupRefusedError, match="no backup '19700101T000000"):
        verify(open_place(str(tmp_path / "b")), "19700101T000000.000Z")
    with pytest.raises(BackupRefusedError, match="no backup"):
        verify(open_place(str(tmp_path / "b")), f"../{backup.backup_id}")


def test_a_file_that_the_disk_does_not_give_is_one_of_them(
    backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are looked at all the same."""
    read = Directory.read
    bad = backup.files[0].name

    def failing(self: Directory, name: str) -> Iterator[bytes]:
        if name != bad:
            return read(self, name)
        error = OSError(errno.EIO, "Input/output error", name)
        raise self._failed(error) from error

    monkeypatch.setattr(Directory, "read", failing)
    found = verify(open_place(str(tmp_path / "b")))
    assert [(one.name, one.reason) for one in found.broken] == [
        (bad, "cannot be read: Input/output error")
    ]


def test_a_directory_that_may_not_be_read_is_not_an_empty_one(
    backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_place(str(tmp_path / "b"))
    assert [one.backup_id for one in list_backups(place)] == [backup.backup_id]

    def denied(path: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(BackupTargetError, match="backups: Permission denied"):
        list_backups(place)
