"""kvcq config: what is shown of settings, and how they are read again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from server.cli.main import main
from server.settings import KNOWN
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], env=environment)


def answer(*arguments: str, **environment: str) -> Any:  # noqa: ANN401 - any JSON
    done = run(*arguments, **environment)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_each_setting_is_shown_with_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "kvcq.toml"
    file.write_text("[store]\nreserved_hours = 1\n")
    found = answer(
        *("--config", str(file), "--port", "9000", "--set", "store.flush_mode=sync", "--json"),
        KVCQ_SERVER__MEMORY_LIMIT_BYTES="99999999",
    )
    assert [one["name"] for one in found] == list(KNOWN)
    by_name = {one["name"]: one for one in found}
    assert by_name["server.port"] == {
        "name": "server.port",
        "value": 9000,
        "origin": "flag",
        "where": "--port",
        "variable": "KVCQ_SERVER__PORT",
        "live": False,
        "rocketmqName": "listenPort",
    }
    assert by_name["store.reserved_hours"]["where"] == str(file)
    assert by_name["server.memory_limit_bytes"]["value"] == 99_999_999
    assert by_name["store.flush_mode"]["value"] == "sync"
    assert by_name["server.host"]["where"] is None


def test_the_table_has_what_was_given_alone(tmp_path: Path) -> None:
    file = tmp_path / "kvcq.toml"
    file.write_text("[store]\nreserved_hours = 1\n")
    shown = run("--given", KVCQ_CONFIG=str(file)).stdout.splitlines()
    assert len(shown) == 2
    assert shown[1].split() == [
        "store.reserved_hours",
        "1.0",
        str(file),
        "on",
        "reload",
        "fileReservedTime",
    ]


def test_nothing_given_is_told() -> None:
    shown = run("--given")
    assert (shown.stdout, shown.stderr) == ("", "all settings have their defaults\n")


def test_a_wrong_setting_is_refused_as_serve_refuses_it() -> None:
    for command in ("config", "serve"):
        done = CliRunner().invoke(main, [command], env={"KVCQ_SERVER__PROT": "1"})
        assert done.exit_code == 2
        assert "did you mean KVCQ_SERVER__PORT?" in done.stderr
        done = CliRunner().invoke(main, [command, "--port", "70000"])
        assert done.exit_code == 2
        assert "--port: 70000 is not a whole number from 0 to 65535" in done.stderr


def test_a_brokers_settings_are_printed_as_a_file(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\nnamesrvAddr=a\n")
    done = run("import", str(conf))
    assert done.exit_code == 0
    assert "without a counterpart here: 1 setting of the broker" in done.stderr
    file = tmp_path / "kvcq.toml"
    file.write_text(done.stdout)
    given = answer("--config", str(file), "--given", "--json")
    assert {one["name"]: one["value"] for one in given} == {
        "store.reserved_hours": 48.0,
        "store.reclaim_unexpired": True,
    }
    assert answer("import", str(conf), "--json") == {
        "settings": {"store.reserved_hours": 48.0, "store.reclaim_unexpired": True},
        "withoutCounterpart": {"namesrvAddr": "a"},
    }
    conf.write_text("fileReservedTime=long\n")
    done = run("import", str(conf), "--json")
    assert done.exit_code == 2
    assert json.loads(done.stderr)["error"]["field"] == "fileReservedTime"


@pytest.mark.integration
def test_a_running_server_is_asked_and_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "kvcq.toml"
    file.write_text("")
    with ServerProcess(tmp_path / "store", "--config", str(file)) as server:
        server.wait_for("ready")
        at = ("--server", server.target)
        assert run("reload", *at).stdout == "no setting has changed\n"
        file.write_text("[store]\nreserved_hours = 5\nskip_damaged_records = true\n")
        assert answer("reload", *at, "--json") == {
            "taken": [{"name": "store.reserved_hours", "before": 72.0, "after": 5.0}],
            "waiting": [{"name": "store.skip_damaged_records", "before": False, "after": True}],
        }
        assert server.wait_for("reloaded")["taken"] == {}
        found = {one["name"]: one for one in answer("running", *at, "--json")}
        assert found["store.reserved_hours"]["value"] == 5
        assert found["store.skip_damaged_records"]["waiting"] is True
        assert "false, then true" in run("running", *at, "--given").stdout
        file.write_text("[store]\nreserved_hours = 0\n")
        done = run("reload", *at)
        assert done.exit_code == 1
        assert "store.reserved_hours: 0.0 is not a number from 0.000001" in done.stderr
        assert f"next:  kvcq config --config {file}\n" in done.stderr
        assert run("--config", str(file)).exit_code == 2, "it shows the same"
        assert f"kvcq config reload --server {server.target}" in done.stderr
