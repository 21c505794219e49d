"""Errors of a put that name the message at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format import check_all_may_put
from store.message import PlainMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message import Message


def check_topics_of(messages: Sequence[Message]) -> None:
    """Raises InvalidArgumentError for the first message whose topic only the store writes."""
    if isinstance(messages, PlainMessages):
        check_all_may_put(messages.topics)
    else:
        check_all_may_put([each.topic for each in messages])


def placed_in_batch(
    error: InvalidArgumentError, messages: Sequence[Message]
) -> InvalidArgumentError:
    """The same error, naming the message whose topic or host was rejected; other fields are named
    already."""
    for index, message in enumerate(messages):
        if (
            error.field == "topic" and (repr(message.topic) in error.reason or not message.topic)
        ) or (error.field == "host" and repr(message.born_host[0]) in error.reason):
            field = "born_host" if error.field == "host" else "topic"
            return InvalidArgumentError(f"messages[{index}].{field}", error.reason)
    return error
