"""The tables that a broker stores as JSON files, each with a `.bak` of the previous version.

The `.bak` is read if the file itself is unreadable. RocketMQ writes maps with numeric keys without
quotes, which is not JSON; both forms are read, and written in RocketMQ's form. Source: RocketMQ
5.5, ConfigManager, TopicConfigManager, ConsumerOffsetManager, LmqConsumerOffsetManager.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from migration.broker_config.tables import (
    DIRECTORY,
    LIGHT_QUEUE_ID,
    SEPARATOR,
    Form,
    Kind,
    Table,
    last_written_ms,
)
from store.base import write_file
from store.errors import StoreFormatError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

TOPICS_FILE = f"{DIRECTORY}/topics.json"
GROUPS_FILE = f"{DIRECTORY}/subscriptionGroup.json"
OFFSETS_FILE = f"{DIRECTORY}/consumerOffset.json"
LIGHT_OFFSETS_FILE = f"{DIRECTORY}/lmqConsumerOffset.json"
_FILES = (
    (Kind.TOPICS, Form.JSON, TOPICS_FILE, "topicConfigTable"),
    (Kind.GROUPS, Form.JSON, GROUPS_FILE, "subscriptionGroupTable"),
    (Kind.OFFSETS, Form.JSON, OFFSETS_FILE, "offsetTable"),
    (Kind.OFFSETS, Form.LIGHT, LIGHT_OFFSETS_FILE, "offsetTable"),
)
_FIELDS = {path: name for _, _, path, name in _FILES}
_LIGHT_OFFSETS = "lmqOffsetTable"
#: Derived from the offsets when it is written, and never read.
_DERIVED = "groupTopicMap"
# Matches strings as well, so that nothing inside a string matches.
_STRING_OR_NUMBER_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.DOTALL)


def read_json_tables(root: Path) -> list[Table]:
    """The existing tables. Raises StoreFormatError if one cannot be read."""
    found = []
    for kind, form, name, field in _FILES:
        path = root / name
        document = read_document(path)
        if document is None:
            continue
        written = path if path.exists() else _backup(path)
        try:
            version = document.get("dataVersion") or {}
            found.append(
                Table(
                    kind=kind,
                    form=form,
                    path=name,
                    rows=_rows(kind, document, field),
                    counter=int(version.get("counter") or 0),
                    changed_ms=int(version.get("timestamp") or 0),
                    used_ms=last_written_ms(written),
                )
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreFormatError(path, f"does not make sense: {error}") from error
    return found


def _rows(kind: Kind, document: dict[str, Any], field: str) -> dict[str, Any]:
    table = document.get(field) or {}
    if kind is not Kind.OFFSETS:
        return {str(name): dict(row) for name, row in table.items()}
    rows = {str(name): offset_row(row) for name, row in table.items()}
    for name, offset in (document.get(_LIGHT_OFFSETS) or {}).items():
        rows.setdefault(str(name), {})[LIGHT_QUEUE_ID] = int(offset)
    return rows


def delivered_offsets(root: Path) -> dict[int, int]:
    """For each delay level, the queue offset up to which a broker has delivered; empty without a
    file.

    Raises StoreFormatError.
    """
    path = root / DIRECTORY / "delayOffset.json"
    document = read_document(path) or {}
    try:
        return offset_row(document.get("offsetTable") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreFormatError(path, f"does not make sense: {error}") from error


def write_delivered_offsets(root: Path, offsets: Mapping[int, int]) -> None:
    """Set the offsets by level in delayOffset.json, durably; the rest of it stays. Raises
    StoreFormatError."""
    path = root / DIRECTORY / "delayOffset.json"
    document = {**(read_document(path) or {}), "offsetTable": dict(sorted(offsets.items()))}
    write_file(path, (_text(document) + "\n").encode())


def offset_row(row: dict[str, Any]) -> dict[int, int]:
    """Offsets by queue id."""
    return {int(queue_id): int(offset) for queue_id, offset in row.items()}


def write_json_table(root: Path, table: Table) -> None:
    """Write the rows of `table` and its counter to the file, durably; the rest of it stays.

    The old content goes to its `.bak`. After a crash the file has its old or its new content.
    Raises StoreFormatError, OSError.
    """
    path = root / table.path
    document = dict(read_document(path) or {})
    # Without a version, a broker with RocksDB would not import the rows.
    document["dataVersion"] = {
        "counter": table.counter,
        "stateVersion": _state_version(document),
        "timestamp": table.changed_ms,
    }
    document.pop(_DERIVED, None)
    rows = table.rows
    if table.form is Form.LIGHT:
        light = {name: row for name, row in rows.items() if _is_of_light_group(name)}
        rows = {name: row for name, row in rows.items() if name not in light}
        document[_LIGHT_OFFSETS] = {
            name: row[LIGHT_QUEUE_ID] for name, row in light.items() if LIGHT_QUEUE_ID in row
        }
        for name, row in light.items():
            if len(row) > (LIGHT_QUEUE_ID in row):
                logger.warning("%s: RocketMQ keeps the offset of one queue of %s", path, name)
    document[_FIELDS[table.path]] = rows
    if _is_whole(path):  # a damaged file must not replace its .bak, which was read instead
        write_file(_backup(path), path.read_bytes())
    write_file(path, (_text(document) + "\n").encode())


def _state_version(document: dict[str, Any]) -> int:
    version = document.get("dataVersion")
    return int(version.get("stateVersion") or 0) if isinstance(version, dict) else 0


def _is_of_light_group(name: str) -> bool:
    return is_light(name.partition(SEPARATOR)[2])


def _text(value: object, depth: int = 0) -> str:
    """The text in RocketMQ's form, with unquoted queue ids."""
    if not isinstance(value, dict) or not value or depth > 1:
        return _inline(value)
    indent = "\t" * (depth + 1)
    lines = [f"{indent}{_name(name)}:{_text(each, depth + 1)}" for name, each in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + "\t" * depth + "}"


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_name(key)}:{_inline(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _name(name: object) -> str:
    return str(name) if isinstance(name, int) else json.dumps(str(name), ensure_ascii=False)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def read_document(path: Path) -> dict[str, Any] | None:
    """The document of a file or of its `.bak`; None if there is neither.

    Raises StoreFormatError.
    """
    problem: Exception | None = None
    for each in (path, _backup(path)):
        try:
            document = _read_one(each)
        except ValueError as error:
            problem = error
            continue
        if document is not None:
            return document
    if problem is not None:
        raise StoreFormatError(path, f"it is damaged, and so is its .bak: {problem}")
    return None


def _is_whole(path: Path) -> bool:
    try:
        return _read_one(path) is not None
    except ValueError:
        return False


def _read_one(path: Path) -> dict[str, Any] | None:
    """The document of a file; None if it is missing or empty. Raises ValueError if damaged."""
    try:
        document = json.loads(quoted_numbers(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return document if isinstance(document, dict) else None


def quoted_numbers(text: str) -> str:
    """The text with quotes around numeric keys, such as those in `{0:12,1:3}`."""
    return _STRING_OR_NUMBER_KEY.sub(
        lambda found: found[0] if found[2] is None else f'{found[1]}"{found[2]}"', text
    )
