"""kvcq repair on a log with a damaged record: nothing changes unless the loss is accepted."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from store.config import StoreConfig
from store.errors import CorruptRecordError, DamagedQueueError
from store.message import Message
from tests.support.command_line import kvcq
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 500


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store whose message 100, in the first of several segments, has a flipped bit."""
    root = tmp_path / "s"
    with open_store(config(root)) as store:
        places = [
            store.put([Message("T", b"%04d" % number * 25)]).placed[0] for number in range(COUNT)
        ]
    path = root / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(places[100].physical_offset + 95)
        file.write(b"\xff")
    return root


def config(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=1 << 16, preallocate=False)


def test_a_damaged_log_is_refused_before_anything_changes(damaged: Path) -> None:
    before = sorted(path.name for path in damaged.iterdir())
    result = kvcq("repair", str(damaged), "--queues")
    assert result.exit_code == 1
    assert f"next:  kvcq repair {damaged} --queues --skip-damaged" in result.stderr
    assert "the log is damaged at physical offset" in result.stderr
    assert sorted(path.name for path in damaged.iterdir()) == before
    with open_store(config(damaged)) as store:
        assert store.pull("T", 0, 101, max_messages=5).records
        with pytest.raises(CorruptRecordError):
            store.pull("T", 0, 100)


def test_people_are_told_what_a_repair_of_queues_did(damaged: Path) -> None:
    result = kvcq("repair", str(damaged), "--queues", "--skip-damaged")
    assert result.exit_code == 0, result.output
    assert "rebuilt kvcq/ from" in result.output
    assert "without 1 damaged place;" in result.output


def test_a_store_that_must_replay_damage_names_the_command_that_leaves_it_out(
    damaged: Path,
) -> None:
    shutil.rmtree(damaged / "kvcq")
    result = kvcq("serve", "--port", "0", "--data", str(damaged))
    assert result.exit_code == 1
    assert f"next:  kvcq repair {damaged} --queues --skip-damaged" in result.stderr


def test_what_was_left_out_is_no_fault_any_more(damaged: Path) -> None:
    assert kvcq("check", str(damaged)).exit_code == 1
    kvcq("repair", str(damaged), "--queues", "--skip-damaged")
    result = kvcq("check", str(damaged))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "left out of the queues" in result.stdout
    assert "offset 100 of queue 0 of T" in result.stdout
    assert "nothing else is wrong" in result.stdout
    [told] = json.loads(kvcq("check", str(damaged), "--json").stdout)["information"]
    assert (told["kind"], told["queueOffset"]) == ("damaged record left out", 100)


def test_what_is_damaged_is_left_out_on_request_and_readers_are_told(damaged: Path) -> None:
    result = kvcq("repair", str(damaged), "--queues", "--skip-damaged", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["leftOut"] == 1
    with open_store(config(damaged)) as store:
        assert tuple(store.bounds([("T", 0)])[0]) == (0, COUNT)
        assert len(store.pull("T", 0, 0, max_messages=200).records) == 100
        with pytest.raises(DamagedQueueError):
            store.pull("T", 0, 100)
        assert len(store.pull("T", 0, 101, max_messages=1000).records) == COUNT - 101
        assert store.put([Message("T", b"next")]).placed[0].queue_offset == COUNT
