"""The position at which a trace continues in the next call, encoded as JSON. The caller may have
modified it."""

from __future__ import annotations

import json
from typing import NamedTuple

from store.errors import InvalidArgumentError
from store.trace.story import What

#: The cursor keeps the last event of at most this many groups and places, whose names together have
#: at most this many bytes.
_MOST_SAID = 500
_MOST_NAMES = 24 << 10
_DELIVERIES_END = 1 << 31  # responses have an int32


class Cursor(NamedTuple):
    """The state of a trace between two calls."""

    at: int  # queue offset of the next record of the state
    ended: list[int]  # places, by number, that were deleted
    # For each group and place the last event that was returned, and how often the message was
    # delivered; None: not known.
    said: list[tuple[str, int, What, int | None]]
    letters: list[tuple[str, int, int]] = []  # noqa: RUF012 - never changed; group, place, letter


def pack_cursor(cursor: Cursor) -> bytes:
    said, names = [], 0
    for group, number, what, deliveries in cursor.said[-_MOST_SAID:]:
        names += len(group)
        if names <= _MOST_NAMES:
            said.append([group, number, what.value, deliveries])
    letters = cursor.letters[-_MOST_SAID:]
    return json.dumps([cursor.at, cursor.ended, said, letters], separators=(",", ":")).encode()


def unpack_cursor(data: bytes, places: int, most_at: int) -> Cursor:
    """Decode the cursor of a message with that many places. Raises InvalidArgumentError."""
    try:
        at, ended, said, letters = json.loads(data)
        if type(at) is not int or not 0 <= at <= most_at:
            raise ValueError
        named = [each[:2] for each in said] + [(group, number) for group, number, _ in letters]
        numbers = [*ended, *(number for _, number in named)]
        if any(type(each) is not int or not 0 <= each < places for each in numbers):
            raise ValueError
        for group, _ in named:
            if type(group) is not str:
                raise ValueError
            group.encode()  # raises ValueError for an invalid text
        if any(type(letter) is not int or letter < 0 for _, _, letter in letters):
            raise ValueError
        if any(
            each is not None and (type(each) is not int or not 0 <= each < _DELIVERIES_END)
            for *_, each in said
        ):
            raise ValueError
        return Cursor(
            at,
            ended,
            [(group, number, What(what), deliveries) for group, number, what, deliveries in said],
            [(group, number, letter) for group, number, letter in letters],
        )
    except (ValueError, TypeError, RecursionError):
        raise InvalidArgumentError("page_token", "was not returned by this call") from None
