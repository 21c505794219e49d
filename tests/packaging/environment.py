"""A fresh virtual environment, and what is asked of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.child_process import child_process

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
#: An installation may have to download.
_TIMEOUT_S = 300

#: Imports every module below the named packages, but those that need an extra.
IMPORT_ALL = """
import importlib, pkgutil, sys
for top in {packages}:
    package = importlib.import_module(top)
    for one in pkgutil.walk_packages(package.__path__, top + "."):
        if one.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(one.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in (
                "pyspark", "pandas", "pyarrow", "matplotlib", "opentelemetry",
                "taskiq", "celery", "kombu"
            ):
                raise
print(len([name for name in sys.modules if name.partition(".")[0] in {packages}]))
"""


class Environment:
    """Nothing of this process is seen by what runs in it: neither its path nor its packages."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, symlinks=True)
        self._bin = directory / "bin"
        [self.packages] = directory.glob("lib/python*/site-packages")
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        self._variables = kept | {"PATH": f"{self._bin}:{os.environ['PATH']}"}

    def install(self, *requirements: str | Path, pinned: bool = True) -> None:
        """`pinned`: what they need in the releases that are tested here. Raises CalledProcessError;
        what pip printed is seen."""
        pins = ("-c", str(ROOT / "constraints.txt")) if pinned else ()
        self._run(
            *(sys.executable, "-m", "pip", "--python", str(self._bin / "python")),
            *("install", "--disable-pip-version-check", "-q", *pins),
            *map(str, requirements),
            cwd=self._bin,
        )

    def python(self, code: str, cwd: Path | None = None) -> str:
        """What the code prints, run in a directory that has none of our packages."""
        return self._run(str(self._bin / "python"), "-c", code, cwd=cwd or self._bin)

    def kvcq(self, *arguments: str, cwd: Path) -> str:
        return self._run(str(self._bin / "kvcq"), *arguments, cwd=cwd)

    @contextmanager
    def serving(self, directory: Path, *arguments: str) -> Iterator[str]:
        """The address of a server on `data` in that directory; ended in order."""
        command = [str(self._bin / "python"), "-m", "kvcq.server", "serve", "--json"]
        with child_process(
            [*command, "--port", "0", "--data", "data", *arguments],
            cwd=directory,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            longest_s=_TIMEOUT_S,
        ) as process:
            assert process.stdout is not None
            events = map(json.loads, process.stdout)
            ready = next(event for event in events if event["event"] == "ready")
            yield f"{ready['host']}:{ready['port']}"
            process.terminate()
            assert process.wait(_TIMEOUT_S) == 0

    def import_all(self, *packages: str, cwd: Path | None = None) -> int:
        """The number of modules."""
        return int(self.python(IMPORT_ALL.format(packages=packages), cwd))

    def _run(self, *command: str, cwd: Path) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return done.stdout


def build(source: Path, wheels: Path, *flags: str) -> Path:
    """The wheel of the source tree or source distribution."""
    wheels.mkdir(exist_ok=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "-q"),
            *("--no-deps", "--no-build-isolation", "-w", str(wheels), *flags, str(source)),
        ],
        check=True,
        timeout=_TIMEOUT_S,
    )
    return max(wheels.glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)
