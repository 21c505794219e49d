"""kvcq backup and kvcq restore against a real server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kvcq.backup import take_backup
from kvcq_client import Client, Message
from server.access import users_of_stopped_store
from server.cli.main import main
from tests.support.backups import put_some, queues_of
from tests.support.checked import assert_whole
from tests.support.command_line import kvcq
from tests.support.fake_clock import FakeClock
from tests.support.server_process import ServerProcess
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.integration


class Place:
    """A server that was backed up once, and where its backups are."""

    def __init__(self, target: str, root: Path) -> None:
        self.target = target
        self.root = root
        self.backups = str(root / "backups")

    def run(self, *arguments: str) -> Result:
        return kvcq(*arguments, server=self.target)

    def answer(self, *arguments: str, exit_code: int = 0) -> Any:  # noqa: ANN401 - any JSON
        done = self.run(*arguments, "--json")
        assert done.exit_code == exit_code, done.output
        document = json.loads(done.stdout or done.stderr)
        return document["error"] if exit_code and "error" in document else document


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("backup")
    flags = ("--set", f"server.backup_to={root / 'backups'}")
    with ServerProcess(root / "store", *flags) as server:
        server.wait_for("ready")
        with Client(server.target) as client:
            client.create_topic("orders", 2)
            for number in range(50):
                client.put(Message("orders", b"%03d" % number, queue_id=number % 2))
        found = Place(server.target, root)
        done = found.answer("backup", "create")
        assert done["status"] == "done"
        assert done["numbers"]["newBytes"] == done["numbers"]["bytes"]
        yield found


def bodies(place: Place, root: Path) -> list[bytes]:
    with ServerProcess(root) as server:
        server.wait_for("ready")
        with Client(server.target) as client:
            return sorted(
                message.body
                for queue_id in range(2)
                for message in client.pull("orders", queue_id, 0, max_messages=100).messages
            )


def test_it_is_listed_verified_and_restored(place: Place, tmp_path: Path) -> None:
    [one, *_] = place.answer("backup", "list", place.backups)
    assert set(one) == {"backupId", "takenMs", "startOffset", "endOffset", "files", "bytes"}
    assert one["backupId"] in place.run("backup", "list", place.backups).stdout
    verified = place.answer("backup", "verify", place.backups, "--backup", one["backupId"])
    assert (verified["backups"], verified["broken"]) == (1, [])
    assert verified["bytes"] == one["bytes"]
    root = tmp_path / "again"
    done = place.answer("restore", place.backups, str(root), "--backup", one["backupId"])
    assert (done["backupId"], done["endOffset"]) == (one["backupId"], one["endOffset"])
    assert done["nextCommand"] == f"kvcq check {root}"
    checked = place.run(*done["nextCommand"].split()[1:])
    assert checked.exit_code == 0, checked.output
    assert bodies(place, root) == [b"%03d" % number for number in range(50)]
    assert_whole(root)


def test_a_later_one_goes_on_where_the_first_was(place: Place) -> None:
    done = place.answer("backup", "create", "--link")
    assert done["numbers"]["newFiles"] < done["numbers"]["files"]
    assert len(place.answer("backup", "list", place.backups)) >= 2
    started = place.answer("backup", "create", "--detach")
    assert started["kind"] == "backup"
    place.run("job", "watch", started["jobId"])


def test_a_cut_is_made_where_it_is_asked_for(place: Place, tmp_path: Path) -> None:
    [one, *_] = place.answer("backup", "list", place.backups)
    root = tmp_path / "again"
    at = one["endOffset"] // 2
    done = place.answer("restore", place.backups, str(root), "--until-offset", str(at))
    assert 0 < done["endOffset"] <= at
    assert_whole(root)
    early = tmp_path / "early"
    refused = place.answer(
        "restore", place.backups, str(early), "--until", "2020-01-01", exit_code=2
    )
    assert refused["reason"].startswith("--until: 2020-01-01T00:00:00")
    assert "Name that time, or a later one" in refused["reason"]
    assert not early.exists()
    assert "is restored" in place.run("restore", place.backups, str(tmp_path / "text")).stdout


def test_a_store_with_users_says_which_key_it_needs(tmp_path: Path) -> None:
    root, backups, clock = tmp_path / "store", str(tmp_path / "b"), FakeClock()
    runner = CliRunner()
    with open_small(root, clock) as store:
        put_some(store, clock, 1)
        take_backup(store, queues_of(store), backups, clock=clock)
    added = runner.invoke(main, ["user", "add", "ops", "--admin", "--data", str(root)])
    assert added.exit_code == 0, added.output
    without = runner.invoke(main, ["restore", backups, str(tmp_path / "plain"), "--json"])
    assert json.loads(without.stdout)["keyFile"] is None
    clock.advance(1)
    with open_small(root, clock) as store:
        take_backup(store, queues_of(store), backups, clock=clock)
    again = tmp_path / "again"
    told = runner.invoke(main, ["restore", backups, str(again)])
    assert f"key file to {again}.key" in told.stderr
    assert not Path(f"{again}.key").exists(), "a new one would open nothing"
    shutil.copy(f"{root}.key", f"{again}.key")
    with users_of_stopped_store(again, None) as users:
        assert users.find("ops") is not None


def test_what_is_asked_wrongly_is_refused_with_what_to_do(place: Place, tmp_path: Path) -> None:
    root = str(tmp_path / "again")
    outside = place.answer("backup", "create", "/etc", exit_code=2)
    assert (outside["field"], outside["code"]) == ("target", "INVALID_ARGUMENT")
    assert "server.backup_to" in outside["reason"]
    refused = place.answer("restore", place.backups, root, "--backup", "no", exit_code=1)
    assert "the newest is" in refused["reason"]
    refused = place.answer("restore", place.backups, root, "--until", "2999-01-01", exit_code=1)
    assert "reaches that far" in refused["reason"]
    refused = place.answer("restore", place.backups, str(place.root / "store"), exit_code=1)
    assert "not empty" in refused["reason"]
    refused = place.answer("backup", "list", str(tmp_path / "none"), exit_code=1)
    assert "No such file" in refused["reason"]
    refused = place.answer("backup", "list", "ftp://x", exit_code=1)
    assert "s3://" in refused["reason"]
    [one, *_] = place.answer("backup", "list", place.backups)
    refused = place.answer(
        *("restore", place.backups, root, "--backup", one["backupId"]),
        *("--until-offset", str(one["endOffset"] + 1)),
        exit_code=2,
    )
    assert refused["field"] == "until_offset"
    assert refused["reason"].startswith("--until-offset: ")
    both = place.run("restore", place.backups, root, "--until", "now", "--until-offset", "1")
    assert both.exit_code == 2
    assert not (tmp_path / "again").exists()


def test_damage_is_told_with_what_to_do(place: Place) -> None:
    path = next(iter(sorted((place.root / "backups" / "files" / "kvcq").glob("CURRENT*"))))
    data = path.read_bytes()
    path.write_bytes(b"X" + data[1:])
    try:
        found = place.answer("backup", "verify", place.backups, exit_code=1)
        [broken] = found["broken"]
        assert broken["name"].startswith("files/kvcq/CURRENT")
        shown = place.run("backup", "verify", place.backups)
        assert shown.exit_code == 1
        assert f"rm {path}" in shown.output
    finally:
        path.write_bytes(data)
    assert place.answer("backup", "verify", place.backups)["broken"] == []


def test_old_ones_are_removed_when_that_is_confirmed(place: Place) -> None:
    place.answer("backup", "create")
    before = [each["backupId"] for each in place.answer("backup", "list", place.backups)]
    told = place.answer("backup", "prune", place.backups, "--keep", "1")
    assert (told["removed"], told["backups"]) == (False, before[:-1])
    assert "--keep 1 --yes" in place.run("backup", "prune", place.backups, "--keep", "1").output
    assert len(place.answer("backup", "list", place.backups)) == len(before)
    done = place.answer("backup", "prune", place.backups, "--keep", "1", "--yes")
    assert done == {**told, "removed": True}
    [left] = place.answer("backup", "list", place.backups)
    assert left["backupId"] == before[-1]
    assert place.answer("backup", "verify", place.backups)["broken"] == []
    assert place.run("backup", "prune", place.backups, "--keep", "0").exit_code == 2
