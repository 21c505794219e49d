"""The server's metrics of the last ten minutes, for the charts of the overview.

The server stores them, not the page, so that a newly opened page has the past as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger(__name__)

SAMPLE_S = 2.0
KEPT_SAMPLES = 300

#: Line of a chart: the counter whose growth a second it shows.
_RATES = {
    "put": "server.messages_put",
    "pulled": "server.messages_pulled",
    "appendedBytes": "store.log_appended_offset",
}
#: The same of all counters together that begin so.
_RATES_OF_MANY = {"calls": "server.calls.", "refusals": "server.refusals."}
#: Lines of charts that show a level.
_LEVELS = {
    "dispatchBehind": "store.dispatch_behind_bytes",
    "flushBehind": "store.flush_behind_bytes",
}
LINES = (*_RATES, *_RATES_OF_MANY, *_LEVELS)


class Samples:
    """The lines of the charts. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, list[float | None]]] = deque(maxlen=KEPT_SAMPLES)
        self._last: tuple[float, list[float | None]] | None = None

    def take(self, time_s: float, numbers: Mapping[str, float]) -> None:
        """Add a sample; `time_s`: since 1970. An unknown value leaves a gap."""
        counters = _counters(numbers)
        last, self._last = self._last, (time_s, counters)
        if last is None or time_s <= last[0]:
            return
        passed_s = time_s - last[0]
        rates = [
            None if now is None or before is None else max(0.0, (now - before) / passed_s)
            for now, before in zip(counters, last[1], strict=True)
        ]
        self._rows.append((time_s, [*rates, *(numbers.get(name) for name in _LEVELS.values())]))

    def columns(self) -> dict[str, list[float | None]]:
        """`time` in seconds since 1970, and a column of the same length for each line."""
        columns: dict[str, list[float | None]] = {"time": [time_s for time_s, _ in self._rows]}
        for index, line in enumerate(LINES):
            columns[line] = [values[index] for _, values in self._rows]
        return columns


async def keep_sampling(
    samples: Samples,
    read: Callable[[], Awaitable[Mapping[str, float]]],
    time_s: Callable[[], float],
) -> None:
    """Sample every `SAMPLE_S` seconds, until cancelled. Errors leave a gap."""
    while True:
        try:
            numbers = await read()
            samples.take(time_s(), numbers)
        except Exception:
            # Missing samples must not end the console; its pages report the error themselves.
            logger.debug("no sample was taken", exc_info=True)
        await asyncio.sleep(SAMPLE_S)


def _counters(numbers: Mapping[str, float]) -> list[float | None]:
    """The counters behind the rates. The server counts from 0; the store has none before it is
    open."""
    single = [
        numbers.get(name, 0.0 if name.startswith("server.") else None) for name in _RATES.values()
    ]
    many = [
        sum(number for name, number in numbers.items() if name.startswith(prefix))
        for prefix in _RATES_OF_MANY.values()
    ]
    return [*single, *many]
