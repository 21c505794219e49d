"""RocketMQ's own clients, each in a release from its registry, and the programs that use them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.interop.maven import build
from tests.packaging.environment import Environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Registries may be slow, and Rust's client is compiled with all it needs.
_TIMEOUT_S = 900


#: Of a client, what begins its program.
Installed = Callable[["Official"], list[str | Path]]


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


def _python(
    release: str, directory: Path, *, program: str = "python_program.py"
) -> list[str | Path]:
    requirement = f"rocketmq-python-client=={release}"
    Environment(directory).install(requirement, pinned=release == PYTHON.release)
    python = directory / "bin" / "python"
    return ["env", f"PYTHONPATH={ROOT}", python, "-W", "ignore", HERE / program]


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


def _go(release: str, directory: Path, *, tag: str = "") -> list[str | Path]:
    """`tag`: `old` before 5.1.3, `lite` from 5.1.4."""
    shutil.copytree(HERE / "go", directory)
    module = f"github.com/apache/rocketmq-clients/golang/v5@v{release}"
    _run("go", "mod", "edit", f"-require={module}", cwd=directory)
    _run("go", "build", "-mod=mod", f"-tags={tag}", "-o", "program", ".", cwd=directory)
    return [directory / "program"]


def _rust(release: str, directory: Path) -> list[str | Path]:
    shutil.copytree(HERE / "rust", directory, ignore=shutil.ignore_patterns("target"))
    _run("cargo", "add", f"rocketmq@={release}", cwd=directory)
    _run("cargo", "build", cwd=directory)
    target = Path(os.environ.get("CARGO_TARGET_DIR", directory / "target"))
    return [target / "debug" / "program"]


PYTHON = Official("python", "5.1.2", _python)
NODE = Official("node", "1.0.8", _node, ("node", "npm"))
JAVA = Official("java", "5.2.0", _java, ("mvn", "java"))
GO = Official("go", "5.1.3", _go, ("go",), frozenset({"recall", "priority"}))
RUST = Official(
    "rust",
    "5.0.0",
    _rust,
    ("cargo",),
    # It gives its user a compressed body as it is.
    frozenset({"push", "recall", "priority", "change", "tls", "inflate"}),
)

PYTHON_LITE = replace(PYTHON, prepare=partial(_python, program="python_lite_program.py"))
GO_LITE = replace(GO, prepare=partial(_go, tag="lite")).at("5.1.4")
GO_OLD = replace(GO, prepare=partial(_go, tag="old"))
