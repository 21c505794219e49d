"""Light queues: a message names them in a property, and stands in each besides its topic's queue.

They have no settings of their own, and one queue each: queue 0. One exists while it has had a
message. How long messages are seen in them is set for all whose names begin alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Their names start with this (RocketMQ MixAll.LMQ_PREFIX).
LMQ_PREFIX = "%LMQ%"


_LIMIT = re.compile(r"(.*)=(\d{1,6}(?:\.\d{1,6})?)", re.DOTALL)
#: A list that is gone through with each read.
MOST_LIMITS = 100


def is_light(name: str) -> bool:
    return name.startswith(LMQ_PREFIX)


def limits_of(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Beginnings of names, and for how many ms messages are seen in these queues, the longest
    beginning first. A text is such as `device-=24`, hours; the prefix %LMQ% is left out. Raises
    ValueError, with the text that is none."""
    found: dict[str, int] = {}
    for text in texts:
        match = _LIMIT.fullmatch(text)
        if match is None or not float(match[2]) > 0 or match[1] in found:
            raise ValueError(text)
        found[match[1]] = max(1, round(float(match[2]) * 3_600_000))
    return [
        (LMQ_PREFIX + beginning, found[beginning])
        for beginning in sorted(found, key=len, reverse=True)
    ]
