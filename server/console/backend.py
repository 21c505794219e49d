"""State of the server that all pages share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.console.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from server.console.calls import ApiCalls
    from server.console.navigation import Row
    from server.console.viewers import Viewers
    from server.metrics import CallMetrics
    from server.stage import Stage
    from server.workers import Workers


@dataclass(frozen=True)
class Backend:
    """The server's parts that pages use. Owned by the event loop's thread."""

    calls: ApiCalls
    viewers: Viewers
    stage: Stage
    metrics: CallMetrics
    #: All numbers of the server, for the charts; not asked for by a viewer.
    read_numbers: Callable[[], Awaitable[Mapping[str, float]]]
    version: str
    navigation: tuple[Row, ...]
    #: For bodies: they may be large, and compressed.
    workers: Workers
    #: ms since 1970.
    now_ms: Callable[[], int]
    #: Never goes back.
    monotonic_s: Callable[[], float]
    samples: Samples = field(default_factory=Samples)
