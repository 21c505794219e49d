"""kvcq dump: the content of a store's files, row by row."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from migration.dump import FILES, ROCKSDB, Dump
from migration.plan import layout_given
from server.cli.on_disk.store_errors import raising_command_errors
from server.cli.terminal import (
    COUNT,
    OFFSET,
    QUEUE,
    CommandError,
    Sections,
    body_fields,
    body_text,
    camel_case,
    document_of,
    json_option,
    plain_body,
    print_json,
    print_table,
    say,
    text,
    time_text,
)
from server.process import prepare_to_open_stores
from server.wire import host_text
from store.state import STATE_TOPIC, CorruptStateError, unpack_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from migration.dump import IndexRow, LogRow, UnitRow
    from store.message import StoredMessage
    from store.state import Entry

R = TypeVar("R")

_directory = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
_limit = click.option(
    "--limit", type=COUNT, default=100, show_default=True, help="Maximum number of rows."
)
_side = click.option("--side", type=click.Choice([ROCKSDB, FILES]), help="Only this side.")


@click.group(cls=Sections)
def dump() -> None:
    """Show the raw rows of a store: the log, a queue, the key index.

    DIRECTORY is a store of kvcq or RocketMQ; nothing in it is changed. Unflushed data of a running
    store is not shown. Damage is shown, not reported as an error; `kvcq check` verifies a store.
    """
    prepare_to_open_stores()  # a log may have more segments than descriptors are allowed


@dump.command("log")
@_directory
@click.option(
    "--from",
    "start",
    type=OFFSET,
    help="Physical offset of the first record.  [default: the start of the log]",
)
@click.option("--to", "end", type=OFFSET, help="Only rows before this physical offset.")
@click.option("--topic", type=text, help="Only records of this topic.")
@click.option("--queue", "queue_id", type=QUEUE, help="Only records of this queue.")
@_limit
@json_option
def dump_log_command(
    directory: Path,
    start: int | None,
    end: int | None,
    topic: str | None,
    queue_id: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show records, blanks and damage of the commit log in DIRECTORY, in order."""

    def wanted(row: LogRow) -> bool:
        message = row.message
        if topic is None and queue_id is None:
            return True
        return (
            message is not None
            and topic in (None, message.topic)
            and queue_id in (None, message.queue_id)
        )

    with raising_command_errors(directory):
        rows = filter(wanted, Dump(directory).log(start, end))
        columns = "physical offset, size, topic, queue, offset, stored, tag, keys, body"
        _show(rows, columns, _log_cells, _log_document, limit, as_json=as_json)


@dump.command("queue")
@_directory
@click.argument("topic", type=text)
@click.argument("queue_id", type=QUEUE, default=0, metavar="[QUEUE_ID]")
@click.option("--offset", type=OFFSET, default=0, help="First queue offset.")
@_side
@_limit
@json_option
def dump_queue_command(
    directory: Path,
    topic: str,
    queue_id: int,
    offset: int,
    side: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the units of queue QUEUE_ID (0) of TOPIC, which may be a light queue (%LMQ%…).

    If the store has both sides, both are shown. Expired units may still be present.
    """
    with raising_command_errors(directory):
        store = Dump(directory)
        sides = _chosen(directory, store.queue_sides(), side, "queues")
        rows = chain.from_iterable(store.queue(one, topic, queue_id, offset) for one in sides)
        first = next(rows, None)
        if first is None:
            where = f"queue {queue_id} of {topic} has no units"
            if offset:
                where += f" from offset {offset} on"
            raise CommandError(
                f"{where} in {' or '.join(sides)}",
                "the log shows which queues its records belong to",
                command=shlex.join(("kvcq", "dump", "log", str(directory), "--topic", topic)),
                code="NOT_FOUND",
            )
        columns = "side, offset, physical offset, size, tag code, stored"
        _show(chain([first], rows), columns, _unit_cells, _fields, limit, as_json=as_json)


@dump.command("index")
@_directory
@click.option("--topic", type=text, help="Only entries of this topic; index files also need --key.")
@click.option("--key", type=text, help="Only entries of this key of the topic.")
@click.option("--index-slots", type=COUNT, help="RocketMQ's maxHashSlotNum, if it was changed.")
@click.option("--index-entries", type=COUNT, help="RocketMQ's maxIndexNum, if it was changed.")
@_side
@_limit
@json_option
def dump_index_command(
    directory: Path,
    topic: str | None,
    key: str | None,
    index_slots: int | None,
    index_entries: int | None,
    side: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the entries of the key index in DIRECTORY.

    Keys of the form <id>:<number> are batches of a producer. Index files only store a hash of topic
    and key, and the time in seconds since the file's first entry.
    """
    if key is not None and topic is None:
        raise click.UsageError("--key needs --topic")
    with raising_command_errors(directory):
        store = Dump(directory, layout_given(directory, None, index_slots, index_entries))
        sides = store.index_sides()
        if topic is not None and key is None:
            sides = _keeping_topics(sides, side)
        sides = _chosen(directory, sides, side, "index")
        rows = chain.from_iterable(store.index(one, topic, key) for one in sides)
        columns = "side, physical offset, topic, key, stored, hash, place"
        _show(rows, columns, _index_cells, _fields, limit, as_json=as_json)


def _keeping_topics(found: list[str], side: str | None) -> list[str]:
    if FILES in (side, *found) and (side == FILES or ROCKSDB not in found):
        raise click.UsageError("index files do not store topics: give --key as well")
    return [ROCKSDB]


def _chosen(directory: Path, found: list[str], side: str | None, what: str) -> list[str]:
    wanted = found if side is None else [one for one in found if one == side]
    if not wanted:
        there = " and ".join(found) or "none"
        raise CommandError(f"{directory} has no {what} in {side or 'any form'}: there is {there}")
    return wanted


# --- rows for people and for programs --------------------------------------------------------


def _show(
    rows: Iterator[R],
    columns: str,
    cells: Callable[[R], Sequence[object]],
    document: Callable[[R], dict[str, Any]],
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Print at most `limit` rows."""
    shown = islice(rows, limit)
    if as_json:
        for row in shown:
            print_json(document(row))
    else:
        print_table("", columns.split(", "), map(cells, shown))
    if next(rows, None) is not None:
        say("there are more rows; show them with a larger --limit")


def _fields(row: UnitRow | IndexRow) -> dict[str, Any]:
    return {
        name: None if value == "" else value for name, value in camel_case(row._asdict()).items()
    }


def _log_cells(row: LogRow) -> Sequence[object]:
    message = row.message
    if message is None:
        return (row.physical_offset, row.size, f"({row.kind})", "", "", "", "", "", row.reason)
    return (
        row.physical_offset,
        row.size,
        message.topic,
        str(message.queue_id),
        str(message.queue_offset),
        time_text(message.store_time_ms),
        message.tag,
        " ".join(message.keys),
        _shown_body(message),
    )


def _log_document(row: LogRow) -> dict[str, Any]:
    found = document_of(row, "physical_offset size kind")
    if row.reason:
        found["reason"] = row.reason
    message = row.message
    if message is not None:
        found |= {
            **document_of(message, "topic queue_id queue_offset flag sys_flag"),
            **document_of(message, "born_time_ms store_time_ms reconsume_times"),
            **document_of(message, "prepared_transaction_offset body_crc properties"),
            **_body_fields(message),
            "bornHost": host_text(message.born_host),
            "storeHost": host_text(message.store_host),
        }
    return found


def _shown_body(message: StoredMessage) -> str:
    entries = _entries_of(message)
    if entries is None:
        return body_text(plain_body(message.body, message.sys_flag))
    return body_text("; ".join(map(repr, entries)).encode())


def _body_fields(message: StoredMessage) -> dict[str, Any]:
    entries = _entries_of(message)
    if entries is None:
        return dict(body_fields(plain_body(message.body, message.sys_flag)))
    return {"entries": [{"entry": type(entry).__name__, **_plain(entry)} for entry in entries]}


def _entries_of(message: StoredMessage) -> list[Entry] | None:
    """The entries of a state record; None for another record, or an unreadable one."""
    if message.topic != STATE_TOPIC:
        return None
    try:
        return unpack_entries(message.body)
    except CorruptStateError as error:
        say(f"cannot read a record of the state: {error}. It is shown as stored")
        return None


def _plain(value: object) -> Any:  # noqa: ANN401
    """An entry, or a field of one, for JSON: bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return camel_case({name: _plain(each) for name, each in value._asdict().items()})
    return value


def _unit_cells(row: UnitRow) -> Sequence[object]:
    stored = "" if row.store_time_ms is None else time_text(row.store_time_ms)
    return (*row[:4], str(row.tag_code), stored)


def _index_cells(row: IndexRow) -> Sequence[object]:
    return (
        row.side,
        row.physical_offset,
        row.topic or "",
        row.key or "",
        "" if row.store_time_ms is None else time_text(row.store_time_ms),
        "" if row.key_hash is None else str(row.key_hash),
        row.place,
    )
