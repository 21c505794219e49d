"""What RocketMQ keeps in `config/*.json`: topics with their queue counts, and consumer offsets.

Offsets that were committed here are written back for it; nothing else of its is changed.

Each file has a `.bak`, written before it was replaced: read when the file itself cannot be.
Source: RocketMQ 5, TopicConfigManager and ConsumerOffsetManager.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from store.errors import InvalidArgumentError, StoreFormatError
from store.files import write_file
from store.validation import check_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.metadata import Metadata

logger = logging.getLogger(__name__)

#: Separates topic and group in the offset table.
_SEPARATOR = "@"
#: Below the store's directory.
OFFSETS_FILE = "config/consumerOffset.json"
_PAGE = 1000


class GroupOffset(NamedTuple):
    """A committed offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


def read_topics(root: Path) -> dict[str, int] | None:
    """Queue counts by topic; None when there is no topics.json. Raises StoreFormatError."""
    document = _read(root / "config" / "topics.json")
    if document is None:
        return None
    table = document.get("topicConfigTable") or {}
    return {
        str(name): max(1, int(config.get("writeQueueNums", 0)), int(config.get("readQueueNums", 0)))
        for name, config in table.items()
    }


def read_group_offsets(root: Path) -> list[GroupOffset]:
    """All committed offsets. A group whose name no group of ours can have is passed over.

    Raises StoreFormatError.
    """
    document = _read(root / OFFSETS_FILE)
    found: list[GroupOffset] = []
    for key, queues in ((document or {}).get("offsetTable") or {}).items():
        try:
            topic, group = _topic_and_group(str(key))
        except InvalidArgumentError as error:
            logger.warning("offsets of %r are passed over: %s", key, error)
            continue
        found += [
            GroupOffset(group, topic, int(queue_id), int(offset))
            for queue_id, offset in queues.items()
            if int(offset) >= 0
        ]
    return found


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, separator, group = key.partition(_SEPARATOR)
    if not separator:
        raise InvalidArgumentError("group", f"{key!r} has no {_SEPARATOR}")
    check_group(group)
    return topic, group


def write_back_offsets(root: Path, metadata: Metadata) -> int | None:
    """consumerOffset.json holds what is committed in `metadata`, durably; how many offsets.

    None, and nothing is written, when there is no `config/` (a broker keeps it elsewhere) or
    nothing to say. Offsets that `read_group_offsets` passes over stay as they are; those of groups
    that were deleted here go. What the file held before is in its `.bak`. Repeatable; after a crash
    the file says what it said before, or all of this. Raises StoreFormatError, OSError.
    """
    path = root / OFFSETS_FILE
    if not path.parent.is_dir():
        return None
    document = _read(path)
    table: dict[str, dict[str, int]] = {}
    for key, queues in ((document or {}).get("offsetTable") or {}).items():
        try:
            _topic_and_group(str(key))
        except InvalidArgumentError:
            table[str(key)] = queues  # nobody here could have changed it
    count = 0
    for group, topic, queue_id, offset in _committed(metadata):
        table.setdefault(f"{topic}{_SEPARATOR}{group}", {})[str(queue_id)] = offset
        count += 1
    if document is None and not count:
        return None
    if _is_whole(path):  # a damaged one must not take the place of its .bak, which was read
        write_file(path.with_name(path.name + ".bak"), path.read_bytes())
    write_file(path, _offsets_text({**(document or {}), "offsetTable": table}).encode())
    return count


def _committed(metadata: Metadata) -> Iterator[GroupOffset]:
    after: str | None = None
    while groups := metadata.list_groups(after, _PAGE):
        for group in groups:
            last: tuple[str, int] | None = None
            while rows := metadata.list_committed(group, last, _PAGE):
                for topic, queue_id, offset in rows:
                    yield GroupOffset(group, topic, queue_id, offset)
                last = rows[-1][:2]
        after = groups[-1]


def _offsets_text(document: dict[str, Any]) -> str:
    """As RocketMQ writes it: queue ids stand without quotes."""
    version = document.get("dataVersion")
    if isinstance(version, dict) and isinstance(version.get("counter"), int):
        # So that a broker that compares versions notices the change.
        document["dataVersion"] = {**version, "counter": version["counter"] + 1}
    lines = []
    for key, queues in document["offsetTable"].items():
        inner = ",".join(f"{queue_id}:{offset}" for queue_id, offset in queues.items())
        lines.append(f"\t\t{json.dumps(key, ensure_ascii=False)}:{{{inner}}}")
    table = "{\n" + ",\n".join(lines) + "\n\t}" if lines else "{}"
    fields = [
        f'\t"{name}":' + (table if name == "offsetTable" else json.dumps(value))
        for name, value in document.items()
    ]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _read(path: Path) -> dict[str, Any] | None:
    """The document of a file or of its `.bak`; None when there is neither."""
    problem: Exception | None = None
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            document = _read_one(each)
        except ValueError as error:
            problem = error
            continue
        if document is not None:
            return document
    if problem is not None:
        raise StoreFormatError(path, f"damaged, and so is its .bak: {problem}")
    return None


def _is_whole(path: Path) -> bool:
    try:
        return _read_one(path) is not None
    except ValueError:
        return False


def _read_one(path: Path) -> dict[str, Any] | None:
    """None without a file, or without a document in it. Raises ValueError for a damaged one."""
    try:
        document = json.loads(_quoted_numbers(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return document if isinstance(document, dict) else None


def _quoted_numbers(text: str) -> str:
    """RocketMQ writes maps with numbers as keys without quotes, `{0:12,1:3}`: no JSON."""
    out: list[str] = []
    in_string = escaped = False
    at = 0
    while at < len(text):
        char = text[at]
        out.append(char)
        at += 1
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
            continue
        if char == '"':
            in_string = True
        elif char in "{,":
            while at < len(text) and text[at].isspace():
                at += 1
            end = at
            while end < len(text) and (text[end].isdigit() or text[end] == "-"):
                end += 1
            if end > at and text[end : end + 1] == ":":
                out.append(f'"{text[at:end]}"')
                at = end
    return "".join(out)
