"""Who may import whom, and who owns which foreign thing, as two tables that the code is held to."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

#: Package to the packages of ours that it may import. `None`: any module of the package.
MAY_IMPORT: dict[str, dict[str, set[str] | None]] = {
    "store": {},
    "kvcq": {
        "store": {
            "clock",
            "consume_queue",
            "errors",
            "files",
            "message",
            "metadata",
            "properties",
            "record",
            "units",
        }
    },
    "migration": {"store": None, "kvcq": None},
    "pyspark_kvcq": {"migration": {"spark"}},
    "kvcq_client": {},
    "server": {"store": None, "kvcq": None, "migration": None, "kvcq_client": None},
}
OURS = {*MAY_IMPORT, "tests"}

#: Foreign module to the path prefixes that may import it.
OWNERS: dict[str, tuple[str, ...]] = {
    "rocksdict": ("kvcq/rocks/", "kvcq/options.py", "kvcq/expiry_filter.py"),
    "mmap": ("store/segment.py", "migration/"),
    "grpc": ("server/", "kvcq_client/"),
    "grpc_health": ("server/", "kvcq_client/"),
    "grpc_reflection": ("server/",),
    "google": ("server/", "kvcq_client/"),
    "pyspark": ("migration/spark/",),
    "pandas": ("migration/spark/",),
    "pyarrow": ("migration/spark/",),
    "apscheduler": ("store/jobs.py",),
    "asyncio": ("server/", "kvcq_client/"),
    "click": ("server/cli/", "kvcq_client/", "migration/spark/cli.py"),
    "rich": ("server/cli/", "kvcq_client/", "migration/spark/cli.py"),
    "matplotlib": ("migration/spark/report_plots.py",),
}
#: Sources that the `kvcq` service is read through may use the client, and nothing else of it.
ALSO = {("migration/spark/", "kvcq_client")}


class Import(NamedTuple):
    """One import statement: the file, its line, and the full dotted name."""

    path: str
    line: int
    name: str
    for_types: bool = False  # stands under `if TYPE_CHECKING`

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def _imports() -> list[Import]:
    found = []
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            relative = path.relative_to(ROOT).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for_types = _type_checking_nodes(tree)
            for node in ast.walk(tree):
                found += [
                    Import(relative, line, name, node in for_types)
                    for line, name in _names(node, relative)
                ]
    return found


def _type_checking_nodes(tree: ast.AST) -> set[ast.AST]:
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }


def _names(node: ast.AST, path: str) -> list[tuple[int, str]]:
    if isinstance(node, ast.Import):
        return [(node.lineno, alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
        assert node.module is not None
        if node.module in OURS:  # `from store import errors`: the name is a module
            return [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        return [(node.lineno, node.module)]
    return []


IMPORTS = _imports()


def _wrong_directions(imports: list[Import]) -> list[Import]:
    wrong = []
    for one in imports:
        package = one.path.partition("/")[0]
        if one.top not in OURS or one.top == package:
            continue
        if any(one.path.startswith(prefix) and one.top == name for prefix, name in ALSO):
            continue
        allowed = MAY_IMPORT[package].get(one.top, set())
        module = one.name.split(".")[1] if "." in one.name else ""
        if allowed is not None and module not in allowed:
            wrong.append(one)
    return wrong


def _wrong_owners(imports: list[Import]) -> list[Import]:
    return [
        one
        for one in imports
        if one.top in OWNERS and not one.for_types and not one.path.startswith(OWNERS[one.top])
    ]


def test_imports_point_one_way() -> None:
    assert _wrong_directions(IMPORTS) == []


def test_foreign_things_have_one_owner() -> None:
    assert _wrong_owners(IMPORTS) == []


def test_there_is_something_to_hold_to_the_tables() -> None:
    assert len(IMPORTS) > 300
    assert {one.path.partition("/")[0] for one in IMPORTS} >= {"store", "kvcq", "server"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("store/flush.py", "kvcq.rocks"),
        ("store/flush.py", "server.app"),
        ("kvcq/rocks/engine.py", "store.commit_log"),
        ("kvcq_client/producer.py", "store.record"),
        ("migration/copy.py", "server.app"),
        ("server/app.py", "tests.support"),
        ("migration/copy.py", "kvcq_client.sync"),
    ],
)
def test_a_wrong_direction_is_noticed(path: str, name: str) -> None:
    assert _wrong_directions([Import(path, 1, name)])


@pytest.mark.parametrize(
    ("path", "name"),
    [("kvcq/keys.py", "rocksdict"), ("store/flush.py", "mmap"), ("store/flush.py", "grpc.aio")],
)
def test_a_wrong_owner_is_noticed(path: str, name: str) -> None:
    assert _wrong_owners([Import(path, 1, name)])
