"""Kinds of jobs whose work goes on until a test lets it end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from migration.jobs import Outcome

if TYPE_CHECKING:
    from migration.jobs import Job
    from server.jobs import Work

WAIT_S = 30.0


class HeldKind:
    """Its job says that it has come half way, and then waits for `end`, or for a cancellation."""

    unit = "steps"

    def __init__(self, name: str = "compact", error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.numbers: dict[str, int] = {}
        self.half_way = threading.Event()
        self.end = threading.Event()

    def work(self, wanted: Any) -> Work:  # noqa: ANN401 - any message
        def work(running: Job) -> Outcome:
            running.step("half", 5, 10)
            self.half_way.set()
            while not self.end.is_set():
                running.pause(0.001)
            running.report(10, 10)
            if self.error is not None:
                raise self.error
            return Outcome("all ten", {"steps_done": 10, **self.numbers})

        return work
