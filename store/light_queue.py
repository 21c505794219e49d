"""Light queues: a message names them in a property, and is in each besides its topic's queue.

They have no settings of their own, and a single queue, queue 0. A light queue exists from its first
message on. How long messages are visible in them is configured by prefix of the name.
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
    """Parse prefixes of names with the time in ms for which messages are visible in these queues;
    longest prefix first. A text is, for example, `device-=24`, in hours, without the prefix %LMQ%.
    Raises ValueError, naming an invalid text."""
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
