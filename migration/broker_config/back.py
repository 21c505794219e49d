"""Writes topics, groups and committed offsets back for a broker, in every form that it may read.

A broker's settings decide which form it reads. They are not in the directory, and may have changed
since the migration. So the JSON files are always written, and also the database that topics or
offsets came from. The files' data version has a counter: a broker with RocksDB only imports files
whose counter is higher than its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.broker_config.attributes import topic_attributes
from migration.broker_config.choice import Choice, choose
from migration.broker_config.databases import write_database_table
from migration.broker_config.group_rows import row_of
from migration.broker_config.json_files import (
    GROUPS_FILE,
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
    write_json_table,
)
from migration.broker_config.reading import (
    is_own_topic,
    merged_rows,
    queue_count,
    read_tables,
    topic_and_group,
)
from migration.broker_config.tables import (
    DIRECTORY,
    SEPARATOR,
    TAKEN_GROUP,
    Form,
    Kind,
    Table,
)
from store.errors import InvalidArgumentError
from store.format import is_topic_name
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from store.state import Tables, Window

#: The files that are always written. A broker with enableLmq only reads the light one.
_FILES = {
    Kind.TOPICS: ((Form.JSON, TOPICS_FILE),),
    Kind.GROUPS: ((Form.JSON, GROUPS_FILE),),
    Kind.OFFSETS: ((Form.JSON, OFFSETS_FILE), (Form.LIGHT, LIGHT_OFFSETS_FILE)),
}
#: Files that every earlier version took over, even if it recorded none.
_ALWAYS_TAKEN_OVER = (OFFSETS_FILE,)
_READ_AND_WRITE = 6


class WrittenBack(NamedTuple):
    """The result of `write_back`."""

    offsets: int
    offsets_paths: tuple[str, ...]  # files and databases, below the store's directory
    topics_made: int
    topics_removed: int
    topics_paths: tuple[str, ...]
    groups_changed: int  # shared groups that were created or changed here

    def lines(self) -> list[str]:
        """The result as lines of text."""
        lines = []
        if self.offsets_paths:
            places = ", ".join(self.offsets_paths)
            lines.append(f"{self.offsets} committed offsets written to {places}")
        if self.topics_paths:
            lines.append(
                f"topics written to {', '.join(self.topics_paths)}: {self.topics_made} added, "
                f"{self.topics_removed} removed"
            )
        if self.groups_changed:
            lines.append(
                f"{self.groups_changed} shared groups written for the broker, with their order, "
                "number of deliveries, backoff and lite topics. One that was created here, without "
                "order or lite topics, is a reader group if the store is taken over again before "
                "a member receives"
            )
        return lines


def write_back(
    root: Path,
    state: Tables,
    windows_of: Callable[[str], Iterable[tuple[str, int, Window]]],
    sources: Sequence[str] | None,
    now_ms: int,
) -> WrittenBack | None:
    """Write the topics, shared groups and committed offsets of `state` to the broker's tables,
    durably.

    `windows_of`: the windows of a shared group, also on queues that it has not received from yet: a
    broker begins a queue without an offset at its end, or its beginning, as it sees fit.
    `sources`: the tables that were taken over, None if that is unknown. Rows of deleted topics and
    groups are only removed from these. Rows that could not be taken over do not change. Returns
    None, and writes nothing, if there is no `config/` or nothing to write. May be repeated; after a
    crash each table has its old or its new content. Raises StoreFormatError, OSError,
    EngineFailedError (while a broker has a database open).
    """
    if not (root / DIRECTORY).is_dir():
        return None
    taken_over = _ALWAYS_TAKEN_OVER if sources is None else tuple(sources)
    choices = choose(read_tables(root))
    topics_before = _target(choices[Kind.TOPICS], Kind.TOPICS, sources)
    topics = _topics(state, topics_before, merged_rows(choices[Kind.TOPICS]), taken_over)
    before = _target(choices[Kind.OFFSETS], Kind.OFFSETS, sources)
    offsets = _offsets(_committed(state, windows_of), before, taken_over)
    groups = choices[Kind.GROUPS]
    known = merged_rows(groups)
    shared = {
        group: row_of(group, settings, known.get(group))
        for group in state.every_group()
        if (settings := state.shared_group(group)) is not None
    }
    changed = sum(known.get(group) != row for group, row in shared.items())
    topics_paths = _write(root, topics_before, topics, choices[Kind.TOPICS], now_ms)
    offsets_paths = _write(root, before, offsets, choices[Kind.OFFSETS], now_ms)
    groups_before = _target(groups, Kind.GROUPS, None)
    if changed or groups_before.form is not Form.JSON:
        _write(root, groups_before, {**known, **shared}, groups, now_ms)
    if not topics_paths and not offsets_paths:
        return None
    return WrittenBack(
        sum(len(row) for name, row in offsets.items() if _is_ours(name)),
        offsets_paths,
        len(topics.keys() - topics_before.rows.keys()),
        len(topics_before.rows.keys() - topics.keys()),
        topics_paths,
        changed,
    )


def _target(choice: Choice, kind: Kind, sources: Sequence[str] | None) -> Table:
    """The table to update; an empty one if there is none of its kind."""
    for table in (*choice.used, *(table for table, _ in choice.passed)):
        if sources is None or table.path in sources:
            return table
    if choice.used:
        return choice.used[0]
    form, path = _FILES[kind][0]
    return Table(kind=kind, form=form, path=path)


def _write(
    root: Path, before: Table, rows: dict[str, Any], choice: Choice, now_ms: int
) -> tuple[str, ...]:
    """Write the rows in every form that a broker may read; returns the paths written."""
    if not rows and not before.rows:
        return ()
    tables = (*choice.used, *(table for table, _ in choice.passed))
    targets = {before.path: before}
    for form, path in _FILES[before.kind]:
        targets.setdefault(path, Table(kind=before.kind, form=form, path=path))
    # Above all others: a broker imports tables whose counter is higher than its own.
    counter = 1 + max((each.counter for each in tables), default=0)
    for target in targets.values():
        table = replace(target, rows=rows, counter=counter, changed_ms=now_ms)
        if table.form in (Form.JSON, Form.LIGHT):
            write_json_table(root, table)
        else:
            write_database_table(root, table, before)
    return tuple(targets)


def _topics(
    state: Tables, before: Table, known: dict[str, Any], taken_over: Sequence[str]
) -> dict[str, Any]:
    """Settings of the existing topics; topics that stay keep the broker's own settings."""
    ours = {topic.name: topic for topic in state.every_topic()}
    rows = {
        name: row
        for name, row in before.rows.items()
        if name in ours or before.path not in taken_over or not _can_be_ours(name)
    }
    for name, topic in ours.items():
        count = topic.queue_count
        row = rows.get(name, known.get(name))
        if row is None:
            if is_own_topic(name):
                continue
            row = _new_topic(name, count)
        elif queue_count(row) < count:
            row = {**row, "readQueueNums": count, "writeQueueNums": count}
        if told := topic_attributes(topic, state.lite_expiry_ms(name)):
            row = {**row, "attributes": {**(row.get("attributes") or {}), **told}}
        rows[name] = row
    return rows


def _new_topic(name: str, count: int) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": _READ_AND_WRITE,
        "readQueueNums": count,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": count,
    }


def _can_be_ours(name: str) -> bool:
    """Whether the topic would have been taken over. If so and it is missing, it was deleted."""
    return not is_light(name) and not is_own_topic(name) and is_topic_name(name)


def _is_ours(name: str) -> bool:
    try:
        topic_and_group(name)
    except InvalidArgumentError:
        return False
    return True


def _offsets(
    committed: Iterable[tuple[str, str, int, int]], before: Table, taken_over: Sequence[str]
) -> dict[str, dict[int, int]]:
    """Offsets by topic and group. Offsets that this store cannot have changed are kept."""
    rows: dict[str, dict[int, int]] = {
        name: row
        for name, row in before.rows.items()
        if before.path not in taken_over or not _is_ours(name)
    }
    fresh: dict[str, dict[int, int]] = {}
    for group, topic, queue_id, offset in committed:
        fresh.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
    for name, row in fresh.items():
        rows[name] = {**rows.get(name, {}), **row}
    return rows


def _shared(
    state: Tables, group: str, windows: Iterable[tuple[str, int, Window]]
) -> Iterator[tuple[str, str, int, int]]:
    for topic, queue_id, window in windows:
        yield group, topic, queue_id, window.done_below
    for topic, queue_id, offset in state.every_committed(TAKEN_GROUP):
        rest = topic.removeprefix(f"%RETRY%{group}")
        if rest != topic and rest[:1] in ("", "_", "+"):
            yield group, topic, queue_id, offset


def _committed(
    state: Tables, windows_of: Callable[[str], Iterable[tuple[str, int, Window]]]
) -> Iterator[tuple[str, str, int, int]]:
    """Committed offsets. A shared group's is that of its first message that is not done, because a
    broker cannot store more."""
    for group in state.every_group():
        if group != TAKEN_GROUP:
            if state.shared_group(group) is not None:
                yield from _shared(state, group, windows_of(group))
            yield from ((group, *each) for each in state.every_committed(group))
