from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import pytest

from migration.errors import MigrationStateError
from migration.state.phase import Phase, SideName
from migration.state.state import (
    STATE_FILE,
    FileLayout,
    MigrationState,
    VerifyResult,
    read_state,
    write_state,
)

if TYPE_CHECKING:
    from pathlib import Path

FULL = MigrationState(
    Phase.ROCKSDB,
    FileLayout(16, 101, 1000),
    Phase.DOUBLE_WRITE,
    "no space",
    verified=VerifyResult(1, 2, 3, 4),
).moved(5, "an event")


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    for state in (FULL, MigrationState(Phase.FILES)):
        write_state(tmp_path, state)
        assert read_state(tmp_path) == state


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    write_state(tmp_path, FULL)
    path = tmp_path / STATE_FILE
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(MigrationStateError):
            read_state(tmp_path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    write_state(tmp_path, FULL)
    path = tmp_path / STATE_FILE
    whole = path.read_bytes()
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(MigrationStateError):
            read_state(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"version": 3}, "knows up to 2"), ({"phase": "LOST"}, "sense"), ({"layout": {}}, "FILES")],
)
def test_what_another_program_wrote_is_refused(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    write_state(tmp_path, FULL)
    path = tmp_path / STATE_FILE
    document = json.loads(path.read_bytes().split(b"\n")[0])
    document.update(change)
    if reason == "FILES":  # a layout without sizes takes the defaults: nothing to refuse
        document["pending"] = "LOST"
        reason = "sense"
    body = json.dumps(document).encode()
    path.write_bytes(body + f"\n{zlib.crc32(body):08x}\n".encode())
    with pytest.raises(MigrationStateError, match=reason):
        read_state(tmp_path)


def test_a_failed_write_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path, FULL)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_state(tmp_path, MigrationState(Phase.FILES))
    assert read_state(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_which_sides_a_state_uses() -> None:
    assert MigrationState(Phase.ROCKSDB).uses(SideName.FILES)
    assert not MigrationState(Phase.FINISHED).uses(SideName.FILES)
    assert MigrationState(Phase.FINISHED, pending=Phase.ROCKSDB).uses(SideName.FILES)
    assert not MigrationState(Phase.FILES).uses(SideName.ROCKSDB)


def _as_version_1(root: Path, **changes: object) -> None:
    """As version 0.1 wrote it."""
    write_state(root, MigrationState(Phase.ROCKSDB))
    path = root / STATE_FILE
    document = json.loads(path.read_bytes().split(b"\n")[0])
    both = {"rules": [], "default": "both"}
    document |= {"version": 1, "routing": both, "pending": None, "trust_files": True, **changes}
    body = json.dumps(document).encode()
    path.write_bytes(body + f"\n{zlib.crc32(body):08x}\n".encode())


def test_a_state_of_version_1_is_read_where_no_topic_was_routed(tmp_path: Path) -> None:
    _as_version_1(tmp_path)
    assert read_state(tmp_path) == MigrationState(Phase.ROCKSDB)
    both = {"rules": [], "default": "both"}
    _as_version_1(tmp_path, phase="FINISHED", pending={"phase": "ROCKSDB", "routing": both})
    state = read_state(tmp_path)
    assert state is not None
    assert (state.phase, state.pending) == (Phase.FINISHED, Phase.ROCKSDB)


@pytest.mark.parametrize(
    "routing",
    [
        {"rules": [{"pattern": "a*", "route": "files"}], "default": "both"},
        {"rules": [], "default": "files"},
        {"rules": [], "default": "rocksdb"},
    ],
)
def test_a_state_that_routes_topics_is_refused_with_what_to_do(
    tmp_path: Path, routing: dict[str, object]
) -> None:
    """A side lacks some names: to serve them from it would hide messages."""
    _as_version_1(tmp_path, routing=routing)
    with pytest.raises(MigrationStateError, match="kvcq migrate routing --clear"):
        read_state(tmp_path)
    both = {"rules": [], "default": "both"}
    _as_version_1(tmp_path, routing=both, pending={"phase": "ROCKSDB", "routing": routing})
    with pytest.raises(MigrationStateError, match="kvcq migrate routing --clear"):
        read_state(tmp_path)


def test_history_keeps_the_last_events() -> None:
    state = MigrationState(Phase.FILES)
    for number in range(60):
        state = state.moved(number, f"event {number}")
    assert len(state.history) == 50
    assert state.history[-1] == (59, "event 59")
