"""One round: a scenario on a target, with its seed, ledger and recorder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcq_bench.bodies import BodyMaker
from kvcq_bench.ledger import Ledger
from kvcq_bench.machine import touch_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcq_bench.recorder import Recorder
    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target

_TOUCHED_BYTES = 2 << 30


@dataclass(frozen=True)
class Run:
    """The context of a scenario."""

    scenario: Scenario
    target: Target
    recorder: Recorder

    def random(self, *which: int) -> np.random.Generator:
        """A random generator for the purpose `which`, the same in every run with the seed."""
        return np.random.default_rng((self.scenario.seed, *which))

    def ledger(self, streams: int, max_body_bytes: int) -> Ledger:
        return Ledger(streams, BodyMaker(self.scenario.seed, max_body_bytes))

    def touch_memory(self) -> None:
        """Call before timing work that uses much memory, see `machine.touch_memory`."""
        with self.recorder.sampling:  # so that no sample counts it as the target's memory
            rate = touch_memory(int(_TOUCHED_BYTES * min(1.0, self.scenario.scale)))
        name = "first touch of fresh memory, lowest"
        before = self.recorder.figures.get(name)
        self.recorder.figure(name, min(rate, before.value) if before else rate, "MB/s")

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        """Reopen the target without sampling meanwhile. Returns the seconds until ready."""
        with self.recorder.sampling:
            return self.target.reopen(settings, kill=kill, meanwhile=meanwhile)
