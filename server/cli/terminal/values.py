"""Types of arguments and options: numbers that fit the request, and text that is UTF-8.

A number that does not fit its field in the request, or bytes that are not text, are usage errors:
click reports them with the option's name, and exit code 2.
"""

from __future__ import annotations

import os
from time import time
from typing import TYPE_CHECKING

import click

from server.moments import moment_ms
from server.texts import size_bytes, span_ms

if TYPE_CHECKING:
    from collections.abc import Callable

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Whole(click.ParamType[int]):
    """A whole number with bounds, which the help does not repeat."""

    name = "number"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse a number. Raises BadParameter, naming the bounds."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not self._low <= number <= self._high:
            self.fail(f"{number} is not from {self._low} to {self._high}", param, ctx)
        return number

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


class Moment(click.ParamType[int]):
    """A time: `2026-01-31`, `2026-01-31T12:00`, `-90m` for 90 minutes ago, `now`, or ms since 1970.

    UTC unless it has a time zone. Its value is in ms since 1970.
    """

    name = "time"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the text. Raises BadParameter."""
        if isinstance(value, int):
            return value
        found_ms = moment_ms(str(value), round(time() * 1000))
        if found_ms is None or not 0 <= found_ms <= INT64_MAX:
            self.fail(f"{value!r} is not a time such as 2026-01-31T12:00, -90m or now", param, ctx)
        return found_ms

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "TIME"


class Scaled(click.ParamType[int]):
    """A number with a unit, such as `90m` or `10GiB`. Its value is in the smallest unit."""

    def __init__(self, name: str, read: Callable[[str], int | None], example: str) -> None:
        """`read` parses a text; returns None if it is invalid."""
        self.name = name
        self._read = read
        self._example = example

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the text. Raises BadParameter."""
        amount = value if isinstance(value, int) else self._read(value)
        if amount is None:
            self.fail(f"{value!r} is not 0 or {self._example}", param, ctx)
        if amount > INT64_MAX:
            self.fail(f"{value!r} is too large", param, ctx)
        return amount

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name.upper()


#: A duration, in ms.
SPAN = Scaled("span", span_ms, "a time such as 90m, 36h or 7d")
#: A size, in bytes.
SIZE = Scaled("size", size_bytes, "a size such as 500MB, 10GiB or 4096")

#: A queue of a topic.
QUEUE = Whole(0, INT32_MAX)
#: A count of queues, or of rows to print; one more, which tells whether there are more, fits, too.
COUNT = Whole(1, INT32_MAX - 1)
#: A queue offset.
OFFSET = Whole(0, INT64_MAX)
TIME = Moment()
#: Text for the help of such options.
TIMES = "Times are UTC: 2026-01-31T12:00, or -1h for an hour ago."


def text(value: str) -> str:
    """A text that can be sent. Rejects bytes that are not UTF-8, which arrive as lone
    surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{value!r} is not UTF-8") from None
    return value


def server_address(value: str) -> str:
    """Host and port of a server, or another target that gRPC knows."""
    # Imported here, because it imports the client and gRPC, about 0.1 s.
    from kvcq_client.transport import is_target

    if not is_target(text(value)):
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return value


def argument_bytes(argument: str) -> bytes:
    """The bytes of an argument as they were typed, independent of the shell's encoding."""
    return os.fsencode(argument)
