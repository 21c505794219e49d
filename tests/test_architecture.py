"""The code is held to who may import whom: the tables of tests/support/may_import.py."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import (
    ROOT,
    Edge,
    Import,
    circles,
    door_of,
    edges_of,
    imports_of,
    is_room,
    module_of,
    room_of,
    rooms_of,
    unit_of,
)
from tests.support.may_import import ALSO, EXTRA, MAY_IMPORT, OURS, OWNERS, UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A file of more lines than this holds more than one idea, but for those that are named.
MOST_LINES = 500
LONGER = {
    "kvcq/engine/rocks/engine.py",
    "store/groups/shared.py",
    "store/message_store.py",
    "tests/server/console/test_in_browser.py",
}

ROOMS = rooms_of(MAY_IMPORT)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return imports_of(MAY_IMPORT)


@pytest.fixture(scope="module")
def edges(imports: list[Import]) -> set[Edge]:
    return edges_of(imports)


def _wrong_directions(imports: Iterable[Import]) -> list[Import]:
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


def _wrong_units(edges: Iterable[Edge]) -> list[Edge]:
    wrong = []
    for edge in edges:
        unit, target = unit_of(edge.importer), unit_of(edge.target)
        same_package = unit.partition(".")[0] == target.partition(".")[0]
        if unit != target and same_package and unit in UNITS and target not in UNITS[unit]:
            wrong.append(edge)
    return wrong


def _past_the_door(imports: Iterable[Import]) -> list[Import]:
    """Imports of a room's inside, or of a name that its door does not offer."""
    wrong = []
    for one in imports:
        room = room_of(module_of(one.name) or "")
        if room is None or one.importer.startswith(f"{room}."):
            continue
        names = door_of(room)
        assert names is not None
        if one.name != room and one.name.removeprefix(f"{room}.") not in names:
            wrong.append(one)
    return wrong


def _wrong_owners(imports: Iterable[Import]) -> list[Import]:
    return [
        one
        for one in imports
        if one.top in OWNERS and not one.for_types and not one.path.startswith(OWNERS[one.top])
    ]


def test_no_file_is_long() -> None:
    long = {
        path.relative_to(ROOT).as_posix()
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
        if "/pb/" not in path.as_posix()
        and len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long - LONGER == set()


def test_imports_point_one_way(imports: list[Import]) -> None:
    assert _wrong_directions(imports) == []


def test_a_room_imports_what_its_row_allows(edges: set[Edge]) -> None:
    assert sorted(_wrong_units(edges)) == []


def test_each_room_has_a_row_and_each_row_names_what_is_there() -> None:
    named = {*UNITS, *(unit for row in UNITS.values() for unit in row)}
    assert set(ROOMS) <= set(UNITS)
    assert {unit for unit in named if not is_room(unit) and module_of(unit) != unit} == set()


def test_a_room_is_entered_by_its_door(imports: list[Import]) -> None:
    assert _past_the_door(imports) == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_door_says_what_lives_there_and_has_what_it_offers(room: str) -> None:
    names = door_of(room)
    assert names is not None
    try:
        module = importlib.import_module(room)
        assert {name for name in names if not hasattr(module, name)} == set()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        pytest.skip(f"{error.name} is not installed")
    assert inspect.getdoc(module)


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_of_a_door_is_also_that_of_a_module_behind_it(room: str) -> None:
    # `from room import name` would give the one or the other, by what was imported before.
    names = door_of(room)
    assert names is not None
    assert {name for name in names if module_of(f"{room}.{name}") == f"{room}.{name}"} == set()


def test_nothing_imports_itself_by_a_detour(edges: set[Edge]) -> None:
    # With the imports for types alone: they are no circle when the code runs, but one for a reader.
    assert circles(edges) == {}


def test_foreign_things_have_one_owner(imports: list[Import]) -> None:
    assert _wrong_owners(imports) == []


def test_there_is_something_to_hold_to_the_tables(imports: list[Import]) -> None:
    assert len(imports) > 300
    assert {one.path.partition("/")[0] for one in imports} >= {"store", "kvcq", "server"}
    assert ROOMS


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("store/log/flush.py", "kvcq.engine.rocks"),
        ("store/log/flush.py", "server.app"),
        ("kvcq/engine/rocks/engine.py", "store.log.commit_log"),
        ("kvcq_client/producing/producer.py", "store.format.record"),
        ("migration/copy.py", "server.app"),
        ("server/app.py", "tests.support"),
        ("migration/copy.py", "kvcq_client.sync"),
    ],
)
def test_a_wrong_direction_is_noticed(path: str, name: str) -> None:
    assert _wrong_directions([Import(path, 1, name)])


def test_a_wrong_direction_between_rooms_is_noticed() -> None:
    assert _wrong_units([Edge("kvcq.engine.rocks.proof", "kvcq.tables.keys")])
    assert _wrong_units([Edge("store.errors", "store.base.files")])


@pytest.mark.parametrize(
    "name",
    [
        "kvcq.engine.rocks.failures.damage_mark",
        "kvcq.engine.rocks.failures",
        "kvcq.engine.rocks.UNKNOWN",
    ],
)
def test_a_way_past_the_door_is_noticed(name: str) -> None:
    assert _past_the_door([Import("server/app.py", 1, name)])
    assert _past_the_door([Import("kvcq/engine/rocks/proof.py", 1, name)]) == []


def test_a_circle_is_noticed_at_the_level_where_it_closes() -> None:
    edges = [
        Edge("a.b.one", "a.b.two"),
        Edge("a.b.two", "a.c.three"),
        Edge("a.c.three", "a.b.one"),
        Edge("a.b.__init__", "a.b.one"),
        Edge("a.b.two", "a.b.__init__"),
        Edge("d.four", "a.b.__init__"),
    ]
    assert circles(edges) == {
        "a": [frozenset({"b", "c"})],
        "a.b": [frozenset({"one", "two", "__init__"})],
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("kvcq/tables/keys.py", "rocksdict"),
        ("store/log/flush.py", "mmap"),
        ("store/log/flush.py", "grpc.aio"),
    ],
)
def test_a_wrong_owner_is_noticed(path: str, name: str) -> None:
    assert _wrong_owners([Import(path, 1, name)])
