"""Reads a broker's settings file (`broker.conf`).

The file is outside the store, so an operator has to name it. For a store that is taken over only
one setting matters: what the broker does when its disk fills. Source of the setting and its
default: RocketMQ 5, MessageStoreConfig.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

#: A property as Java reads it: white space around the name, then "=", ":" or white space.
_PROPERTY = re.compile(r"[ \t\f]*([^#!=: \t\f][^=: \t\f]*)(?:[ \t\f]*[=:]|[ \t\f]|$)[ \t\f]*(.*)")
#: A line that ends like this continues on the next line, without the leading white space there.
_GOES_ON = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*")
_ESCAPE = re.compile(r"\\(.)")


def read_properties(path: Path) -> dict[str, str]:
    """Settings by name; the last value counts if a name is repeated. Raises OSError."""
    text = path.read_text(encoding="latin-1")  # as Java does
    found = {}
    for line in _GOES_ON.sub(r"\1", text).splitlines():
        if match := _PROPERTY.fullmatch(line.rstrip()):
            found[match[1]] = _ESCAPE.sub(r"\1", match[2])
    return found


def reclaims_unexpired(path: Path) -> bool:
    """Whether the broker deletes messages that have not expired when its disk fills.

    It does unless `cleanFileForciblyEnable` is false. Raises StoreFormatError, OSError.
    """
    given = read_properties(path).get("cleanFileForciblyEnable", "true")
    value = given.lower()
    if value not in ("true", "false"):
        raise StoreFormatError(
            path, f"cleanFileForciblyEnable is {given!r}, neither true nor false"
        )
    return value == "true"
