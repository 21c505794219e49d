"""Errors of a put that name the message at fault."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format import BLANK_BYTES, LONGEST_NAME, MAX_PROPERTIES_BYTES, MIN_RECORD_BYTES
from store.message import PlainMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.format import Prepared
    from store.message import Message

_body_of = attrgetter("body")
#: Upper bound of a record's size without its body.
_MOST_BESIDE = MIN_RECORD_BYTES + MAX_PROPERTIES_BYTES + LONGEST_NAME + BLANK_BYTES


def check_fit(
    messages: Sequence[Message], prepared: Sequence[Prepared], segment_bytes: int
) -> None:
    """Raises InvalidArgumentError for the first message that is too long for a segment by its body,
    properties and name alone. The append checks all records; this check is for what is decided
    before it, such as the topics that the messages create."""
    bodies = messages.bodies if type(messages) is PlainMessages else map(_body_of, messages)
    if _MOST_BESIDE + max(map(len, bodies), default=0) <= segment_bytes:
        return  # the common case
    for index, (message, details) in enumerate(zip(messages, prepared, strict=True)):
        size = len(message.body) + len(details.properties) + len(message.topic)
        if MIN_RECORD_BYTES + size + BLANK_BYTES > segment_bytes:
            raise InvalidArgumentError(
                f"messages[{index}].body",
                f"the record does not fit a segment of {segment_bytes} bytes",
            )


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
