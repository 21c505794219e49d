"""RocketMQ's own clients, each in a release from its registry, and the programs that use them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.maven import build
from tests.packaging.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
#: Registries may be slow, and Rust's client is compiled with all it needs.
_TIMEOUT_S = 900


@dataclass(frozen=True)
class Official:
    """A client; `lacks` are the calls it does not offer, `tools` what must be installed."""

    name: str
    release: str
    prepare: Callable[[str, Path], list[str | Path]]
    tools: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()

    def command(self, directory: Path) -> list[str | Path]:
        """Installs the client below a new directory; what begins the program then."""
        for tool in self.tools:
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")
        return self.prepare(self.release, directory)

    def at(self, release: str, *lacks: str) -> Official:
        """The same client in another release."""
        return replace(self, release=release, lacks=self.lacks | set(lacks))


def _run(*command: str | Path, cwd: Path = HERE) -> None:
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, cwd=cwd)


def _python(release: str, directory: Path) -> list[str | Path]:
    requirement = f"rocketmq-python-client=={release}"
    Environment(directory).install(requirement, pinned=release == PYTHON.release)
    return [directory / "bin" / "python", "-W", "ignore", HERE / "python_program.py"]


def _node(release: str, directory: Path) -> list[str | Path]:
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", directory)
    _run("npm", "install", *options, f"rocketmq-client-nodejs@{release}")
    return ["env", f"NODE_PATH={directory / 'node_modules'}", "node", HERE / "node_program.cjs"]


def _java(release: str, directory: Path) -> list[str | Path]:
    """Compiled with the release that its project names, whatever it is run with."""
    shutil.copytree(HERE / "java", directory)
    build(directory)
    class_path = build(directory, f"-Drocketmq.client={release}", "-Dmaven.main.skip")
    return ["java", "-cp", class_path, "JavaProgram"]


def _go(release: str, directory: Path) -> list[str | Path]:
    shutil.copytree(HERE / "go", directory)
    module = f"github.com/apache/rocketmq-clients/golang/v5@v{release}"
    _run("go", "mod", "edit", f"-require={module}", cwd=directory)
    _run("go", "build", "-mod=mod", "-o", "program", ".", cwd=directory)
    return [directory / "program"]


def _rust(release: str, directory: Path) -> list[str | Path]:
    shutil.copytree(HERE / "rust", directory, ignore=shutil.ignore_patterns("target"))
    _run("cargo", "add", f"rocketmq@={release}", cwd=directory)
    _run("cargo", "build", cwd=directory)
    return [directory / "target" / "debug" / "program"]


PYTHON = Official("python", "5.1.2", _python)
NODE = Official("node", "1.0.8", _node, ("node", "npm"))
JAVA = Official("java", "5.2.0", _java, ("mvn", "java"))
GO = Official("go", "5.1.3", _go, ("go",), frozenset({"recall", "priority"}))
RUST = Official(
    "rust", "5.0.0", _rust, ("cargo",), frozenset({"push", "recall", "priority", "change", "tls"})
)
