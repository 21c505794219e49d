"""kvcq/backup/process.py: killed at any point it leaves no backup, and the next one goes on."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq.backup import list_backups, open_place, restore, take_backup, verify
from kvcq.backup.process import copy_in_process
from kvcq.backup.reading import backup_ids
from kvcq.errors import BackupError, BackupTargetError
from tests.support.backups import bodies, opened, put_some, queues_of
from tests.support.child_process import child_process
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from kvcq.backup.copying import CopyPlan, Report, Taken
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

ROOT = Path(__file__).parents[3]


class KilledBefore:
    """Copies in a process that kills itself before its Nth change of the place."""

    def __init__(self, change: int) -> None:
        self.change = change

    def __call__(self, plan: CopyPlan, _report: Report) -> Taken:
        program = (
            "import os, pickle, signal, sys\n"
            "from kvcq.backup import copying, directory\n"
            "left = [int(sys.argv[1])]\n"
            "def counted(function):\n"
            "    def call(*arguments, **named):\n"
            "        left[0] -= 1\n"
            "        if left[0] <= 0:\n"
            "            os.kill(os.getpid(), signal.SIGKILL)\n"
            "        return function(*arguments, **named)\n"
            "    return call\n"
            "directory.os.pread = counted(os.pread)\n"
            "directory.os.fsync = counted(os.fsync)\n"
            "directory.fsync_directory = counted(directory.fsync_directory)\n"
            "copying.copy_files(pickle.load(sys.stdin.buffer), lambda place, done: None)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(self.change)],
            input=pickle.dumps(plan),
            cwd=ROOT,
            check=False,
            capture_output=True,
        )
        raise EndedError(done.returncode, done.stderr.decode())


class EndedError(Exception):
    """The process ended, and with what."""


def end_of(store: MessageStore, clock: FakeClock, url: str, change: int) -> int:
    """How a process ends that kills itself there. When it is killed there is no new backup."""
    before = backup_ids(open_place(url, make=True))
    with pytest.raises(EndedError) as ended:
        take_backup(store, queues_of(store), url, copy=KilledBefore(change), clock=clock)
    code: int = ended.value.args[0]
    assert code in (0, -signal.SIGKILL), ended.value
    assert len(backup_ids(open_place(url))) == len(before) + (code == 0)
    return code


@pytest.mark.crash
@pytest.mark.slow
def test_killed_anywhere_it_is_no_backup_and_the_next_goes_on(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    url = str(tmp_path / "b")
    ended = [end_of(store, clock, url, change) for change in (2, 16, 36, 60, 100, 160)]
    # A copy that began anew each time would never come to its end with so few steps.
    assert ended[:4] == [-signal.SIGKILL] * 4
    assert ended[-1] == 0
    taken = take_backup(store, queues_of(store), url, clock=clock)
    assert taken.new_bytes <= taken.backup.size - 2 * SEGMENT_BYTES, "segments are not put twice"
    place = open_place(url)
    assert verify(place).broken == ()
    restore(place, taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == bodies(store)


def test_an_error_comes_over_as_what_it_was(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "files").write_bytes(b"no directory")
    with pytest.raises(BackupTargetError, match="files"):
        take_backup(store, queues_of(store), str(tmp_path / "b"), copy=copy_in_process, clock=clock)
    assert list_backups(open_place(str(tmp_path / "b"))) == []


def test_relative_paths_mean_the_same_to_the_process(
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As in `kvcq serve --data ./data`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise AssertionError('somebody else's module')\n")
    with open_small(Path("data"), clock) as store:
        put_some(store, clock, 3)
        wanted = bodies(store)
        taken = take_backup(store, queues_of(store), "b", copy=copy_in_process, clock=clock)
    restore(open_place(str(tmp_path / "b")), taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == wanted
    assert capfd.readouterr().err == ""


def test_a_process_that_is_killed_is_an_error(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    def copy(plan: CopyPlan, report: Report) -> Taken:
        def kill(place: str, done: int) -> None:
            for child in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
                for pid in child.read_text().split():
                    if b"kvcq.backup.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)
            report(place, done)

        return copy_in_process(replace(plan, rate=1000), kill)

    with pytest.raises(BackupError, match=f"exited with code -{signal.SIGKILL.value}"):
        take_backup(store, queues_of(store), str(tmp_path / "b"), copy=copy, clock=clock)
    assert list_backups(open_place(str(tmp_path / "b"))) == []


def test_an_error_of_the_report_ends_the_process(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    def report(_step: str, _done: int, total: int) -> None:
        if total:
            raise EndedError

    with pytest.raises(EndedError):
        take_backup(
            store,
            queues_of(store),
            str(tmp_path / "b"),
            rate=1000,
            report=report,
            copy=copy_in_process,
            clock=clock,
        )
    assert list_backups(open_place(str(tmp_path / "b"))) == []


def test_it_ends_with_its_parent(store: MessageStore, clock: FakeClock, tmp_path: Path) -> None:
    plans: list[CopyPlan] = []

    def keep(plan: CopyPlan, _report: Report) -> Taken:
        plans.append(replace(plan, rate=1000))
        raise BackupError("only the plan is wanted")

    with pytest.raises(BackupError):
        take_backup(store, queues_of(store), str(tmp_path / "b"), copy=keep, clock=clock)
    with child_process(
        [sys.executable, "-m", "kvcq.backup.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        pickle.dump(plans[0], process.stdin)
        process.stdin.close()  # as the end of its parent does
        assert process.wait(30) == 1
