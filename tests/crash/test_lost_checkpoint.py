"""No opening removes a record that was durable, whatever became of the checkpoint files."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect.findings import Kind
from migration.check import check_store
from migration.repair.queues import set_queues_aside
from server.cli.on_disk.store_errors import unusable
from store.config import FlushMode
from store.errors import DamagedLogError, StoreError
from store.format import Checkpoint, unpack_record
from store.format.checkpoint import pack_checkpoint, read_checkpoint, read_noted
from store.log import SegmentSet, holds_record
from store.message import Message
from tests.crash.images import CHECKPOINTS, flip, lose_checkpoints, power_loss
from tests.support.seeds import seeds
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import copy_open, tree_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

_PUTS = 64


def bodies(store: MessageStore) -> list[bytes]:
    pulled = store.pull("T", 0, store.bounds([("T", 0)])[0].min_offset, max_messages=999)
    return [unpack_record(record).body for record in pulled.records]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five segments of acknowledged, fsynced puts, as SIGKILL leaves them; the checkpoints are of
    two thirds, and of a third."""
    base = tmp_path_factory.mktemp("killed")
    with open_small(base / "store", flush_mode=FlushMode.SYNC) as store:
        for number in range(_PUTS):
            store.put([Message("T", b"%d" % number + b"x" * 4000)])
            if number == _PUTS // 3:
                store.flush()
            if number == _PUTS * 2 // 3:
                store.maintain()
        copy_open(base / "store", base / "image")
    newest, previous = (read_checkpoint(base / "image" / name) for name in CHECKPOINTS)
    assert newest is not None
    assert previous is not None
    assert 0 < previous.flushed_offset < newest.flushed_offset
    assert newest.flushed_offset < 4 * SEGMENT_BYTES
    return base / "image"


@pytest.fixture
def root(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "store")


def assert_refused(root: Path) -> None:
    """And nothing of the log was changed; `kvcq check` has said so before."""
    kinds = {finding.kind for finding in check_store(root) if finding.is_fault}
    assert Kind.DAMAGED_RECORD in kinds, kinds
    before = tree_digest(root / "commitlog")
    with pytest.raises(DamagedLogError) as caught:
        open_small(root)
    assert tree_digest(root / "commitlog") == before
    assert "repair" in str(unusable(caught.value, root).command)


def lose_newest(root: Path) -> None:
    (root / "checkpoint").unlink()


def rewrite_as_a_broker(root: Path) -> None:
    """A broker changes the first 40 bytes in place."""
    path = root / "checkpoint"
    path.write_bytes((7).to_bytes(8, "big") * 5 + path.read_bytes()[40:])


def replace_as_a_broker(root: Path) -> None:
    """A broker that finds no checkpoint makes one."""
    data = pack_checkpoint(Checkpoint(log_time_ms=5, queue_time_ms=5))
    (root / "checkpoint").write_bytes(data[:40] + bytes(len(data) - 40))


_FAULTS: list[Callable[[Path], None]] = [
    lose_checkpoints,
    lose_newest,
    rewrite_as_a_broker,
    replace_as_a_broker,
]


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("segment", range(4))
def test_a_turned_bit_in_any_segment_behind_a_lost_checkpoint_removes_nothing(
    root: Path, fault: Callable[[Path], None], segment: int
) -> None:
    fault(root)
    flip(root / "commitlog" / f"{segment * SEGMENT_BYTES:020}", 30_000, 1)
    previous = read_checkpoint(root / "checkpoint.previous") if fault != lose_checkpoints else None
    if previous is not None and segment * SEGMENT_BYTES + 30_000 < previous.flushed_offset:
        with open_small(root) as store:  # below what is known to be durable nothing is searched
            assert store.bounds([("T", 0)])[0].max_offset == _PUTS
    else:
        assert_refused(root)


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_lost_checkpoint_alone_costs_nothing(root: Path, fault: Callable[[Path], None]) -> None:
    fault(root)
    said = [finding.kind for finding in check_store(root) if finding.is_fault]
    assert said in ([], [Kind.CHECKPOINT_FILE])
    with open_small(root) as store:
        assert [int(body.split(b"x")[0]) for body in bodies(store)] == list(range(_PUTS))
    assert check_store(root) == []


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_each_turned_bit_of_a_checkpoint_is_noticed_and_the_other_one_counts(
    root: Path, name: str
) -> None:
    paths = root / "checkpoint", root / "checkpoint.previous"
    newest, previous = map(read_checkpoint, paths)
    for bit in range(52 * 8):
        flip(root / name, bit // 8, 1 << bit % 8)
        noted = read_noted(*paths)
        assert [fault.path.name for fault in noted.faults] == [name], bit
        other = previous if name == "checkpoint" else newest
        assert noted.checkpoint == other, bit
        assert noted.is_newest == (name != "checkpoint"), bit
        flip(root / name, bit // 8, 1 << bit % 8)
    flip(root / name, 45, 4)
    assert [each.place for each in check_store(root) if each.is_fault] == [name]
    with open_small(root) as store:
        assert store.bounds([("T", 0)])[0].max_offset == _PUTS
    assert read_noted(*paths).faults == ()


def test_the_way_out_keeps_all_but_the_damaged_message(root: Path) -> None:
    lose_checkpoints(root)
    flip(root / "commitlog" / f"{SEGMENT_BYTES:020}", 30_000, 1)
    assert_refused(root)
    set_queues_aside(root, skip_damaged=True)
    with open_small(root, skip_damaged_records=True) as store:
        assert store.bounds([("T", 0)])[0].max_offset == _PUTS
        end = store.log.appended_offset
    with open_small(root) as store:
        assert store.log.appended_offset == end
        numbers = [int(body.split(b"x")[0]) for body in _readable(store)]
        assert len(numbers) == _PUTS - 1
        store.put([Message("T", b"99")])
    assert all(finding.kind is Kind.LEFT_OUT for finding in check_store(root))


def _readable(store: MessageStore) -> list[bytes]:
    found = []
    for offset in range(store.bounds([("T", 0)])[0].max_offset):
        try:
            records = store.pull("T", 0, offset, max_messages=1).records
        except StoreError:
            continue
        found += [unpack_record(record).body for record in records]
    return found


# --- power losses -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_a_torn_page_segments_before_the_end_opens_and_removes_no_segment_with_records(
    tmp_path: Path, seed: int
) -> None:
    """ASYNC: nothing was flushed for several segments, and later pages reached the disk."""
    root, image = tmp_path / "store", tmp_path / "image"
    chance = random.Random(seed)
    with open_small(root) as store:
        store.put([Message("T", b"durable")])
        store.flush()
        for number in range(60):
            store.append([Message("T", b"%d" % number + b"x" * 4000)])
        flushed = power_loss(store, image, chance)
    with_records = _with_records(image)
    told = [finding.note for finding in check_store(image) if finding.kind is Kind.TORN_TAIL]
    with open_small(image) as store:
        end = store.log.appended_offset
        assert end >= flushed
        assert bodies(store)[0] == b"durable"
        store.put([Message("T", b"goes on")])
        assert bodies(store)[-1] == b"goes on"
    aside = {path.name for path in image.glob("commitlog.cut-1/*")}
    assert aside == {name for name in with_records if int(name) >= end and int(name)}
    assert aside == set() or "sets aside" in told[0]
    assert check_store(image) == []


def _with_records(root: Path) -> set[str]:
    segments = SegmentSet.load(root / "commitlog", SEGMENT_BYTES, read_only=True)
    try:
        return {segment.path.name for segment in segments if holds_record(segment)}
    finally:
        segments.close()


def test_a_kill_between_two_segments_that_are_set_aside_leaves_a_log_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root) as store:
        store.put([Message("T", b"durable")])
        store.flush()
        for number in range(60):
            store.append([Message("T", b"%d" % number + b"x" * 4000)])
        copy_open(root, image)
    first = image / "commitlog" / f"{0:020}"
    first.write_bytes(first.read_bytes()[:8192].ljust(SEGMENT_BYTES, b"\0"))

    def fails(*_: object) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr("store.log.segment_set.fsync_directory", fails)
        with pytest.raises(OSError, match="planted"):
            open_small(image)
    with open_small(image) as store:
        assert bodies(store)[0] == b"durable"
    names = [path.name for path in image.glob("commitlog.cut-*/*")]
    assert len(names) == len(set(names)) == 3
    assert check_store(image) == []
