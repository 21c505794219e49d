"""What arguments and options may be: numbers that fit the request, and text that is UTF-8.

A number that its field in the request cannot hold, or bytes that are no text, are wrong usage:
click says so with the name of the option, and exit code 2.
"""

from __future__ import annotations

import re

import click

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: A queue of a topic.
QUEUE = click.IntRange(0, INT32_MAX)
#: A count of queues, or of rows to print.
COUNT = click.IntRange(1, INT32_MAX)
#: A queue offset, or a time in ms.
OFFSET = TIME_MS = click.IntRange(0, INT64_MAX)

_HOST_AND_PORT = re.compile(r"[^\s/]+:(\d{1,5})")
#: Other forms of gRPC's, such as unix:/run/kvcq.sock or dns:///name:8081.
_WITH_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/\S+")


def text(value: str) -> str:
    """Text that can be sent: bytes that are not UTF-8 come in as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{value!r} is not UTF-8") from None
    return value


def server(value: str) -> str:
    """Host and port of a server, or another target that gRPC knows."""
    found = _HOST_AND_PORT.fullmatch(text(value))
    if not (_WITH_SCHEME.fullmatch(value) or (found and 0 < int(found[1]) <= 65_535)):
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return value


def argument_bytes(argument: str) -> bytes:
    """The bytes of an argument as they were typed, also where they are not UTF-8."""
    return argument.encode(errors="surrogateescape")
