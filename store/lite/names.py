"""Names of lite topics, and of the light queues that store them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format import check_topic
from store.light_queue import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Maximum number of characters in a lite topic's name.
MOST_NAME = 64
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,64}").fullmatch
#: The prefix of the names of all light queues of lite topics.
LITE_PREFIX = LMQ_PREFIX + "$"


def check_lite_topic(name: str, field: str) -> None:
    """Raises InvalidArgumentError unless `name` may name a lite topic."""
    if _NAME(name):
        return
    if not 0 < len(name) <= MOST_NAME:
        raise InvalidArgumentError(field, f"has {len(name)} characters, not 1 to {MOST_NAME}")
    raise InvalidArgumentError(field, f"{name!r} has characters other than %|a-zA-Z0-9_-")


def check_lite_topics(names: Sequence[str], field: str) -> None:
    for at, name in enumerate(names):
        if not _NAME(name):
            check_lite_topic(name, f"{field}[{at}]")


def no_parent(topic: str) -> InvalidArgumentError:
    """The error for a topic that is not a parent of lite topics."""
    return InvalidArgumentError(
        "topic", f"{topic!r} is not made for lite topics: kvcq lite create {topic}"
    )


def queue_of(parent: str, lite_topic: str) -> str:
    """The light queue's name: %LMQ%$parent$lite, as in RocketMQ's LiteUtil."""
    return f"{LITE_PREFIX}{parent}${lite_topic}"


def prefix_of(parent: str) -> str:
    """The prefix of the names of all its light queues. Raises InvalidArgumentError."""
    check_topic(parent, "topic")
    return f"{LITE_PREFIX}{parent}$"


def name_of(queue: str) -> str:
    """The name of the lite topic whose light queue this is."""
    return queue.rpartition("$")[2]


def parts_of(queue: str) -> tuple[str, str] | None:
    """Parent and lite topic of a light queue; None if it is not a lite topic's."""
    if not queue.startswith(LITE_PREFIX):
        return None
    parent, _, lite_topic = queue[len(LITE_PREFIX) :].partition("$")
    return (parent, lite_topic) if parent and _NAME(lite_topic) else None
