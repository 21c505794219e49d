"""Copies the files of a backup in a second process.

Python runs one thread at a time, so copying in the serving process would slow down its producers.
This process has an interpreter of its own, and a low priority.

python -m kvcq.backup.process

The plan is read from standard input, pickled by our own parent process. Standard output gets lines
of JSON with the progress, and a last one with the result. The process exits when its input ends, so
it does not outlive a parent that is killed.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, cast

from kvcq.backup.copying import CopyPlan, Taken, copy_files
from kvcq.backup.manifest import manifest_name, pack_manifest, unpack_manifest
from kvcq.errors import BackupDamagedError, BackupError, BackupRefusedError, BackupTargetError
from store.base import lines_of, start_module
from store.errors import StoreError

if TYPE_CHECKING:
    from typing import IO

    from kvcq.backup.copying import Report

_REPORT_S = 0.1
_POLL_S = 0.1
_ERRORS: dict[str, type[BackupError]] = {
    kind.__name__: kind
    for kind in (BackupError, BackupTargetError, BackupRefusedError, BackupDamagedError)
}


def copy_in_process(plan: CopyPlan, report: Report) -> Taken:
    """Like `copy_files`, in a separate process. `report` is called several times a second."""
    with start_module(
        "kvcq.backup.process",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        low_priority=True,
    ) as process:
        try:
            feed = cast("IO[bytes]", process.stdin)
            pickle.dump(plan, feed)
            feed.flush()
            return _followed(process, plan, report)
        except OSError as error:
            raise BackupError(f"the copying process died: {error}") from error
        finally:
            process.kill()


def _followed(process: subprocess.Popen[bytes], plan: CopyPlan, report: Report) -> Taken:
    """The result in its last line. Raises what `report` raises, and the process's error."""
    place, done = "", 0
    for line in lines_of(cast("IO[bytes]", process.stdout), _POLL_S):
        if line is not None:
            told: dict[str, Any] = json.loads(line)
            if "error" in told:
                raise _ERRORS.get(told["error"], BackupError)(told["text"])
            if "manifest" in told:
                name = manifest_name(plan.backup.backup_id)
                backup = unpack_manifest(name, told["manifest"].encode())
                return Taken(backup, told["newFiles"], told["newBytes"])
            place, done = told["place"], told["done"]
        report(place, done)
    raise BackupError(f"the copying process exited with code {process.wait()}")


class _Told:
    """Reports on standard output, a few times a second."""

    def __init__(self) -> None:
        self._told_s = 0.0
        self._place = ""

    def __call__(self, place: str, done: int) -> None:
        now_s = time.monotonic()
        if place != self._place or now_s - self._told_s >= _REPORT_S:
            self._place, self._told_s = place, now_s
            tell({"place": place, "done": done})


def tell(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main() -> None:
    source = sys.stdin.buffer
    plan: CopyPlan = pickle.load(source)
    # Ends with the parent, however that ends, because its result could not be used.
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    try:
        copied = copy_files(plan, _Told())
    except (StoreError, OSError) as error:
        tell({"error": type(error).__name__, "text": str(error)})
        return
    tell(
        {
            "manifest": pack_manifest(copied.backup).decode(),
            "newFiles": copied.new_files,
            "newBytes": copied.new_bytes,
        }
    )


def _end_with(source: IO[bytes]) -> None:
    source.read()
    os._exit(1)


if __name__ == "__main__":
    main()
