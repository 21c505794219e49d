"""The imports of our code as data: who imports what, what a room is, and where a circle is.

A room is a folder whose `__init__.py` has an `__all__`: its door. A folder without one is only a
folder. A unit is a room, or a module that lies in no room.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parent.parent.parent
DOOR = "__init__"


class Import(NamedTuple):
    """One name that an import statement takes, with the file and its line."""

    path: str
    line: int
    name: str  # dotted, up to the name that is imported: `store.errors.StoreError`
    for_types: bool = False  # stands under `if TYPE_CHECKING`

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def importer(self) -> str:
        """The importing module. A door is `store.log.__init__`."""
        return self.path.removesuffix(".py").replace("/", ".")


class Edge(NamedTuple):
    """One module imports another, or the door of its folder."""

    importer: str
    target: str


def imports_of(packages: Iterable[str]) -> list[Import]:
    found = []
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            relative = path.relative_to(ROOT).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for_types = _type_checking_nodes(tree)
            for node in _statements(tree.body):
                found += [
                    Import(relative, line, name, node in for_types)
                    for line, name in _names(node, relative)
                ]
    return found


def _type_checking_nodes(tree: ast.Module) -> set[ast.stmt]:
    return {
        inner
        for node in tree.body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in _statements([node])
    }


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, also within others. Most of a tree are expressions: none imports."""
    for node in body:
        yield node
        yield from _statements(getattr(node, "body", ()))
        yield from _statements(getattr(node, "orelse", ()))
        yield from _statements(getattr(node, "finalbody", ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)


def _names(node: ast.stmt, path: str) -> list[tuple[int, str]]:
    if isinstance(node, ast.Import):
        return [(node.lineno, alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
        return [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return []


@cache
def module_of(name: str) -> str | None:
    """The module that a dotted name is, or lies in. None: it is not of ours."""
    while name:
        path = ROOT / name.replace(".", "/")
        if path.with_suffix(".py").is_file():
            return name
        if (path / "__init__.py").is_file():
            return f"{name}.{DOOR}"
        name = name.rpartition(".")[0]
    return None


@cache
def is_room(folder: str) -> bool:
    """Whether a folder below a package, dotted, has a door."""
    return "." in folder and door_of(folder) is not None


def rooms_of(packages: Iterable[str]) -> list[str]:
    """The rooms below the packages, dotted."""
    doors = [path for package in packages for path in (ROOT / package).rglob("__init__.py")]
    folders = [door.parent.relative_to(ROOT).as_posix().replace("/", ".") for door in doors]
    return sorted(filter(is_room, folders))


@cache
def door_of(folder: str) -> frozenset[str] | None:
    """The names in the `__all__` of a folder. None: it has none."""
    path = ROOT / folder.replace(".", "/") / "__init__.py"
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return frozenset(ast.literal_eval(node.value))
    return None


@cache
def room_of(module: str) -> str | None:
    """The innermost room that a module lies in."""
    folder = module.rpartition(".")[0]
    while folder:
        if is_room(folder):
            return folder
        folder = folder.rpartition(".")[0]
    return None


def unit_of(module: str) -> str:
    return room_of(module) or module


def edges_of(imports: Iterable[Import]) -> set[Edge]:
    return {
        Edge(one.importer, target)
        for one in imports
        if (target := module_of(one.name)) is not None and target != one.importer
    }


def circles(edges: Iterable[Edge]) -> dict[str, list[frozenset[str]]]:
    """Folder to the circles between what lies directly in it: modules, folders, and its door.

    A circle of modules, however far apart, shows in the innermost folder that holds all of them.
    """
    graphs: dict[str, dict[str, set[str]]] = {}
    for importer, target in edges:
        above, below, to = _part(importer.split("."), target.split("."))
        graph = graphs.setdefault(above, {})
        graph.setdefault(below, set()).add(to)
        graph.setdefault(to, set())
    found = {folder: _knots(graph) for folder, graph in graphs.items()}
    return {folder: knots for folder, knots in sorted(found.items()) if knots}


def _part(one: list[str], other: list[str]) -> tuple[str, str, str]:
    """The folder that two modules share, and the two parts of it that they lie in."""
    depth = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return ".".join(one[:depth]), one[depth], other[depth]


def _knots(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The sets of nodes that reach each other: what is left when all ends are taken off."""
    reach = {node: _reached(graph, node) for node in graph}
    knots = {
        frozenset(other for other in reach[node] if node in reach[other])
        for node in graph
        if node in reach[node]
    }
    return sorted(knots, key=sorted)


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for node in graph[waiting.pop()] - seen:
            seen.add(node)
            waiting.append(node)
    return seen
