"""deploy/systemd: the unit is a good one, and starts what there is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from server.app.server import DRAIN_NOTICE_S
from server.config import ServerConfig
from tests.deploy.declared import given_to_serve, settings_of

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "kvcq.service"
#: Of 100; 14 as it is. What is left is the network, and limits of systemd 252.
MOST_EXPOSURE = 15


def _unit() -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([A-Z]\w+)=(.*)", line):
            found[match[1]].append(match[2])
    return found


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    # Programs that are not on this machine are no fault of the unit.
    here = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/kvcq/bin/kvcq", "/bin/true")
    here.write_text(text)
    done = _analyze("verify", str(here))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    here.write_text(text.replace("WatchdogSec", "WatchdogSecs"))
    assert "WatchdogSecs" in _analyze("verify", str(here)).stderr, "a wrong one is noticed"


def test_it_is_hardened() -> None:
    done = _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", str(UNIT))
    assert done.returncode == 0, done.stdout


def test_it_starts_and_reloads_as_the_server_wants_it() -> None:
    unit = _unit()
    [start], [reload] = unit["ExecStart"], unit["ExecReload"]
    program, *arguments = shlex.split(start)
    assert Path(program).name == "kvcq"
    given = given_to_serve(arguments)
    assert str(given["config_file"]) == "/etc/kvcq/kvcq.toml"
    assert reload == "/bin/kill -HUP $MAINPID"
    assert unit["Type"] == ["notify"]
    assert unit["RestartPreventExitStatus"] == ["2"], "wrong usage"


def test_its_settings_are_known_and_its_store_lies_where_it_may_write() -> None:
    unit = _unit()
    environment = dict(one.split("=", 1) for one in unit["Environment"])
    config = settings_of(environment).config
    assert config.data_dir.is_relative_to("/var/lib/" + unit["StateDirectory"][0])
    assert config.data_dir.parent != Path("/var/lib"), "files beside the store are in there too"


def test_it_waits_for_the_server_to_end_in_order() -> None:
    unit = _unit()
    needed_s = DRAIN_NOTICE_S + ServerConfig().drain_grace_s
    assert int(unit["TimeoutStopSec"][0]) >= 3 * needed_s
