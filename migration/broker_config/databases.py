"""The tables that a broker stores in RocksDB, in either layout.

First layout: a database for each table, or one for all; a family of rows, and one for the version.

| form     | database           | rows              | version                  |
|----------|--------------------|-------------------|--------------------------|
| SEPARATE | topics             | default           | kvDataVersion            |
|          | subscriptionGroups | default           | kvDataVersion            |
|          | consumerOffsets    | default           | kvDataVersion            |
| SINGLE   | metadata           | topic             | topicVersion             |
|          |                    | subscriptionGroup | subscriptionGroupVersion |
|          |                    | consumerOffset    | consumerOffsetVersion    |

Keys are names, for offsets `topic@group`; values are JSON, for offsets `{"offsetTable":{"0":12}}`.
The version is under the key `kvDataVersionKey`: JSON with `counter` and `timestamp`. A family that
was never written does not exist.

Second layout: database `rdb`, family `default`, numbers big-endian.

| key                                                       | value                            |
|-----------------------------------------------------------|----------------------------------|
| 01, i16 table, 01, `data_version`                         | i64 state, i64 time, i64 counter |
| 01, i16 table, 02, i16 length, name                       | 01, JSON                         |
| 01, i16 table, 02, i16 length, group, 01, i16 length,     | i64 offset                       |
|   topic, 01, i32 queue id                                 |                                  |

Tables: 1 offsets, 3 topics, 4 groups. Source: RocketMQ 5.5, RocksDBConfigManager and ConfigStorage.
Both have a write-ahead log, which is read as well.
"""

from __future__ import annotations

import json
import struct
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq.engine import KvBatch
from kvcq.engine.rocks import RocksEngine, hand_over, list_families, small_profile
from migration.broker_config.json_files import offset_row, quoted_numbers
from migration.broker_config.tables import DIRECTORY, SEPARATOR, Form, Kind, Table, last_written_ms
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.engine import KvEngine

_FIRST, _LAST = b"", b"\xff" * 8
_VERSION_KEY = b"kvDataVersionKey"
_OFFSETS_FIELD = "offsetTable"


class _Place(NamedTuple):
    """Location of a table in the first layout."""

    kind: Kind
    form: Form
    path: str
    rows: str
    version: str


_PLACES = (
    _Place(Kind.TOPICS, Form.SEPARATE, "topics", "default", "kvDataVersion"),
    _Place(Kind.GROUPS, Form.SEPARATE, "subscriptionGroups", "default", "kvDataVersion"),
    _Place(Kind.OFFSETS, Form.SEPARATE, "consumerOffsets", "default", "kvDataVersion"),
    _Place(Kind.TOPICS, Form.SINGLE, "metadata", "topic", "topicVersion"),
    _Place(Kind.GROUPS, Form.SINGLE, "metadata", "subscriptionGroup", "subscriptionGroupVersion"),
    _Place(Kind.OFFSETS, Form.SINGLE, "metadata", "consumerOffset", "consumerOffsetVersion"),
)
_SECOND = f"{DIRECTORY}/rdb"
_TABLE_IDS = {Kind.OFFSETS: 1, Kind.TOPICS: 3, Kind.GROUPS: 4}
_VERSION_RECORD, _DATA_RECORD = 1, 2
_PREFIX = struct.Struct(
    ">"
    "B"  # 1: a table
    "h"  # number of the table
    "B"  # 1: the version
)
_LENGTH = struct.Struct(">h")
_QUEUE_ID = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_VERSION = struct.Struct(
    ">"
    "q"  # state version
    "q"  # ms since 1970
    "q"  # counter
)
_SEPARATED = b"\x01"
_JSON = b"\x01"


def read_database_tables(root: Path) -> list[Table]:
    """The existing tables. Does not change their directories.

    Raises StoreFormatError for invalid rows, EngineFailedError if a database cannot be read.
    """
    found = []
    for place in _PLACES:
        path = root / DIRECTORY / place.path
        if not (path / "CURRENT").is_file():
            continue
        with _reading(path) as (engine, families):
            if place.rows not in families:
                continue
            table = Table(
                kind=place.kind,
                form=place.form,
                path=f"{DIRECTORY}/{place.path}",
                used_ms=last_written_ms(path),
            )
            with _sensible(path):
                _read_first(engine, place, table, has_version=place.version in families)
        found.append(table)
    path = root / _SECOND
    if (path / "CURRENT").is_file():
        with _reading(path) as (engine, _), _sensible(path):
            found += [_read_second(engine, kind, last_written_ms(path)) for kind in _TABLE_IDS]
    return found


def write_database_table(root: Path, table: Table, before: Table) -> None:
    """Write the rows of `table` and its counter to the database, durably and atomically.

    `before`: the same table as it was read. Raises EngineFailedError, also while a broker has the
    database open.
    """
    path = root / table.path
    put = {name: row for name, row in table.rows.items() if before.rows.get(name) != row}
    gone = before.rows.keys() - table.rows.keys()
    batch = KvBatch()
    families = list_families(path)
    if table.form is Form.TABLES:
        _write_second(batch, table, before, put.keys() | gone)
    else:
        place = next(
            each for each in _PLACES if each.kind is table.kind and each.form is table.form
        )
        batch.deletes += [(place.rows, name.encode()) for name in sorted(gone)]
        for name, row in put.items():
            value: object = row
            if table.kind is Kind.OFFSETS:
                value = {_OFFSETS_FIELD: {str(key): offset for key, offset in row.items()}}
            batch.put(place.rows, name.encode(), _compact(value))
        if place.version in families:  # older brokers reject an additional family
            version = {"counter": table.counter, "stateVersion": 0, "timestamp": table.changed_ms}
            batch.put(place.version, _VERSION_KEY, _compact(version))
    with closing(RocksEngine.open(path, small_profile(*families))) as engine:
        engine.write(batch)
        engine.flush()
    hand_over(path)


@contextmanager
def _reading(path: Path) -> Iterator[tuple[KvEngine, list[str]]]:
    families = list_families(path)
    with closing(RocksEngine.open_read_only(path, small_profile(*families))) as engine:
        yield engine, families


@contextmanager
def _sensible(path: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError, KeyError, struct.error) as error:
        raise StoreFormatError(path, f"a row is invalid: {error!r}") from error


def _read_first(engine: KvEngine, place: _Place, table: Table, *, has_version: bool) -> None:
    for key, value in engine.scan(place.rows, _FIRST, _LAST, fill_cache=False):
        row: dict[str, Any] = json.loads(quoted_numbers(value.decode()))
        if table.kind is Kind.OFFSETS:
            table.rows[key.decode()] = offset_row(row.get(_OFFSETS_FIELD) or {})
        else:
            table.rows[key.decode()] = dict(row)
    version = engine.get(place.version, _VERSION_KEY) if has_version else None
    if version:
        document = json.loads(version)
        table.counter = int(document.get("counter") or 0)
        table.changed_ms = int(document.get("timestamp") or 0)


def _read_second(engine: KvEngine, kind: Kind, used_ms: int) -> Table:
    table = Table(kind=kind, form=Form.TABLES, path=_SECOND, used_ms=used_ms)
    start = _PREFIX.pack(1, _TABLE_IDS[kind], _DATA_RECORD)
    end = _PREFIX.pack(1, _TABLE_IDS[kind], _DATA_RECORD + 1)
    for key, value in engine.scan("default", start, end, fill_cache=False):
        at, first = _name(key, len(start))
        if kind is Kind.OFFSETS:
            at, topic = _name(key, at + len(_SEPARATED))
            (queue_id,) = _QUEUE_ID.unpack(key[at + len(_SEPARATED) :])
            (offset,) = _OFFSET.unpack(value)
            table.rows.setdefault(f"{topic}{SEPARATOR}{first}", {})[queue_id] = offset
        elif value[:1] == _JSON:
            table.rows[first] = dict(json.loads(value[1:]))
        else:
            raise ValueError(f"{first}: serialization {value[:1].hex()}")
    version = engine.get("default", _version_key(kind))
    if version is not None:
        _, table.changed_ms, table.counter = _VERSION.unpack(version)
    return table


def _name(key: bytes, at: int) -> tuple[int, str]:
    """A name preceded by its length, and the position after it."""
    (length,) = _LENGTH.unpack_from(key, at)
    end = at + _LENGTH.size + length
    if length < 0 or end > len(key):
        raise ValueError(f"key {key.hex()}")
    return end, key[at + _LENGTH.size : end].decode()


def _write_second(batch: KvBatch, table: Table, before: Table, names: set[str]) -> None:
    for name in sorted(names):
        old, new = before.rows.get(name), table.rows.get(name)
        if table.kind is not Kind.OFFSETS:
            key = _data_key(table.kind, name)
            if new is None:
                batch.deletes.append(("default", key))
            else:
                batch.put("default", key, _JSON + _compact(new))
            continue
        topic, _, group = name.partition(SEPARATOR)
        prefix = b"".join((_data_key(table.kind, group), _SEPARATED, _packed(topic), _SEPARATED))
        for queue_id in sorted((old or {}).keys() - (new or {}).keys()):
            batch.deletes.append(("default", prefix + _QUEUE_ID.pack(queue_id)))
        for queue_id, offset in (new or {}).items():
            batch.put("default", prefix + _QUEUE_ID.pack(queue_id), _OFFSET.pack(offset))
    batch.put(
        "default", _version_key(table.kind), _VERSION.pack(0, table.changed_ms, table.counter)
    )


def _version_key(kind: Kind) -> bytes:
    return _PREFIX.pack(1, _TABLE_IDS[kind], _VERSION_RECORD) + b"data_version"


def _data_key(kind: Kind, name: str) -> bytes:
    return _PREFIX.pack(1, _TABLE_IDS[kind], _DATA_RECORD) + _packed(name)


def _packed(name: str) -> bytes:
    data = name.encode()
    return _LENGTH.pack(len(data)) + data


def _compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
