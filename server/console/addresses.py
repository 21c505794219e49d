"""Addresses of the console's own pages."""

from __future__ import annotations

import re
from urllib.parse import urlencode

#: A path of this console with its query, and no other origin: `//x` and `/\x` lead away.
_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


def address(path: str, **query: object) -> str:
    """A path with its query; what is empty is left out."""
    values = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(values)}" if values else path


def local(path: str) -> str:
    """The path, if it leads nowhere but into this console; the overview otherwise."""
    return path if _LOCAL.fullmatch(path) else "/"
