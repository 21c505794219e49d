"""What of a broker's own file of settings (`broker.conf`) matters to a store that is taken over.

The file lies with the program, not in the store, so an operator has to name it.
Source of the setting and its default: RocketMQ 5, MessageStoreConfig.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

#: A property as Java reads it: white space around the name, then "=", ":" or white space.
_PROPERTY = re.compile(r"^[ \t\f]*cleanFileForciblyEnable[ \t\f]*[=: \t\f][ \t\f]*(.*?)\s*$", re.M)


def reclaims_unexpired(path: Path) -> bool:
    """Whether the broker deletes messages that have not expired when its disk fills.

    It does unless `cleanFileForciblyEnable` says otherwise. Raises StoreFormatError, OSError.
    """
    values = _PROPERTY.findall(path.read_text(encoding="latin-1"))  # as Java reads it
    value = values[-1].lower() if values else "true"
    if value not in ("true", "false"):
        raise StoreFormatError(
            path, f"cleanFileForciblyEnable is {values[-1]!r}, neither true nor false"
        )
    return value == "true"
