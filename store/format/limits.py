"""Limits on what a producer gives, checked before anything is written.

| what            | limit                                                                       |
|-----------------|-----------------------------------------------------------------------------|
| topic           | 1 to 127 bytes; 255 when it begins with %RETRY% or %DLQ%                     |
| light queue     | begins with %LMQ%, then 1 or more characters; 255 bytes in all               |
| names           | letters, digits, `%`, `|`, `_`, `-`: elsewhere they become file names         |
|                 | of light queues also `$`: RocketMQ's lite topics are %LMQ%$parent$lite       |
|                 | not those of system topics, see system_topics                               |
| group           | 1 to 120 characters of the alphabet of topics                               |
| body            | StoreConfig.max_body_bytes                                                  |
| properties      | 32,767 bytes, with keys, tag, CRC item, and light queues: each takes its     |
|                 | name and 12 bytes, whatever its offset                                      |
| keys            | 4,096 of one message: each is a row of the key index                        |
| light queues    | 4,096 in one message                                                        |

Counts and lengths come first: nothing is copied, hashed or searched before it is known to be short.

Source of the first rows: RocketMQ 5, TopicValidator, Validators and LiteUtil.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format.properties import MAX_PROPERTIES_BYTES
from store.light_queue import LMQ_PREFIX, is_light

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Maximum number of keys of a message.
MAX_KEYS = 4096
#: Maximum number of light queues of a message: each is a unit's row, and a next offset in memory.
MAX_LIGHT_QUEUES = 4096
LONGEST_NAME = 255

_ALPHABET = re.compile(r"[%|a-zA-Z0-9_-]+")
_LIGHT_ALPHABET = re.compile(r"[$%|a-zA-Z0-9_-]+")
#: Bytes of a list of light queues: these characters, and a comma between two names.
LIGHT_LIST = bytes(code for code in range(128) if _LIGHT_ALPHABET.fullmatch(chr(code))) + b","
# Every light queue there may be, in one look; and a list of them.
_LIGHT_NAME = r"%LMQ%[$%|a-zA-Z0-9_-]{1,250}+"
_LIGHT_QUEUE = re.compile(_LIGHT_NAME).fullmatch
_LIGHT_QUEUES = re.compile(f"(?:{_LIGHT_NAME},)*+{_LIGHT_NAME}").fullmatch
assert LMQ_PREFIX == "%LMQ%"
# Most topics, in one look: short, and not beginning with %, which is for names with a meaning.
_PLAIN_NAME = r"[|a-zA-Z0-9_-][%|a-zA-Z0-9_-]{0,126}+"
_PLAIN_TOPIC = re.compile(_PLAIN_NAME).fullmatch
_PLAIN_TOPICS = re.compile(f"(?:{_PLAIN_NAME},)*+{_PLAIN_NAME}").fullmatch
_LONG_PREFIXES = ("%RETRY%", "%DLQ%")

#: Rows of the bounds family use this name for the dispatch point.
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"


def check_topic(topic: str, field: str = "topic") -> None:
    """Raises InvalidArgumentError unless `topic` may name a topic."""
    if _PLAIN_TOPIC(topic) and topic != CHECKPOINT_TOPIC:
        return
    check_length(topic, field, LONGEST_NAME)
    if is_light(topic):
        raise InvalidArgumentError(
            field, f"{topic!r} is a light queue: name it in light_queues of another topic's message"
        )
    limit = LONGEST_NAME if topic.startswith(_LONG_PREFIXES) else 127
    _check_name(topic, field, limit)
    if topic == CHECKPOINT_TOPIC:
        raise InvalidArgumentError(field, f"{topic!r} is reserved")


def is_topic_name(name: str) -> bool:
    """Whether `check_topic` accepts the name."""
    try:
        check_topic(name)
    except InvalidArgumentError:
        return False
    return True


def check_topics(topics: Sequence[str]) -> None:
    """Run `check_topic` on each name. Plain names are recognised in one pass."""
    if max(map(len, topics)) <= LONGEST_NAME and CHECKPOINT_TOPIC not in topics:
        text = ",".join(topics)
        # A comma within a name would pass for one between two.
        if _PLAIN_TOPICS(text) and text.count(",") == len(topics) - 1:
            return
    for topic in topics:
        check_topic(topic)


def check_light_queue(name: str, field: str) -> None:
    """Raises InvalidArgumentError unless `name` may name a light queue."""
    if _LIGHT_QUEUE(name):
        return
    check_length(name, field, LONGEST_NAME)
    if not is_light(name) or len(name) == len(LMQ_PREFIX):
        raise InvalidArgumentError(field, f"{name!r} does not begin with {LMQ_PREFIX} and a name")
    if not _LIGHT_ALPHABET.fullmatch(name):
        raise InvalidArgumentError(field, f"{name!r} has characters other than $%|a-zA-Z0-9_-")


def check_queue_name(name: str, field: str) -> None:
    """Raises InvalidArgumentError unless `name` may name a topic or a light queue."""
    if is_light(name):
        check_light_queue(name, field)
    else:
        check_topic(name, field)


def check_light_queues(names: Sequence[str], field: str) -> None:
    """Run `check_light_queue` on each name. Valid names that fit a record are recognised in one
    pass."""
    if sum(map(len, names)) <= MAX_PROPERTIES_BYTES:
        text = ",".join(names)
        # A comma within a name would pass for one between two.
        if _LIGHT_QUEUES(text) and text.count(",") == len(names) - 1:
            return
    for name in names:
        check_light_queue(name, field)


def check_group(group: str, field: str = "group") -> None:
    """Raises InvalidArgumentError unless `group` may name a consumer group."""
    _check_name(group, field, 120)


def check_queue_count(count: int, limit: int, field: str = "queue_count") -> None:
    """Raises InvalidArgumentError unless 1 <= count <= limit."""
    if not 1 <= count <= limit:
        raise InvalidArgumentError(field, f"{count} is not from 1 to {limit}")


def _check_name(name: str, field: str, limit: int) -> None:
    if not name:
        raise InvalidArgumentError(field, "is empty")
    check_length(name, field, limit)
    if not _ALPHABET.fullmatch(name):
        raise InvalidArgumentError(field, f"{name!r} has characters other than %|a-zA-Z0-9_-")


def check_length(text: str, field: str, limit: int) -> None:
    """Raises InvalidArgumentError above `limit` characters; checked first, because counting bytes
    takes time."""
    if len(text) > limit:
        raise InvalidArgumentError(field, f"{len(text)} characters, more than {limit}")
