"""kvcq/backup/bucket.py against a server of S3: backups, and what goes wrong on the way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from kvcq.backup import Cut, choose_by_id, list_backups, open_place, restore, take_backup, verify
from kvcq.backup.process import copy_in_process
from kvcq.errors import BackupDamagedError, BackupRefusedError, BackupTargetError
from tests.support.backups import bodies, opened, put_some, queues_of
from tests.support.s3 import BUCKET
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


@pytest.fixture
def url(bucket_server: str, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def test_a_backup_in_a_bucket_is_restored(
    url: str, store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    first = take_backup(store, queues_of(store), url, clock=clock)
    wanted = bodies(store)
    put_some(store, clock, 30)
    second = take_backup(store, queues_of(store), url, copy=copy_in_process, clock=clock)
    whole = sum(file.size == SEGMENT_BYTES for file in first.backup.segments)
    assert second.new_bytes <= second.backup.size - whole * SEGMENT_BYTES
    place = open_place(url)
    assert [each.backup_id for each in list_backups(place)] == [
        first.backup.backup_id,
        second.backup.backup_id,
    ]
    assert verify(place) == (2, verify(place).files, verify(place).size, (), 0)
    restore(place, choose_by_id(place, first.backup.backup_id), tmp_path / "first")
    assert opened(tmp_path / "first", clock) == wanted
    restore(open_place(url.replace("s3://", "s3a://")), second.backup, tmp_path / "second")
    assert opened(tmp_path / "second", clock) == bodies(store)
    cut = Cut(until_ms=first.backup.taken_ms - 20_000)
    restored = restore(place, second.backup, tmp_path / "cut", cut)
    assert restored.last_time_ms == cut.until_ms
    assert len(opened(tmp_path / "cut", clock)["T0", 0]) == 60


def test_a_large_file_is_put_in_parts(url: str, clock: FakeClock, tmp_path: Path) -> None:
    with open_small(tmp_path / "store", clock, segment_bytes=24 << 20) as store:
        put_some(store, clock, 12, size=400_000)
        taken = take_backup(store, queues_of(store), url, clock=clock)
        wanted = bodies(store)
        assert taken.backup.segments[0].size > 16 << 20
        place = open_place(url)
        assert verify(place).broken == ()
        restore(place, taken.backup, tmp_path / "again")
    with open_small(tmp_path / "again", clock, segment_bytes=24 << 20) as again:
        assert bodies(again) == wanted


def test_damage_in_a_bucket_is_found(
    url: str, store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    taken = take_backup(store, queues_of(store), url, clock=clock)
    place = open_place(url)
    file = taken.backup.files[0]
    data = b"".join(place.read(file.name))
    place.put_bytes(file.name, data[:-1] + bytes([data[-1] ^ 1]))
    [broken] = verify(place).broken
    assert broken.name == file.name
    with pytest.raises(BackupDamagedError):
        restore(place, taken.backup, tmp_path / "again")
    place.put_bytes(file.name, data[:-1])
    assert "bytes, not" in verify(place).broken[0].reason


def test_a_copy_that_is_cut_short_is_no_backup(
    url: str, store: MessageStore, clock: FakeClock
) -> None:
    class CutShortError(Exception):
        pass

    def cut_at(share: float) -> None:
        def report(_step: str, done: int, total: int) -> None:
            if total and done > total * share:
                raise CutShortError

        with pytest.raises(CutShortError):
            take_backup(store, queues_of(store), url, report=report, clock=clock)

    cut_at(0.0)  # within a request
    cut_at(0.7)
    place = open_place(url)
    assert list_backups(place) == []
    taken = take_backup(store, queues_of(store), url, clock=clock)
    assert taken.new_bytes <= taken.backup.size - 2 * SEGMENT_BYTES
    assert verify(place).broken == ()


def test_what_the_bucket_refuses_is_told_with_what_to_do(
    bucket_server: str, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcq.backup.bucket._TRIES", 0)

    def refused(url: str) -> str:
        told = []
        for use in (
            lambda: take_backup(store, queues_of(store), url, copy=copy_in_process),
            lambda: open_place(url).put_bytes("x", b""),
            lambda: choose_by_id(open_place(url), None),
        ):
            with pytest.raises(BackupTargetError) as caught:
                use()
            told.append(str(caught.value))
        assert told == [told[0]] * 3
        assert "<" not in told[0], "nothing of the service's own documents"
        return told[0]

    kept = f"s3://{BUCKET}/x"
    missing = refused("s3://other/x")
    assert missing.startswith(f"s3://other/x: there is no bucket other at {bucket_server}: make it")
    try:
        _ask_for_keys(bucket_server, "0")
        assert "does not accept the keys: look at AWS_ACCESS_KEY_ID" in refused(kept)
    finally:
        _ask_for_keys(bucket_server, "inf")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert refused(kept).startswith(f"{kept}: http://127.0.0.1:1 cannot be reached: look at AWS_")


def _ask_for_keys(server: str, after: str) -> None:
    """Calls that moto takes whatever they are signed with; it knows no key."""
    kind = {"Content-Type": "text/plain"}
    with urlopen(Request(f"{server}/moto-api/reset-auth", after.encode(), kind)):
        pass


def test_a_missing_library_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BackupRefusedError, match=r"pip install 'kvcq\[s3\]'"):
        open_place("s3://bucket/x")
