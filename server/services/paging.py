"""Page tokens for lists of queues, numbers and rows."""

from __future__ import annotations

from server.texts import whole_number
from store.errors import InvalidArgumentError

_I32_MAX = (1 << 31) - 1
_I64_MAX = (1 << 63) - 1
_MAX_NAME = 255


def token_of(queue: tuple[str, int]) -> str:
    """The token of the page after that topic and queue id."""
    return f"{queue[1]}@{queue[0]}"


def position_of(token: str) -> tuple[str, int] | None:
    """The topic and queue id in a page token; None for the first page. Raises
    InvalidArgumentError."""
    if not token:
        return None
    number, separator, topic = token.partition("@")
    queue_id = whole_number(number, _I32_MAX)
    if not separator or queue_id is None or len(topic) > _MAX_NAME:
        raise _not_ours()
    return topic, queue_id


def number_of(token: str) -> int:
    """The number in a page token; -1 for the first page. Raises InvalidArgumentError."""
    number = whole_number(token, _I64_MAX) if token else -1
    if number is None:
        raise _not_ours()
    return number


def cursor_of(token: str) -> bytes | None:
    """None for the first page. Raises InvalidArgumentError; the store validates the bytes."""
    try:
        return bytes.fromhex(token) or None
    except ValueError:
        raise _not_ours() from None


def _not_ours() -> InvalidArgumentError:
    return InvalidArgumentError("page_token", "was not returned by this call")
