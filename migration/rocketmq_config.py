"""What RocketMQ keeps in `config/*.json`: topics with their queue counts, and consumer offsets.

Each file has a `.bak`, written before it was replaced: read when the file itself cannot be.
Source: RocketMQ 5, TopicConfigManager and ConsumerOffsetManager.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from store.errors import InvalidArgumentError, StoreFormatError
from store.validation import check_group

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

#: Separates topic and group in the offset table.
_SEPARATOR = "@"


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
    document = _read(root / "config" / "consumerOffset.json")
    found: list[GroupOffset] = []
    for key, queues in ((document or {}).get("offsetTable") or {}).items():
        topic, separator, group = str(key).partition(_SEPARATOR)
        try:
            if not separator:
                raise InvalidArgumentError("group", f"{key!r} has no {_SEPARATOR}")
            check_group(group)
        except InvalidArgumentError as error:
            logger.warning("offsets of %r are passed over: %s", key, error)
            continue
        found += [
            GroupOffset(group, topic, int(queue_id), int(offset))
            for queue_id, offset in queues.items()
            if int(offset) >= 0
        ]
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """The document of a file or of its `.bak`; None when there is neither."""
    problem: Exception | None = None
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            document = json.loads(_quoted_numbers(each.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue
        except ValueError as error:
            problem = error
            continue
        if isinstance(document, dict):
            return document
    if problem is not None:
        raise StoreFormatError(path, f"damaged, and so is its .bak: {problem}")
    return None


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
