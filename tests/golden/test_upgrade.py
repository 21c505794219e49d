"""A store of format 1 is upgraded once and in place, interrupted anywhere or not."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kvcq.upgrade
import store.store_dir
from kvcq.backup import Cut, open_place, restore
from kvcq.backup.copying import CopyPlan, Source, copy_files
from kvcq.backup.manifest import Backup, _sealed, id_of, manifest_name, pack_manifest
from kvcq.backup.reading import read_backup
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.inspect import inspect_store
from kvcq.inspect.findings import Kind
from kvcq.snapshots import DIRECTORY, snapshots_in
from kvcq.snapshots.snapshot import Snapshot
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, STATE
from kvcq.tables.values import unpack_i64
from store.errors import DiskFullError, StoreFormatError, UnknownQueueError, UnknownTopicError
from store.message import Message
from store.notes import Notes
from store.store_dir import FORMAT_VERSION, StoreDir
from tests.golden.make_stores import ANSWERED_MS, SEGMENT_BYTES, make_million
from tests.golden.test_earlier_versions import (
    answered,
    answers_now,
    assert_same,
    name,
    open_then,
    root,
)
from tests.support.checked import assert_whole
from tests.support.rebuild import differences
from tests.support.seeds import seeds
from tests.support.tree import copy_open, tree_digest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["answered", "name", "root"]  # fixtures

pytestmark = pytest.mark.crash

#: What an upgrade does, in places where it may be killed.
STEPS: list[tuple[object, str]] = [
    (RocksEngine, "write"),
    (RocksEngine, "flush"),
    (RocksEngine, "back_up"),
    (Snapshot, "write"),
    (Snapshot, "seal"),
    (StoreDir, "begin_state"),
    (StoreDir, "mark_open"),
    (Notes, "put"),
    (kvcq.upgrade, "finish"),
    (kvcq.upgrade, "move_aside"),
]


def assert_upgraded(root: Path, answered: dict[str, Any]) -> None:
    """Opened as often as one likes, it answers the same, with and without its database."""
    for _ in range(2):
        with open_then(root) as opened:
            assert_same(answers_now(opened, root), answered)
            assert differences(opened) == []
    assert StoreDir(root).format_version == FORMAT_VERSION
    assert_whole(root)


def test_what_an_upgrade_kept_goes_at_a_clean_stop(root: Path) -> None:
    assert [finding.kind for finding in inspect_store(root).findings] == [Kind.OLD_FORMAT]
    with open_then(root):
        assert list(root.glob("meta.format-1-*"))
        assert not (root / "meta").exists()
        copy_open(root, root.with_name("killed"))
    assert not list(root.glob("meta*"))
    with open_then(root.with_name("killed")):
        assert list(root.with_name("killed").glob("meta.format-1-*"))
    assert not list(root.with_name("killed").glob("meta*"))


@pytest.mark.parametrize("copies", [True, False])
def test_nothing_of_an_upgraded_store_is_in_its_database_alone(
    root: Path, answered: dict[str, Any], copies: bool
) -> None:
    with open_then(root):
        pass
    shutil.rmtree(root / "kvcq")
    if not copies:
        for path in (root / DIRECTORY).glob("*/copy"):
            shutil.rmtree(path)
    with open_then(root) as opened:
        opened._services.kept_bytes.run()  # what is counted is in no snapshot
        for queue in answered["queues"]:
            topic, number = queue.rsplit(":", 1)
            opened.bounds([(topic, int(number))])
        opened._services.kept_bytes.run()
        assert_same(answers_now(opened, root), answered)
        assert differences(opened) == []


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_an_upgrade_that_is_killed_anywhere_is_done_by_the_next_opening(
    root: Path, answered: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images: list[Path] = []

    def killed_before(owner: object, called: str) -> None:
        call: Callable[..., object] = vars(owner)[called]
        is_class_method = isinstance(call, classmethod)
        if is_class_method:
            call = getattr(owner, called)

        def doing(*arguments: object, **named: object) -> object:
            if threading.current_thread() is threading.main_thread():
                image = tmp_path / f"image-{len(images):03}-{called}" / "store"
                copy_open(root, image)
                shutil.copy2(root.with_name("store.key"), image.with_name("store.key"))
                images.append(image)
            return call(*arguments, **named)

        monkeypatch.setattr(owner, called, staticmethod(doing) if is_class_method else doing)

    for step in STEPS:
        killed_before(*step)
    opened = open_then(root)
    monkeypatch.undo()
    opened.close()
    assert len(images) > 20
    assert len({image.parent.name.split("-", 2)[2] for image in images}) >= 8
    for image in images:
        # Killed again, in the same place or another one: nothing is done twice.
        with open_then(image) as opened:
            assert_same(answers_now(opened, image), answered)
            assert differences(opened) == [], image.parent.name
        with open_then(image) as opened:
            assert_same(answers_now(opened, image), answered)
        assert_whole(image)
        shutil.rmtree(image.parent)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_an_upgrade_that_is_killed_again_and_again_comes_to_its_end(
    root: Path,
    answered: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    at = root
    for number in range(12):
        image = tmp_path / f"life-{number}" / "store"
        with monkeypatch.context() as patch:
            kill_at_a_write(at, image, chance, patch)
            opened = open_then(at)
        opened.close()
        if not image.exists():
            break
        at = image
    assert number > 0
    assert_upgraded(at, answered)


def kill_at_a_write(
    at: Path, image: Path, chance: random.Random, patch: pytest.MonkeyPatch
) -> None:
    """What a kill at one of the next writes leaves is in `image`, if there are so many."""
    left = chance.randrange(1, 9)
    write = RocksEngine.write

    def killed(engine: RocksEngine, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        nonlocal left
        left -= 1
        if left == 0:
            copy_open(at, image)
            shutil.copy2(at.with_name("store.key"), image.with_name("store.key"))
        write(engine, *arguments, **named)
        if chance.random() < 0.3:
            engine.flush()  # as RocksDB may at any time

    patch.setattr(RocksEngine, "write", killed)


def test_an_older_program_refuses_an_upgraded_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_then(root):
        pass
    before = tree_digest(root)
    monkeypatch.setattr(store.store_dir, "FORMAT_VERSION", 1)
    with pytest.raises(StoreFormatError, match="format 2, this program knows up to 1: use a newer"):
        open_then(root)
    assert tree_digest(root) == before


@pytest.mark.parametrize("what", ["lost", "empty", "damaged"])
def test_without_its_metadata_a_store_of_format_1_is_refused_and_left_as_it_is(
    root: Path, what: str
) -> None:
    if what == "damaged":
        for path in (root / "meta").glob("MANIFEST-*"):
            path.write_bytes(b"x" * 100)
    else:
        shutil.rmtree(root / "meta")
        if what == "empty":
            (root / "meta").mkdir()
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=r"meta.*Restore it"):
            open_then(root)
    assert StoreDir(root).format_version == 1
    assert snapshots_in(root / DIRECTORY) == []


def test_disk_and_time_are_told_and_a_disk_without_room_stops_it_before_anything_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = tree_digest(root / "meta")
    with monkeypatch.context() as patch:
        patch.setattr(kvcq.upgrade, "free_bytes", lambda _: 1000)
        with pytest.raises(DiskFullError, match=r"its upgrade takes .* of which 1000 are free"):
            open_then(root)
    assert StoreDir(root).format_version == 1
    assert tree_digest(root / "meta") == before
    with caplog.at_level("INFO"), open_then(root):
        pass
    assert "is upgraded to format 2: about 1 s, and " in caplog.text
    assert StoreDir(root).format_version == FORMAT_VERSION


def old_backup(root: Path, url: str) -> Backup:
    """The backup that version 0.1 would have made of the stopped store."""
    families = tuple(each for each in DERIVED.families if each.name != STATE)
    then = replace(DERIVED, families=families)
    with closing(RocksEngine.open_read_only(root / "kvcq", then)) as engine:
        end = unpack_i64(engine.get(BOUNDS, DISPATCHED_KEY) or bytes(8))
    segments = sorted(path for path in (root / "commitlog").iterdir() if int(path.name) < end)
    start = int(segments[0].name)
    sources = [
        Source(
            f"commitlog/{path.name}",
            str(path),
            min(SEGMENT_BYTES, end - int(path.name)),
            may_link=False,
        )
        for path in segments
    ]
    others = [root / "store.json"]
    for folder in ("kvcq", "meta"):
        others += [path for path in (root / folder).iterdir() if path.is_file()]
    sources += [
        Source(str(path.relative_to(root)), str(path), path.stat().st_size, may_link=False)
        for path in others
        if not path.name.startswith(("LOCK", "LOG"))
    ]
    created = json.loads((root / "store.json").read_bytes())["created_ms"]
    taken = id_of(ANSWERED_MS)
    backup = Backup(taken, ANSWERED_MS, created, SEGMENT_BYTES, start, end, ())
    open_place(url, make=True)
    done = copy_files(CopyPlan(url, backup, tuple(sources), 0, False), lambda *_: None)
    document = json.loads(pack_manifest(done.backup))
    del document["crc32c"]
    place = open_place(url)
    place.put_bytes(manifest_name(taken), _sealed({**document, "form": 1}))
    return read_backup(place, taken)


def test_a_backup_of_version_0_1_restores(
    root: Path, name: str, answered: dict[str, Any], tmp_path: Path
) -> None:
    if name == "killed":
        pytest.skip("a backup is of a store that runs: its databases are at one point")
    backup = old_backup(root, str(tmp_path / "b"))
    again = tmp_path / "again" / "store"
    restored = restore(open_place(str(tmp_path / "b")), backup, again)
    shutil.copy2(root.with_name("store.key"), again.with_name("store.key"))
    assert restored.end_offset == backup.end_offset
    assert_upgraded(again, answered)


def test_a_backup_of_version_0_1_restores_to_a_point(
    root: Path, name: str, answered: dict[str, Any], tmp_path: Path
) -> None:
    if name == "killed":
        pytest.skip("a backup is of a store that runs: its databases are at one point")
    backup = old_backup(root, str(tmp_path / "b"))
    middle = (backup.start_offset + backup.end_offset) // 2
    again = tmp_path / "again"
    cut = Cut(until_offset=middle)
    restored = restore(open_place(str(tmp_path / "b")), backup, again, cut)
    assert restored.end_offset <= middle
    with open_then(again) as opened:
        assert opened.log.appended_offset >= restored.end_offset
        for queue, then in answered["queues"].items():
            topic, number = queue.rsplit(":", 1)
            with suppress(UnknownTopicError, UnknownQueueError):
                assert opened.bounds([(topic, int(number))])[0].max_offset <= then["bounds"][1]
        for group in opened.list_groups(None, 99):
            for topic, queue_id, offset in opened.list_committed(group, None, 99):
                assert offset <= opened.queues.next_offsets([(topic, queue_id)])[0]
        assert differences(opened) == []
        opened.put([Message("orders", b"behind")])
    assert_whole(again)


# --- a million topics ----------------------------------------------------------------------

#: Written by this version of the program, which had format 1.
_OLD = "3ab55f40"


def topics_of(root: Path) -> tuple[int, str]:
    """How many topics there are, and a digest of what each and its offset is."""
    digest = hashlib.sha256()
    count = 0
    with open_then(root) as opened:
        after: str | None = None
        while page := opened.list_topics("", after, 10_000):
            after = page[-1].name
            count += len(page)
            names = [(topic.name, 0) for topic in page]
            rows = zip(
                page,
                opened.queues.next_offsets(names),
                opened.committed_offsets("million", names),
                strict=True,
            )
            for (topic, *what), end, committed in rows:
                digest.update(repr((topic, what[0], end, committed)).encode())
    return count, digest.hexdigest()


def old_million(target: Path, count: int, scratch: Path) -> None:
    """Written by the old program, of the repository's history."""
    repository = Path(__file__).parents[2]
    scratch.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", _OLD], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("no history of the repository here: the older program is in it")
    subprocess.run(["tar", "-x", "-C", str(scratch)], input=archive.stdout, check=True)
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.golden.make_stores import make_million\n"
        f"make_million(Path(sys.argv[1]), {count})"
    )
    (scratch / "tests" / "golden").mkdir(parents=True, exist_ok=True)
    for file in ("make_stores.py", "__init__.py"):
        if not (scratch / "tests" / "golden" / file).exists():
            shutil.copy2(Path(__file__).with_name(file), scratch / "tests" / "golden" / file)
    subprocess.run(
        [sys.executable, "-c", script, str(target)],
        cwd=scratch,
        env={**os.environ, "PYTHONPATH": str(scratch)},
        check=True,
    )


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        pytest.param(5_000, 4, id="5000", marks=pytest.mark.slow),
        pytest.param(1_000_000, 100, id="million", marks=pytest.mark.soak),
    ],
)
@pytest.mark.timeout(0)
def test_a_store_with_many_topics_is_upgraded_whatever_kills_it(
    tmp_path: Path, count: int, kills: int
) -> None:
    root = tmp_path / "store"
    old_million(root, count, tmp_path / "old")
    assert StoreDir(root).format_version == 1
    other = tmp_path / "whole"
    make_million(other, count)
    expected = topics_of(other)
    shutil.rmtree(other)
    chance = random.Random(count)
    opening = (
        "import sys; from pathlib import Path\n"
        "from tests.golden.test_earlier_versions import open_then\n"
        "print('begun', flush=True)\n"
        "open_then(Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    killed = longest = 0.0
    shutil.copytree(root, tmp_path / "kept")
    while killed < kills:
        child = subprocess.Popen(
            [sys.executable, "-c", opening, str(root)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"begun\n"
        # An upgrade that is never left to its end must still be found at each of its steps.
        delay = chance.uniform(0, longest * 1.1 if longest else count / 30_000)
        with suppress(subprocess.TimeoutExpired):
            child.wait(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        was_open = b"open" in child.stdout.read()
        child.stdout.close()
        child.stdin.close()
        killed += 1
        if was_open:
            longest = max(longest, delay) if longest else delay
            if StoreDir(root).format_version == FORMAT_VERSION and killed < kills:
                shutil.rmtree(root)  # from the beginning once more
                shutil.copytree(tmp_path / "kept", root)
    assert topics_of(root) == expected
    assert_whole(root)
