"""Who may import whom, and who owns which foreign thing, as tables that the code is held to."""

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

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Package to the packages of ours that it may import. `None`: any module of the package.
MAY_IMPORT: dict[str, dict[str, set[str] | None]] = {
    "store": {},
    "kvcq": {
        "store": {
            "base",
            "consume_queue",
            "errors",
            "format",
            "light_columns",
            "message",
            "metadata",
            "notes",
            "state",
        }
    },
    "migration": {"store": None, "kvcq": None},
    "pyspark_kvcq": {"migration": {"spark"}},
    "kvcq_client": {},
    "kvcq_bench": {"store": None, "kvcq": None, "migration": None, "kvcq_client": None},
    "server": {
        "store": None,
        "kvcq": None,
        "migration": None,
        "kvcq_client": None,
        "kvcq_bench": None,
    },
}
OURS = {*MAY_IMPORT, "tests"}

#: Room to what it may import of its own package: rooms, and modules that lie in none. Each room has
#: a row. A module outside all rooms has one where it is held to something; without one it may
#: import what it likes of its package, as long as no circle comes of it.
UNITS: dict[str, set[str]] = {}
UNITS |= {
    "store.base": {"store.errors"},
    "store.bounds": set(),
    "store.config": {"store.bounds", "store.errors", "store.light_queue", "store.setting"},
    "store.consume_queue": {"store.light_columns"},
    "store.errors": set(),
    "store.light_columns": set(),
    "store.light_queue": set(),
    "store.message": {"store.consume_queue"},
    "store.metadata": set(),
    "store.notes": {"store.base", "store.errors"},
    "store.setting": {"store.bounds"},
}
_VALUES = {
    "store.base",
    "store.consume_queue",
    "store.errors",
    "store.light_columns",
    "store.light_queue",
    "store.message",
}
_LOG = {*_VALUES, "store.config", "store.format", "store.jobs"}
_TOPICS = {*_LOG, "store.log", "store.metadata", "store.state"}
_PUTS = {*_TOPICS, "store.derive", "store.topics"}
UNITS |= {
    "store.format": _VALUES,
    "store.log": _LOG,
    "store.state": {"store.errors", "store.metadata"},
    "store.topics": _TOPICS,
    "store.derive": {*_TOPICS, "store.topics"},
    "store.puts": {*_PUTS, "store.reads"},
    "store.reads": {*_PUTS, "store.reads.sql"},
    "store.reads.sql": {"store.errors", "store.format"},
    "store.groups": {*_PUTS, "store.held", "store.puts", "store.reads"},
    "store.held": {*_PUTS, "store.puts", "store.reads"},
    "store.lite": {*_PUTS, "store.groups", "store.puts"},
    "store.trace": {*_TOPICS, "store.groups", "store.held", "store.reads"},
    "store.upkeep": {*_PUTS, "store.notes", "store.puts", "store.reads", "store.store_dir"},
}
UNITS |= {
    "kvcq.engine": {"kvcq.errors"},
    "kvcq.engine.rocks": {"kvcq.engine", "kvcq.errors"},
    "kvcq.errors": set(),
    "kvcq.backup": {
        "kvcq.consume_queue_store",
        "kvcq.engine.rocks",
        "kvcq.errors",
        "kvcq.snapshots",
        "kvcq.state_store",
    },
    "kvcq.tables": {"kvcq.engine", "kvcq.errors"},
    "kvcq.snapshots": {
        "kvcq.engine",
        "kvcq.engine.rocks",
        "kvcq.errors",
        "kvcq.state_store",
        "kvcq.tables",
    },
    "kvcq.inspect": {
        "kvcq.consume_queue_store",
        "kvcq.engine",
        "kvcq.engine.rocks",
        "kvcq.errors",
        "kvcq.snapshots",
        "kvcq.state_store",
        "kvcq.tables",
    },
}
_FORMATS = {"migration.errors", "migration.formats"}
_SIDES = {*_FORMATS, "migration.files", "migration.state"}
_STEPS = {
    *_SIDES,
    "migration.broker_config",
    "migration.fill",
    "migration.jobs",
    "migration.plan",
    "migration.waiting",
}
UNITS |= {
    "migration.broker_config": set(),
    "migration.errors": {"migration.next_step"},
    "migration.next_step": set(),
    "migration.jobs": {"migration.errors"},
    "migration.formats": set(),
    "migration.files": _FORMATS,
    "migration.state": {*_FORMATS, "migration.next_step"},
    "migration.sides": _SIDES,
    "migration.fill": {
        "migration.columnar",
        "migration.jobs",
        "migration.sides",
        "migration.state",
    },
    "migration.waiting": {"migration.broker_config"},
    "migration.plan": {*_STEPS, "migration.next_step"} - {"migration.plan", "migration.jobs"},
    "migration.steps": {*_STEPS, "migration.sides"},
    "migration.repair": {
        *_FORMATS,
        "migration.check",
        "migration.files",
        "migration.next_step",
        "migration.state",
    },
}
UNITS |= {
    "kvcq_client.values": set(),
    "kvcq_client.arguments": {"kvcq_client.values"},
    "kvcq_client.errors": {"kvcq_client.values"},
    "kvcq_client.wire": {"kvcq_client.errors", "kvcq_client.values"},
    "kvcq_client.format": {
        "kvcq_client.arguments",
        "kvcq_client.errors",
        "kvcq_client.pb.v1.kvcq_pb2",
        "kvcq_client.values",
    },
    "kvcq_client.transport": {
        "kvcq_client.arguments",
        "kvcq_client.errors",
        "kvcq_client.format",
        "kvcq_client.pb.v1.access_pb2_grpc",
        "kvcq_client.pb.v1.jobs_pb2_grpc",
        "kvcq_client.pb.v1.kvcq_pb2",
        "kvcq_client.pb.v1.kvcq_pb2_grpc",
        "kvcq_client.pb.v1.lite_topics_pb2_grpc",
        "kvcq_client.pb.v1.migration_pb2_grpc",
        "kvcq_client.pb.v1.shared_groups_pb2",
        "kvcq_client.pb.v1.shared_groups_pb2_grpc",
        "kvcq_client.pb.v1.timers_pb2_grpc",
        "kvcq_client.pb.v1.transactions_pb2",
        "kvcq_client.pb.v1.transactions_pb2_grpc",
        "kvcq_client.values",
    },
    "kvcq_client.producing": {
        "kvcq_client.arguments",
        "kvcq_client.bounds",
        "kvcq_client.errors",
        "kvcq_client.format",
        "kvcq_client.pb.v1.kvcq_pb2",
        "kvcq_client.transport",
        "kvcq_client.values",
    },
    "kvcq_client.calls": {
        "kvcq_client.activity",
        "kvcq_client.dead_letters",
        "kvcq_client.arguments",
        "kvcq_client.errors",
        "kvcq_client.format",
        "kvcq_client.pb.v1.kvcq_pb2",
        "kvcq_client.pb.v1.lite_topics_pb2",
        "kvcq_client.pb.v1.shared_groups_pb2",
        "kvcq_client.pb.v1.timers_pb2",
        "kvcq_client.results",
        "kvcq_client.settings",
        "kvcq_client.shared_groups",
        "kvcq_client.timers",
        "kvcq_client.trace",
        "kvcq_client.pb.v1.transactions_pb2",
        "kvcq_client.transactions",
        "kvcq_client.transport",
        "kvcq_client.values",
        "kvcq_client.wire",
    },
    "kvcq_client.consuming": {
        "kvcq_client.arguments",
        "kvcq_client.bounds",
        "kvcq_client.calls",
        "kvcq_client.errors",
        "kvcq_client.format",
        "kvcq_client.pb.v1.kvcq_pb2",
        "kvcq_client.transport",
        "kvcq_client.values",
        "kvcq_client.wire",
    },
    "kvcq_client.transacting": {
        "kvcq_client.calls",
        "kvcq_client.errors",
        "kvcq_client.pb.v1.transactions_pb2",
        "kvcq_client.transactions",
        "kvcq_client.transport",
        "kvcq_client.values",
    },
    "kvcq_client.receiving": {
        "kvcq_client.arguments",
        "kvcq_client.bounds",
        "kvcq_client.calls",
        "kvcq_client.errors",
        "kvcq_client.format",
        "kvcq_client.pb.v1.lite_topics_pb2",
        "kvcq_client.shared_groups",
        "kvcq_client.transport",
        "kvcq_client.values",
    },
}
_ARROW = {
    "migration.columnar",
    "migration.spark.arrow",
    "migration.spark.columns",
    "migration.spark.errors",
}
UNITS |= {
    "migration.columnar": {"migration.state"},
    "migration.spark.columns": set(),
    "migration.spark.errors": set(),
    "migration.spark.progress": set(),
    "migration.spark.arrow": {"migration.columnar", "migration.spark.columns"},
    "migration.spark.queues": {"migration.formats", *_ARROW},
    "migration.spark.source": {"migration.formats", "migration.spark.queues", *_ARROW},
    "migration.spark.verify": {
        "migration.formats",
        "migration.spark.progress",
        "migration.spark.queues",
        "migration.state",
        *_ARROW,
    },
    "migration.spark.jobs": {
        "migration.plan",
        "migration.spark.progress",
        "migration.spark.queues",
        "migration.spark.source",
        "migration.spark.verify",
        "migration.state",
        *_ARROW,
    },
}
UNITS |= {
    "kvcq_bench.errors": set(),
    "kvcq_bench.report": {"kvcq_bench.errors"},
    "kvcq_bench.targets": {"kvcq_bench.errors", "kvcq_bench.machine"},
}
_CALLS = {
    "server.access",
    "server.config",
    "server.edge",
    "server.errors",
    "server.metrics",
    "server.stage",
    "server.wire",
    "server.workers",
}
UNITS |= {
    "server.errors": {"server.texts"},
    "server.moments": set(),
    "server.texts": set(),
    "server.version": set(),
    "server.in_turns": set(),
    "server.stage": {"server.errors", "server.in_turns"},
    "server.process": set(),
    "server.access": {"server.errors", "server.process", "server.stage", "server.workers"},
    "server.settings": {"server.config", "server.errors", "server.texts"},
    "server.metrics": {"server.workers"},
    "server.http": {"server.errors", "server.process", "server.stage", "server.workers"},
    "server.observe": {
        "server.config",
        "server.metrics",
        "server.stage",
        "server.version",
        "server.workers",
    },
    "server.receiving": set(),
    "server.fronts": {
        "server.errors",
        "server.process",
        "server.receiving",
    },
    "server.wire": {"server.errors"},
    "server.edge": {
        "server.access",
        "server.config",
        "server.errors",
        "server.metrics",
        "server.process",
        "server.receiving",
        "server.wire",
        "server.workers",
    },
    "server.puts": _CALLS,
    "server.reads": {*_CALLS, "server.in_turns", "server.puts", "server.readers"},
    "server.readers": {"server.wire"},
    "server.jobs": {"server.errors", "server.workers"},
    "server.console": {
        "server.access",
        "server.console.words",
        "server.edge",
        "server.errors",
        "server.metrics",
        "server.moments",
        "server.stage",
        "server.texts",
        "server.workers",
    },
    "server.console.words": set(),
    "server.transactions": {"server.puts", "server.workers"},
    "server.services": {
        "server.transactions",
        "server.access",
        "server.edge",
        "server.errors",
        "server.in_turns",
        "server.jobs",
        "server.metrics",
        "server.puts",
        "server.reads",
        "server.settings",
        "server.stage",
        "server.texts",
        "server.version",
        "server.wire",
        "server.workers",
    },
    "server.rocketmq": {
        "server.transactions",
        "server.access",
        "server.edge",
        "server.errors",
        "server.metrics",
        "server.puts",
        "server.reads",
        "server.stage",
        "server.wire",
        "server.workers",
    },
    "server.app": {
        "server.transactions",
        "server.access",
        "server.config",
        "server.console",
        "server.edge",
        "server.errors",
        "server.fronts",
        "server.http",
        "server.jobs",
        "server.metrics",
        "server.observe",
        "server.process",
        "server.puts",
        "server.reads",
        "server.rocketmq",
        "server.services",
        "server.settings",
        "server.stage",
        "server.version",
        "server.workers",
        "server.texts",
    },
    "server.cli.terminal": {"server.moments", "server.texts"},
    "server.cli.online": {"server.cli.terminal", "server.texts"},
    "server.cli.top": {"server.cli.online", "server.cli.terminal"},
    "server.cli.on_disk": {"server.cli.terminal", "server.errors", "server.process", "server.wire"},
    "server.cli.access": {
        "server.access",
        "server.cli.on_disk",
        "server.cli.online",
        "server.cli.terminal",
        "server.errors",
        "server.process",
        "server.settings",
    },
    "server.cli.migration": {
        "server.cli.on_disk",
        "server.cli.online",
        "server.cli.terminal",
        "server.process",
        "server.texts",
        "server.wire",
    },
}

#: Foreign module to the path prefixes that may import it.
OWNERS: dict[str, tuple[str, ...]] = {
    "rocksdict": ("kvcq/engine/rocks/",),
    "mmap": ("store/log/segment.py", "migration/", "kvcq_bench/machine.py"),
    "grpc": ("server/", "kvcq_client/"),
    "grpc_health": ("server/", "kvcq_client/"),
    "grpc_reflection": ("server/",),
    "google": ("server/", "kvcq_client/"),
    "pyspark": ("migration/spark/",),
    "pandas": ("migration/spark/",),
    "pyarrow": ("migration/spark/",),
    "apscheduler": ("store/jobs.py",),
    "opentelemetry": ("server/app/traces.py",),
    "prometheus_client": ("server/observe/",),
    "aiohttp": ("server/http/", "server/console/"),
    "asyncio": ("server/", "kvcq_client/"),
    "cryptography": ("server/access/",),
    "msgspec": ("server/settings/conversion.py",),
    "click": ("server/cli/", "kvcq_client/"),
    "rich": ("server/cli/", "kvcq_client/"),
    "jinja2": ("server/console/writing.py",),
    "obstore": ("kvcq/backup/bucket.py",),
    "matplotlib": ("kvcq_bench/report/plots.py",),
    "taskiq": ("kvcq_client/tasks/taskiq.py",),
    "kombu": ("kvcq_client/tasks/kombu.py",),
}
#: What only an extra installs.
EXTRA = {"pyspark", "pandas", "pyarrow", "matplotlib", "obstore", "taskiq", "kombu"}
#: Sources that the `kvcq` service is read through may use the client, and nothing else of it. What
#: looks a stopped store over reads its log, a backup copies it, a snapshot is of one, and the way
#: in puts the store together.
ALSO = {
    ("migration/spark/", "kvcq_client"),
    ("kvcq/inspect/", "store"),
    ("kvcq/backup/", "store"),
    ("kvcq/databases.py", "store"),
    ("kvcq/opening.py", "store"),
    ("kvcq/snapshots/", "store"),
    ("kvcq/upgrade.py", "store"),
    ("kvcq/without_queues.py", "store"),
}

#: A file of more lines than this holds more than one idea, but for those that are named.
MOST_LINES = 500
LONGER = {
    "kvcq/engine/rocks/engine.py",
    "store/groups/shared.py",
    "store/message_store.py",
    "tests/campaign/workload.py",
    "tests/server/console/test_in_browser.py",
    "tests/server/services/test_call_stream.py",
    "tests/store/groups/test_shared.py",
    "tests/store/groups/test_shared_model.py",
    "tests/store/lite/test_lite_topics.py",
    "tests/store/log/test_segment.py",
    "tests/test_architecture.py",
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
