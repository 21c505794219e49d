"""Measurements of a run: counters, latencies, samples of the target, figures."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.histogram import Histogram
from kvcq_bench.report import Figure, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from kvcq_bench.targets import Target

#: Samples between two walks over the store's directory, which take longest.
_DISK_EVERY = 5
#: With this many samples, every second one is dropped, and further samples come half as often. So
#: hours of samples stay small.
_MOST_SAMPLES = 2000
_STATISTICS = (
    "l0_files",
    "sst_bytes",
    "memtable_bytes",
    "pending_compaction_bytes",
    "running_compactions",
    "write_stopped",
    "delayed_write_bytes_per_s",
    "flush_behind_bytes",
    "dispatch_behind_bytes",
    "hot_queues",
)


class Recorder:
    """Owned by the run; `count` and `latency` from any thread. Samples come from its own thread."""

    def __init__(self, target: Target, interval_s: float, watch: Callable[[str], None]) -> None:
        # The target of samples and points. A kind that opens its own stores changes it: `watching`.
        self._target = target
        self._interval_s = interval_s
        self._watch = watch
        self._started_s = perf_counter()
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._latencies: dict[str, Histogram] = {}
        self.samples: list[dict[str, float]] = []
        self.points: list[dict[str, float]] = []
        self.figures: dict[str, Figure] = {}
        self.notes: list[str] = []
        self.phase = ""
        self.phases: list[tuple[float, str]] = []
        self._stop = threading.Event()
        # Held while a sample is taken: a target that is being reopened cannot answer.
        self.sampling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="bench-samples", daemon=True)

    # --- what scenarios call ---------------------------------------------------------------

    def begin(self, phase: str) -> None:
        """Begin a phase. Progress and plots show its name."""
        self.phase = phase
        self.phases.append((self.elapsed_s, phase))
        self._watch(phase)

    def count(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counters[name] += amount

    def counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counters)

    def latency(self, name: str) -> Histogram:
        """The histogram of that name; created on first use."""
        with self._lock:
            return self._latencies.setdefault(name, Histogram())

    def figure(self, name: str, value: float, unit: str = "") -> None:
        """Add a figure to the result. Without a unit it is a ratio."""
        self.figures[name] = Figure(value, unit)

    @contextmanager
    def rate(self, name: str, amount: float, unit: str) -> Iterator[None]:
        """Add a figure: `amount` divided by the seconds that the block takes."""
        began_s = perf_counter()
        yield
        self.figure(name, amount / (perf_counter() - began_s), unit)

    def point(self, queues: int, **values: float) -> dict[str, float]:
        """Record memory and disk at this number of queues, and `values`. Returns the point; more
        values may be added to it."""
        point: dict[str, float] = {"queues": queues, **values, **self.used(), **self._disk()}
        self.points.append(point)
        return point

    def used(self) -> dict[str, float]:
        """Resource usage of the target now; {} if it is on another machine."""
        used = self._target.used()
        return asdict(used) if used is not None else {}

    def watching(self, target: Target) -> None:
        """Sample this target from now on. Must not be called while one is being opened."""
        with self.sampling:
            self._target = target

    @property
    def elapsed_s(self) -> float:
        return perf_counter() - self._started_s

    def result(self, work: str, number: int) -> Result:
        """All results of the target in this round."""
        figures, course = dict(self.figures), self._course()
        for name, summary in course["latencies"].items():
            for share in ("p50", "p99"):
                if f"{share}_ms" in summary:
                    figures[f"{name}, {share}"] = Figure(summary[f"{share}_ms"], "ms")
        return Result(self._target.name, work, number, figures, course)

    def _course(self) -> dict[str, Any]:
        return {
            "counters": self.counters(),
            "latencies": {name: one.summary() for name, one in self._latencies.items()},
            "phases": [{"at_s": at_s, "name": name} for at_s, name in self.phases],
            "samples": self.samples,
            "points": self.points,
            "notes": self.notes,
        }

    # --- samples ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()

    def sample(self) -> None:
        with self.sampling:
            row: dict[str, float] = {"at_s": self.elapsed_s}
            with self._lock:
                row |= {f"count.{name}": value for name, value in self._counters.items()}
            row |= self.used()
            for name, value in self._target.statistics().items():
                if name.endswith(_STATISTICS):
                    row[name] = value
            if len(self.samples) % _DISK_EVERY == 0:
                row |= self._disk()
            self.samples.append(row)
            if len(self.samples) >= _MOST_SAMPLES:
                del self.samples[1::2]
                self._interval_s *= 2
            self._watch(self.phase)

    def _disk(self) -> dict[str, float]:
        return {f"disk_{name}_bytes": size for name, size in self._target.disk_bytes().items()}

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.sample()
