"""kvcq/backup/pruning.py: what stays is whole, what goes is needed by nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcq.backup import list_backups, open_place, prune, restore, take_backup, verify
from kvcq.backup.directory import Directory
from kvcq.backup.manifest import id_of, manifest_name, pack_manifest
from kvcq.errors import BackupDamagedError, BackupRefusedError
from store.errors import InvalidArgumentError
from tests.support.backups import bodies, opened, put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.s3 import BUCKET
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.backup import Backup


@pytest.fixture(params=["directory", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "b")
    request.getfixturevalue("bucket_server")
    return f"s3://{BUCKET}/{request.node.name}"


def take(root: Path, url: str, clock: FakeClock) -> tuple[list[Backup], object]:
    """Three backups; the first segments leave the log before the last one."""
    found = []
    with open_small(root, clock, reserved_hours=0.01) as store:
        for number in range(3):
            if number == 2:
                clock.advance(3600)
                store.flush()
                assert store._services.retention.run_once(now=True) > 0
            put_some(store, clock, 30)
            found.append(take_backup(store, queues_of(store), url, clock=clock).backup)
        return found, bodies(store)


def test_what_stays_is_whole(url: str, tmp_path: Path) -> None:
    clock = FakeClock()
    backups, wanted = take(tmp_path / "store", url, clock)
    place = open_place(url)
    place.put_bytes("files/commitlog/left.1.00000000", b"x")
    told = prune(place, 1, only_tell=True)
    assert verify(place).unused == 1
    assert len(list_backups(place)) == 3
    pruned = prune(place, 1)
    assert pruned == told
    assert pruned.backup_ids == tuple(each.backup_id for each in backups[:2])
    needed = {file.name for file in backups[2].files}
    every = {file.name: file.size for each in backups for file in each.files}
    assert pruned.files == len(every) - len(needed) + 1
    assert pruned.size == 1 + sum(size for name, size in every.items() if name not in needed)
    found = verify(place)
    assert (found.backups, found.broken, found.unused) == (1, (), 0)
    restore(place, backups[2], tmp_path / "again")
    assert opened(tmp_path / "again", clock) == wanted
    assert prune(place, 1) == ((), 0, 0)


def test_nothing_goes_when_it_is_not_known_what_is_needed(tmp_path: Path) -> None:
    clock = FakeClock()
    backups, _ = take(tmp_path / "store", str(tmp_path / "b"), clock)
    manifest = tmp_path / "b" / manifest_name(backups[2].backup_id)
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-9])
    place = open_place(str(tmp_path / "b"))
    before = sorted((tmp_path / "b").rglob("*"))
    with pytest.raises(BackupDamagedError):
        prune(place, 2)
    for keep in (0, -1):
        with pytest.raises(InvalidArgumentError):
            prune(place, keep)
    assert sorted((tmp_path / "b").rglob("*")) == before
    manifest.write_bytes(data)
    assert len(prune(place, 2).backup_ids) == 1
    assert verify(place).broken == ()


def test_a_place_without_a_backup_keeps_what_one_has_begun(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "b"), make=True)
    place.put_bytes("files/commitlog/begun.1.00000000", b"x")
    assert prune(place, 1) == ((), 0, 0)
    assert list(place.sizes("files/")) == ["files/commitlog/begun.1.00000000"]


@pytest.mark.parametrize("at", ["manifest", "file"])
def test_a_backup_that_ends_meanwhile_is_told_of(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shares files with those that go."""
    clock = FakeClock()
    url = str(tmp_path / "b")
    take(tmp_path / "store", url, clock)
    place = open_place(url)
    old, newest = list_backups(place)[-2:]
    late = replace(old, backup_id=id_of(newest.taken_ms + 1), taken_ms=newest.taken_ms + 1)
    plain_remove = type(place).remove

    def remove(self: Directory, name: str) -> None:
        plain_remove(self, name)
        if at == ("manifest" if name.startswith("backups/") else "file"):
            self.put_bytes(manifest_name(late.backup_id), pack_manifest(late))

    monkeypatch.setattr(Directory, "remove", remove)
    wanted = "prune again" if at == "manifest" else "has lost some"
    with pytest.raises(BackupRefusedError, match=wanted):
        prune(place, 1)
    broken = {each.name for each in verify(place).broken}
    assert bool(broken) == (at == "file")


def test_a_place_below_the_files_of_another_is_left_alone(tmp_path: Path) -> None:
    clock = FakeClock()
    take(tmp_path / "store", str(tmp_path / "b"), clock)
    take(tmp_path / "other", str(tmp_path / "b" / "files"), clock)
    outer, inner = (open_place(str(tmp_path / name)) for name in ("b", "b/files"))
    assert verify(outer).unused == 0
    prune(outer, 1)
    assert (len(list_backups(outer)), len(list_backups(inner))) == (1, 3)
    assert verify(inner).broken == verify(outer).broken == ()


def test_what_a_backup_that_was_killed_was_putting_goes_too(tmp_path: Path) -> None:
    clock = FakeClock()
    take(tmp_path / "store", str(tmp_path / "b"), clock)
    take(tmp_path / "other", str(tmp_path / "b" / "files"), clock)
    left = tmp_path / "b/files/commitlog/00000000000000000000.tmp"
    of_another = tmp_path / "b/files/files/commitlog/00000000000000000000.tmp"
    for path in (left, of_another):
        path.write_bytes(b"half")
    place = open_place(str(tmp_path / "b"))
    prune(place, 1, only_tell=True)
    assert left.exists()
    prune(place, 1)
    assert not left.exists()
    assert of_another.exists()
