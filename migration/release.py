"""Give a stopped store in state FILES back to RocketMQ.

Commit log, queue files and index files are RocketMQ's own formats already. What is left to do is to
write the committed offsets where it reads them, and to remove what is ours. The last two things to
go are store.json and migration.json, in this order: until then the step can be repeated.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from migration.errors import IllegalStepError
from migration.file_queue_checkpoint import FILE_NAME as FILE_CHECKPOINT
from migration.migrator import open_migrator
from migration.state import FILE_NAME, Phase, read_state, write_state
from migration.state_keeper import next_command
from store.clock import SystemClock
from store.errors import StoreFormatError
from store.files import fsync_directory
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from migration.broker_config import WrittenBack

_EVENT = "given back to RocketMQ"


def release(root: Path, progress: Callable[[str, float], None] | None = None) -> list[str]:
    """A broker can be started on `root`; what was done, for people. Repeatable after a crash.

    Raises IllegalStepError in another state than FILES, StoreLockedError while a service has it
    open, StoreFormatError.
    """
    state = read_state(root)
    if state is None and inspect(root)[0] is DirKind.ROCKETMQ:
        raise IllegalStepError(
            "release", "none", "it is RocketMQ's already", "start the RocketMQ broker on it"
        )
    if state is None or state.phase is not Phase.FILES or state.pending is not None:
        phase = Phase.FINISHED.value if state is None else state.phase.value
        following = "kvcq migrate rollback" if state is None else next_command(state)
        if state is not None and state.phase is not Phase.ADOPTING and state.pending is None:
            following = "kvcq migrate rollback"
        raise IllegalStepError("release", phase, "not everything is in files alone", following)
    clock = SystemClock()
    kind, identity = inspect(root)
    done: list[str] = []
    if kind is DirKind.OURS and identity is not None:
        meta = root / "meta"
        begun = any(event == _EVENT for _, event in state.history[-1:])
        if not begun:
            if not meta.exists():
                raise StoreFormatError(
                    meta, "is missing: committed offsets are in it. Bring it back from a copy"
                )
            # Opened, so that log and files agree, and everything is flushed.
            with open_migrator(root, progress) as migrator:
                written = migrator.live.give_config_back()
            done += _told(root, written)
        directory = StoreDir.open(root, identity.segment_bytes, clock)
        try:
            if not begun:
                latest = read_state(root) or state
                write_state(root, latest.moved(clock.now_ms(), _EVENT))
            for path in (meta, root / "kvcq"):
                shutil.rmtree(path, ignore_errors=True)
            (root / FILE_CHECKPOINT).unlink(missing_ok=True)
            fsync_directory(root)
            (root / "store.json").unlink()
            fsync_directory(root)
            (root / FILE_NAME).unlink()
            fsync_directory(root)
        finally:
            directory.close()
    else:
        (root / FILE_NAME).unlink()
        fsync_directory(root)
    done.append(f"removed store.json, meta/, {FILE_NAME} and {FILE_CHECKPOINT}")
    return done


def _told(root: Path, written: WrittenBack | None) -> list[str]:
    lines = written.lines() if written is not None else []
    if not (root / "config").is_dir():
        return [
            "there is no config/ in the directory: topics and committed offsets were NOT written "
            "back. RocketMQ goes on from those in its own config/"
        ]
    if written is None or not written.offsets_path:
        lines.append("no offsets were committed: none written")
    return lines
