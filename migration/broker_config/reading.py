"""Topics, groups and committed offsets as the broker would read them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.broker_config.attributes import lite_expiry_of
from migration.broker_config.choice import choose
from migration.broker_config.databases import read_database_tables
from migration.broker_config.json_files import read_json_tables
from migration.broker_config.tables import SEPARATOR, Kind, Table
from store.errors import InvalidArgumentError, StoreFormatError
from store.format import check_group, is_system_topic, is_topic_name
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from migration.broker_config.choice import Choice

logger = logging.getLogger(__name__)

#: Topics that a broker creates in memory at each start, and never deletes.
#: Source: RocketMQ 5.5, TopicValidator and TopicConfigManager.
_OWN_TOPICS = ("BenchmarkTest", "RMQ_SYS_TRACE_TOPIC")  # besides the system topics
_WRITE = 2  # the bit of a topic's `perm`


class GroupOffset(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int


class ConfigFound(NamedTuple):
    """One table of the directory, for display."""

    path: str  # the file or the database, below the store's directory
    form: str
    holds: str
    rows: int
    offsets: int  # in a table of offsets: in all rows
    detail: str


@dataclass(frozen=True)
class BrokerConfig:
    """Topics, groups and offsets from the broker's directory."""

    #: Topic to queue count; None if there is no table of topics.
    topics: dict[str, int] | None = None
    #: Topics that are read-only in the broker.
    read_only: tuple[str, ...] = ()
    #: Topics that have lite topics, with the time in ms that one may be idle; 0: for ever.
    lite_parents: Mapping[str, int] = field(default_factory=dict)
    #: Settings of groups, as RocketMQ writes them.
    groups: Mapping[str, Any] = field(default_factory=dict)
    offsets: list[GroupOffset] = field(default_factory=list)
    found: tuple[ConfigFound, ...] = ()
    #: Paths of the tables that topics and offsets are written back to.
    sources: tuple[str, ...] = ()


def is_own_topic(name: str) -> bool:
    """Whether every broker has the topic by default."""
    return is_system_topic(name) or name in _OWN_TOPICS


def read_tables(root: Path) -> list[Table]:
    """All tables in the directory. Raises StoreFormatError, EngineFailedError."""
    return [*read_json_tables(root), *read_database_tables(root)]


def merged_rows(choice: Choice) -> dict[str, Any]:
    """The rows of all tables in use."""
    rows: dict[str, Any] = {}
    for table in choice.used:
        rows.update(table.rows)
    return rows


def read_config(root: Path) -> BrokerConfig:
    """Read the broker's configuration. Does not change the directory. Raises StoreFormatError,
    EngineFailedError.

    Offsets of groups whose names are not valid here are skipped, and reported in `found`.
    """
    choices = choose(read_tables(root))
    topics = choices[Kind.TOPICS]
    queue_counts = {}
    read_only = []
    lite_parents = {}
    for name, row in merged_rows(topics).items():
        try:
            queue_counts[name] = queue_count(row)
            if not int(row.get("perm", _WRITE)) & _WRITE:
                read_only.append(name)
            expiry_ms = lite_expiry_of(row)
            if expiry_ms is not None:
                lite_parents[name] = expiry_ms
        except (TypeError, ValueError) as error:
            path = root / topics.used[-1].path
            raise StoreFormatError(path, f"topic {name!r} does not make sense: {error}") from error
    offsets: list[GroupOffset] = []
    refused: list[str] = []
    for name, row in merged_rows(choices[Kind.OFFSETS]).items():
        try:
            topic, group = topic_and_group(name)
        except InvalidArgumentError as error:
            logger.warning("offsets of %r are passed over: %s", name, error)
            refused.append(name)
            continue
        offsets += [
            GroupOffset(group, topic, queue_id, offset)
            for queue_id, offset in row.items()
            if offset >= 0
        ]
    left_out = [name for name in queue_counts if not is_light(name) and not is_topic_name(name)]
    return BrokerConfig(
        queue_counts if topics.used else None,
        tuple(read_only),
        lite_parents,
        merged_rows(choices[Kind.GROUPS]),
        offsets,
        tuple(_found(choices, refused, left_out)),
        tuple(
            choice.used[0].path
            for kind, choice in choices.items()
            if choice.used and kind is not Kind.GROUPS
        ),
    )


def queue_count(row: dict[str, Any]) -> int:
    """The number of queues in a topic's settings."""
    return max(1, int(row.get("writeQueueNums") or 0), int(row.get("readQueueNums") or 0))


def topic_and_group(name: str) -> tuple[str, str]:
    """The parts of an offset row's name. Raises InvalidArgumentError for an invalid group."""
    topic, separator, group = name.partition(SEPARATOR)
    if not separator:
        raise InvalidArgumentError("group", f"{name!r} has no {SEPARATOR}")
    check_group(group)
    return topic, group


def _found(
    choices: dict[Kind, Choice], refused: Sequence[str], left_out: Sequence[str]
) -> list[ConfigFound]:
    found = []
    for kind, choice in choices.items():
        for number, table in enumerate(choice.used):
            detail = "taken over"
            if kind is Kind.GROUPS:
                detail = "of groups whose members pop: taken over"
            elif number:
                detail = f"taken over, before rows of {choice.used[0].path}"
            if kind is Kind.OFFSETS and not number and refused:
                detail += f"; not those of {len(refused)} with names no group can have here"
            if kind is Kind.TOPICS and not number and left_out:
                detail += f"; not {len(left_out)} with names no topic can have here"
            found.append(_row(table, detail))
        found += [_row(table, reason) for table, reason in choice.passed]
    return found


def _row(table: Table, detail: str) -> ConfigFound:
    return ConfigFound(
        table.path,
        table.form.value,
        table.kind.value,
        len(table.rows),
        table.offsets,
        detail,
    )
