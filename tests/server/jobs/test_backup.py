"""server/jobs/backup.py on a real store: another process copies; a store on files is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.backup import choose_by_id, list_backups, open_place, restore, verify
from kvcq.errors import BackupRefusedError
from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.jobs import JobState
from migration.state.phase import Phase
from server.jobs import BackupKind, Jobs
from store.errors import InvalidArgumentError
from tests.support import migrating
from tests.support.backups import bodies, opened, put_some
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from migration.jobs import JobView
    from store.message_store import MessageStore

RATE = 1 << 30


def run(store: MessageStore, target: Path, wanted: pb.BackupJob) -> JobView:
    jobs = Jobs([BackupKind(store, [str(target)], RATE)], store.notes, FakeClock())
    jobs.wait(jobs.start("backup", wanted, {}).job_id, 60)
    return jobs.views()[0]


def test_a_backup_by_another_process_is_restored(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 60)
        view = run(store, tmp_path / "b", pb.BackupJob(target="daily"))
        assert view.state is JobState.DONE, view.error
        wanted = bodies(store)
        assert view.numbers["end_offset"] == store.log.appended_offset
        assert view.numbers["new_bytes"] == view.numbers["bytes"] > 0
        assert view.done == view.total == view.numbers["bytes"]
        again = run(store, tmp_path / "b", pb.BackupJob(target="daily", link=True))
        assert again.numbers["new_files"] < view.numbers["new_files"] / 2
    place = open_place(str(tmp_path / "b" / "daily"))
    assert verify(place).broken == ()
    restore(place, choose_by_id(place, None), tmp_path / "again")
    assert opened(tmp_path / "again", clock) == wanted


def test_what_cannot_be_is_refused_before_anything_begins(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        jobs = Jobs([BackupKind(store, [str(tmp_path / "b")], RATE)], store.notes, FakeClock())
        for wanted, field in (
            (pb.BackupJob(target="../x"), "target"),
            (pb.BackupJob(bytes_per_s=-1), "bytes_per_s"),
            (pb.BackupJob(bytes_per_s=(1 << 40) + 1), "bytes_per_s"),
        ):
            with pytest.raises(InvalidArgumentError) as refused:
                jobs.start("backup", wanted, {})
            assert refused.value.field == field
        assert jobs.views() == []
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "x").exists()


def test_a_target_that_fails_is_the_jobs_error(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"a file")
    with open_small(tmp_path / "store") as store:
        view = run(store, tmp_path / "b", pb.BackupJob())
    assert view.state is JobState.FAILED
    assert str(tmp_path / "b") in view.error
    assert (tmp_path / "b").read_bytes() == b"a file"


def test_a_cancelled_backup_is_none(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 60)
        jobs = Jobs([BackupKind(store, [str(tmp_path / "b")], RATE)], store.notes, FakeClock())
        slow = pb.BackupJob(bytes_per_s=100)  # hours, for all of it
        job_id = jobs.start("backup", slow, {}).job_id
        jobs.cancel(job_id)
        assert jobs.wait(job_id, 30).state is JobState.CANCELLED
        assert not list(store.config.root.glob("*.tmp/backup-*"))
        assert not store._services.retention._holds
    assert list_backups(open_place(str(tmp_path))) == []


@pytest.mark.parametrize("phase", [Phase.FILES, Phase.DOUBLE_WRITE, Phase.VERIFIED, Phase.ROCKSDB])
def test_queues_in_files_are_refused_with_what_to_do(phase: Phase, tmp_path: Path) -> None:
    migrating.make_on_files(tmp_path / "store")
    with migrating.open_store(migrating.config(tmp_path / "store")) as store:
        store.put(migrating.messages(0, 50))
        migrating.advance(store, phase)
        with pytest.raises(BackupRefusedError, match="kvcq migrate status"):
            run(store, tmp_path / "b", pb.BackupJob())
    assert not (tmp_path / "b").exists()


def test_a_store_whose_migration_is_finished_is_backed_up_with_its_state(tmp_path: Path) -> None:
    migrating.make_on_files(tmp_path / "store")
    with migrating.open_store(migrating.config(tmp_path / "store")) as store:
        store.put(migrating.messages(0, 200))
        migrating.advance(store, Phase.FINISHED)
        store.put(migrating.messages(200, 50))
        view = run(store, tmp_path / "b", pb.BackupJob())
        assert view.state is JobState.DONE, view.error
    place = open_place(str(tmp_path / "b"))
    for name, segments_only in (("whole", False), ("segments", True)):
        root = tmp_path / name
        restore(place, choose_by_id(place, None), root, segments_only=segments_only)
        assert_whole(root)
        with migrating.open_store(migrating.config(root)) as store:
            assert migrating.live(store).state.phase is Phase.FINISHED
            assert migrating.check_messages(store, 250) == 250
        assert_whole(root)
