"""Whose a directory is, who has it open, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import store.store_dir
from store.errors import StoreFormatError, StoreLockedError
from store.store_dir import DirKind, StoreDir, inspect
from tests.support.child_process import child_process

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 8192


class FakeClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_s(self) -> float:
        return 0.0


def opened(root: Path, *, size: int = SIZE, adopt: bool = False) -> StoreDir:
    return StoreDir.open(root, size, FakeClock(), adopt=adopt)


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_new_store_is_made_with_all_parents(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    assert inspect(root) == (DirKind.BLANK, None)
    opened(root).close()
    kind, identity = inspect(root)
    assert kind is DirKind.OURS
    assert identity is not None
    assert (identity.format_version, identity.created_ms, identity.segment_bytes) == (
        2,
        1_700_000_000_000,
        SIZE,
    )


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    opened(tmp_path).close()
    before = content(tmp_path)
    opened(tmp_path).close()
    assert content(tmp_path) == before


@pytest.mark.parametrize("leftover", [[], ["lock"], ["lock", "store.json.tmp"], ["lost+found"]])
def test_creation_cut_short_can_be_repeated(tmp_path: Path, leftover: list[str]) -> None:
    for name in leftover:
        (tmp_path / name).write_bytes(b"{ half")
    directory = opened(tmp_path)
    directory.close()
    assert inspect(tmp_path)[0] is DirKind.OURS


def test_a_crash_at_any_fsync_of_creation_leaves_a_directory_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    for survived in range(10):
        root = tmp_path / str(survived)
        left = [survived]

        def limited(descriptor: int, left: list[int] = left) -> None:
            if left[0] == 0:
                raise OSError(5, "planted: dies here")
            left[0] -= 1
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", limited)
        try:
            opened(root).close()
        except OSError:
            monkeypatch.setattr(os, "fsync", fsync)
            opened(root).close()
        else:
            assert survived > 1
            return
        finally:
            monkeypatch.setattr(os, "fsync", fsync)
    pytest.fail("creation has more than ten fsyncs")


# --- the lock ------------------------------------------------------------------------------


def test_second_open_in_one_process_is_refused_and_the_first_stays_locked(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(StoreLockedError, match=f"this process already, {os.getpid()}"):
        opened(tmp_path)
    # Had the refused one opened the lock file, closing it would have released the lock.
    assert "locked" in other_process(tmp_path)
    first.close()
    first.close()
    opened(tmp_path).close()


OTHER = """
import sys
from pathlib import Path
from store.base import SystemClock
from store.errors import StoreLockedError
from store.store_dir import StoreDir
try:
    directory = StoreDir.open(Path(sys.argv[1]), int(sys.argv[2]), SystemClock())
except StoreLockedError as error:
    print("locked", error.reason)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


def other_process(root: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", OTHER, str(root), str(SIZE)],
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    ).stdout


def test_another_process_is_told_the_pid_of_the_holder(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    assert other_process(tmp_path) == f"locked in use by process {os.getpid()}\n"
    directory.close()
    assert other_process(tmp_path) == "open\n"


@pytest.mark.crash
def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with child_process(
        [sys.executable, "-c", OTHER, str(tmp_path), str(SIZE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError, match=f"in use by process {child.pid}"):
            opened(tmp_path)
        child.kill()
    opened(tmp_path).close()


# --- directories that are refused ------------------------------------------------------------


def test_foreign_directory_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(StoreFormatError, match="not a store"):
        opened(tmp_path)
    assert content(tmp_path) == {"holiday.jpg": b"precious"}


@pytest.mark.parametrize("sign", ["checkpoint", "abort", "config", "consumequeue"])
def test_store_of_rocketmq_is_refused_with_the_way_on(tmp_path: Path, sign: str) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").write_bytes(b"lock")
    (tmp_path / sign).mkdir()
    with pytest.raises(StoreFormatError, match="kvcq migrate plan"):
        opened(tmp_path)
    assert sorted(content(tmp_path)) == ["lock"]
    opened(tmp_path, adopt=True).close()
    assert inspect(tmp_path)[0] is DirKind.OURS
    opened(tmp_path).close()


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFormatError, match="not a directory"):
        opened(tmp_path / "file")


def test_other_segment_size_is_refused_with_the_right_one(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreFormatError, match=f"--set store.segment_bytes={SIZE}"):
        opened(tmp_path, size=2 * SIZE)


def test_newer_format_is_refused_whatever_else_it_says(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(json.dumps({"product": "kvcq", "format_version": 3}))
    with pytest.raises(StoreFormatError, match="use a newer program"):
        opened(tmp_path)
    assert sorted(content(tmp_path)) == ["store.json"]


def test_older_program_meets_a_newer_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    monkeypatch.setattr(store.store_dir, "FORMAT_VERSION", 0)
    with pytest.raises(StoreFormatError, match="use a newer program"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ('{"product": "kvcq", "form', "not JSON"),
        ("\xff", "not JSON"),
        ("[]", "not of a kvcq store"),
        ('{"product": "other"}', "not of a kvcq store"),
        ('{"product": "kvcq"}', "format_version is None"),
        ('{"product": "kvcq", "format_version": "1"}', "format_version is '1'"),
        ('{"product": "kvcq", "format_version": true}', "format_version is True"),
        (
            '{"product": "kvcq", "format_version": 1, "created_ms": 5, "segment_bytes": -1}',
            "segment_bytes is -1",
        ),
    ],
)
def test_damaged_identity_is_refused_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "store.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreFormatError, match=reason) as caught:
        opened(tmp_path)
    assert caught.value.path == tmp_path / "store.json"


def test_any_flipped_bit_of_the_identity_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "store.json"
    sound = path.read_bytes()
    for position in range(len(sound) - 1):  # the last byte is a line's end
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(StoreFormatError):
                inspect(tmp_path)


def test_another_number_in_the_identity_is_told_with_what_to_do(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "store.json"
    document = json.loads(path.read_text())
    document["segment_bytes"] *= 2
    path.write_text(json.dumps(document))
    with pytest.raises(StoreFormatError, match="checksum does not match") as caught:
        opened(tmp_path, size=2 * SIZE)
    assert "length of the files in commitlog/" in str(caught.value)


def test_an_identity_laid_out_anew_is_still_sound(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    opened(tmp_path).close()


def test_an_identity_without_a_checksum_is_read(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "store.json"
    document = json.loads(path.read_text())
    document = {  # as version 0.1 wrote them in the beginning
        name: document[name]
        for name in ("product", "format_version", "created_ms", "segment_bytes")
    }
    path.write_text(json.dumps(document))
    opened(tmp_path).close()
    document["crd"] = 5  # a checksum whose name was damaged
    path.write_text(json.dumps(document))
    with pytest.raises(StoreFormatError, match="checksum does not match"):
        opened(tmp_path)


def test_refused_open_leaves_no_lock_behind(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreFormatError):
        opened(tmp_path, size=2 * SIZE)
    opened(tmp_path).close()


# --- how it ended ----------------------------------------------------------------------------


def test_abort_marker_tells_a_crash_from_a_clean_close(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    # In the making it is not closed: a crash now must not look like a store that lost files.
    assert not directory.was_closed_cleanly
    directory.mark_open()
    assert directory.abort.read_text() == str(os.getpid())
    directory.close()  # without mark_clean: what a crash leaves
    directory = opened(tmp_path)
    assert not directory.was_closed_cleanly
    directory.mark_open()
    directory.mark_clean()
    directory.mark_clean()
    directory.close()
    assert opened_cleanly(tmp_path)


def opened_cleanly(root: Path) -> bool:
    directory = opened(root)
    try:
        return directory.was_closed_cleanly
    finally:
        directory.close()


@pytest.mark.parametrize("name", ["kvcq", "meta"])
def test_a_store_that_lost_its_identity_is_not_taken_for_rocketmqs(
    tmp_path: Path, name: str
) -> None:
    opened(tmp_path).close()
    for each in ("commitlog", "config", name):
        (tmp_path / each).mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(SIZE))
    (tmp_path / "store.json").unlink()
    before = content(tmp_path)
    text = ""
    for adopt in (False, True):
        with pytest.raises(StoreFormatError, match="is missing") as refused:
            opened(tmp_path, adopt=adopt)
        text = str(refused.value)
    assert content(tmp_path) == before
    # What the error says to write makes a store of it again.
    (tmp_path / "store.json").write_text(text[text.index("{") : text.index("}") + 1])
    opened(tmp_path).close()


def test_paths_are_those_of_the_layout(tmp_path: Path) -> None:
    directory = StoreDir(tmp_path)
    assert {
        path.name
        for path in (
            directory.commitlog,
            directory.kvcq,
            directory.meta,
            directory.consumequeue,
            directory.index,
            directory.checkpoint,
            directory.abort,
        )
    } == {"commitlog", "kvcq", "meta", "consumequeue", "index", "checkpoint", "abort"}
    assert list(tmp_path.iterdir()) == []
