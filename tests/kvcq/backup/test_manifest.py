"""kvcq/backup/manifest.py: round trip, damage, and what leads out of a store."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.backup.manifest import (
    FORM,
    Backup,
    BackupFile,
    _sealed,
    created_of_marker,
    id_of,
    is_file,
    manifest_name,
    pack_manifest,
    pack_marker,
    unpack_manifest,
)
from kvcq.errors import BackupDamagedError, BackupRefusedError

SEGMENT = 4096
LOG = (
    BackupFile(f"commitlog/{SEGMENT:020d}", SEGMENT, 1, (7, 8)),
    BackupFile(f"commitlog/{2 * SEGMENT:020d}", 100, 2),
)
BACKUP = Backup(
    id_of(1_700_000_000_123),
    1_700_000_000_123,
    5,
    SEGMENT,
    SEGMENT,
    2 * SEGMENT + 100,
    (
        *LOG,
        BackupFile("kvcq/000012.sst", 10, 3),
        BackupFile("store.json", 0, 0),
        BackupFile("notes/users", 7, 4),
        BackupFile(f"snapshots/{2 * SEGMENT + 100:020d}/state.sst", 9, 5),
    ),
)
NAME = manifest_name(BACKUP.backup_id)


def test_an_id_is_the_time_it_was_taken() -> None:
    assert BACKUP.backup_id == "20231114T221320.123Z"


def test_ids_rise_even_if_the_clock_falls() -> None:
    taken_ms = 1_700_000_000_999
    for earlier_ms in (0, 1, 3_600_000):
        after = id_of(taken_ms - earlier_ms, id_of(taken_ms))
        assert after == "20231114T221321.000Z"
    assert id_of(taken_ms + 5, id_of(taken_ms)) == id_of(taken_ms + 5)


@given(st.integers(0, 1 << 40), st.integers(0, (1 << 32) - 1), st.integers(0, 1 << 60))
def test_what_is_packed_is_unpacked(taken_ms: int, crc: int, mtime_ns: int) -> None:
    files = (*LOG, BackupFile("meta/CURRENT", 16, crc, (mtime_ns >> 3, mtime_ns)))
    backup = replace(BACKUP, taken_ms=taken_ms, backup_id=id_of(taken_ms), files=files)
    name = manifest_name(backup.backup_id)
    assert unpack_manifest(name, pack_manifest(backup)) == backup


def test_every_turned_bit_is_noticed() -> None:
    data = pack_manifest(BACKUP)
    for at in range(0, len(data) * 8, 7):
        turned = bytearray(data)
        turned[at // 8] ^= 1 << at % 8
        try:
            found = unpack_manifest(NAME, bytes(turned))
        except (BackupDamagedError, BackupRefusedError):
            continue
        assert found == BACKUP, "a bit of white space"


@pytest.mark.parametrize("end", [0, 1, 50, -2])
def test_a_part_of_a_manifest_is_none(end: int) -> None:
    with pytest.raises(BackupDamagedError):
        unpack_manifest(NAME, pack_manifest(BACKUP)[:end])


@pytest.mark.parametrize(
    "place",
    [
        "../store.json",
        "/etc/passwd",
        "kvcq/../../x",
        "commitlog/../meta/x",
        "other/x",
        "kvcq/a/b",
        "notes/../store.json",
        "snapshots/1/state.sst",
        "snapshots/../../state.sst",
        "snapshots/00000000000000000001/copy/CURRENT",
        "kvcq/",
        "",
        "kvcq/..",
        "a\nb",
        "a\0b",
    ],
)
def test_a_place_outside_a_store_is_refused(place: str) -> None:
    # With a checksum that fits: whoever can write to the bucket can make one.
    backup = replace(BACKUP, files=(*LOG, BackupFile(place, 1, 1)))
    with pytest.raises(BackupDamagedError, match="not a file of a store"):
        unpack_manifest(NAME, pack_manifest(backup))


@pytest.mark.parametrize(
    "files",
    [
        LOG[:1],
        LOG[1:],
        (),
        (LOG[0]._replace(size=SEGMENT - 1), LOG[1]),
        (LOG[0], LOG[1]._replace(size=101)),
        (LOG[1], LOG[0]),
    ],
)
def test_a_log_with_a_gap_is_refused(files: tuple[BackupFile, ...]) -> None:
    with pytest.raises(BackupDamagedError):
        unpack_manifest(NAME, pack_manifest(replace(BACKUP, files=files)))


def test_a_manifest_under_another_name_is_refused() -> None:
    other = manifest_name(id_of(1))
    with pytest.raises(BackupDamagedError, match="is the manifest of"):
        unpack_manifest(other, pack_manifest(BACKUP))


def test_files_of_a_store_have_names_that_are_known() -> None:
    for file in BACKUP.files:
        assert is_file(file.name)


def test_a_manifest_of_version_0_1_is_read() -> None:
    document = json.loads(pack_manifest(BACKUP))
    del document["crc32c"]
    assert unpack_manifest(NAME, _sealed({**document, "form": 1})) == BACKUP


def test_a_newer_form_is_not_damage() -> None:
    document = json.loads(pack_manifest(BACKUP))
    del document["crc32c"]
    with pytest.raises(BackupRefusedError, match="newer program"):
        unpack_manifest(NAME, _sealed({**document, "form": FORM + 1}))


def test_a_marker_names_its_store() -> None:
    data = pack_marker(17, SEGMENT)
    assert created_of_marker(data) == 17
    with pytest.raises(BackupDamagedError):
        created_of_marker(data.replace(b"17", b"18"))
