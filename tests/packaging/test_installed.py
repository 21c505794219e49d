"""Both distributions, built and installed into fresh environments beside what may be there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, NamedTuple

import pytest

from server.version import VERSION
from tests.packaging.environment import ROOT, Environment, build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.packages, pytest.mark.timeout(600)]

#: Brings proto-plus, whose package is called `proto`.
NEIGHBOUR = "google-cloud-pubsub"
USE_NEIGHBOUR = "import proto; proto.Message; from google.cloud import pubsub_v1"
#: Modules that processes of their own run are named in strings.
FIND_PROCESSES = """
from importlib.util import find_spec
from kvcq.migration.fill.bulk import WORKER
from kvcq.server.fronts.fleet import FRONT
from kvcq.server.readers.readers import PROCESS
for name in (WORKER, FRONT, PROCESS, "kvcq.backup.process"):
    assert find_spec(name), name
"""
#: Of the client, with all that it brings.
MOST_MB = 60


class Wheels(NamedTuple):
    """As an index has them: made from source distributions."""

    client: Path
    server: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    directory = tmp_path_factory.mktemp("wheels")
    found = []
    for source in (ROOT / "kvcq_client", ROOT):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)]
        subprocess.run(command, cwd=source, check=True)
        [made] = directory.glob("*.tar.gz")
        found.append(build(made, directory / "wheels"))
        made.unlink()
    return Wheels(*found)


def _modules(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_no_wheel_has_a_name_that_others_may_have(wheels: Wheels) -> None:
    tops = {name: {one.partition("/")[0] for one in _modules(name)} for name in wheels}
    assert tops[wheels.client] == {"kvcq_client", f"kvcq_client-{VERSION}.dist-info"}
    ours = {"kvcq", "kvcq_bench", "pyspark_kvcq"}
    assert tops[wheels.server] == ours | {f"kvcq-{VERSION}.dist-info"}


def test_wheels_have_every_module_of_the_repository(wheels: Wheels) -> None:
    for name in (
        *("store", "kvcq", "server", "migration", "kvcq_bench", "kvcq_client", "pyspark_kvcq"),
    ):
        there = _modules(wheels.client if name == "kvcq_client" else wheels.server)
        below = "kvcq/" if name in ("store", "server", "migration") else ""
        for path in (ROOT / name).rglob("*.py"):
            assert below + path.relative_to(ROOT).as_posix() in there
    assert "kvcq_client/py.typed" in _modules(wheels.client)
    assert "kvcq_bench/scenarios/1-steady.toml" in _modules(wheels.server)
    for name in ("templates", "static", "words"):
        for path in (ROOT / "server/console" / name).iterdir():
            if path.is_file():
                assert f"kvcq/server/console/{name}/{path.name}" in _modules(wheels.server)


def test_client_is_small_and_server_and_neighbour_come_after_it(
    wheels: Wheels, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheels.client)
    files = [path for path in environment.packages.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_MB * 1_000_000
    assert environment.import_all("kvcq_client") > 25

    environment.install(NEIGHBOUR)
    environment.python(USE_NEIGHBOUR)
    assert environment.import_all("kvcq_client") > 25

    environment.install(*wheels)
    environment.python(USE_NEIGHBOUR)
    assert environment.import_all("kvcq", "kvcq_bench", "kvcq_client") > 200


def test_checkout_is_installed_and_the_neighbour_comes_after_it(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(ROOT)
    _serve_in_a_project(environment, tmp_path / "project")

    environment.install(NEIGHBOUR)
    environment.install("--force-reinstall", "--no-deps", ROOT / "kvcq_client", ROOT)
    environment.python(USE_NEIGHBOUR)
    assert environment.import_all("kvcq", "kvcq_bench", "kvcq_client") > 200


def _serve_in_a_project(environment: Environment, project: Path) -> None:
    """In the directory of one that has packages with the names of ours."""
    names = ("proto", "server", "store", "migration")
    for name in names:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("MINE = True\n")
    assert environment.import_all("kvcq", "kvcq_bench", "kvcq_client", cwd=project) > 200
    code = f"import kvcq.server.app, {', '.join(names)}; print({', '.join(names)}, sep='\\n')"
    assert environment.python(code, project).count(str(project)) == len(names)
    report = environment.kvcq("bench", "run", "kill", "--scale", "0.01", "--json", cwd=project)
    assert "nothingLost" in report

    environment.python(FIND_PROCESSES, project)

    with environment.serving(project, "--workers", "2") as address:
        environment.kvcq("put", "orders", "hello", "--server", address, cwd=project)
        pulled = environment.kvcq("pull", "orders", "--server", address, "--json", cwd=project)
        assert "hello" in pulled
    environment.kvcq("check", "data", cwd=project)
