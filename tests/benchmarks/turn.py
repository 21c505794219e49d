"""One system's turn in one round: its server starts, does the works, and stops."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.machine import disk_bytes, touch_memory, used_by
from kvcq_bench.report import RATE, Figure, Result
from tests.benchmarks.client import Child
from tests.benchmarks.timing import NotOfferedError
from tests.benchmarks.work import AFTER_FSYNC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvcq_bench.report import Report
    from tests.benchmarks.system import Server, System
    from tests.benchmarks.timing import Timed
    from tests.benchmarks.work import Work

STOP, RESTART = "stop", "restart to ready"
#: More than a piece of work takes.
_TOUCHED_BYTES = 3 << 29
_WARM_UP_SHARE = 0.1
#: Queues of what is done beforehand, of what is read back, and both.
WARM, READ, READ_WARM = "warm", "read", "read-warm"


@dataclass
class Turn:
    """A failure ends the turn and is noted: the others are measured all the same."""

    system: System
    number: int
    directory: Path
    report: Report
    scale: float
    say: Callable[[str], None]
    #: Messages in a queue that is read back: just those must be found.
    _in_queue: dict[str, int] = field(default_factory=dict)

    def run(self, works: Sequence[Work]) -> None:
        for durable in (False, True):
            due = [work for work in works if not durable or self._does_after_fsync(work)]
            directory = self.directory / ("durable" if durable else "plain")
            directory.mkdir(parents=True)
            try:
                if due:
                    self._run(directory, due, durable=durable)
            except NotOfferedError as error:
                self._not_offered("after fsync" if durable else "all", error)
            except Exception as error:  # noqa: BLE001 - see above
                for log in sorted(directory.glob("*.log")):
                    self.say(f"{log.name}: {log.read_text('utf-8', 'replace')[-2000:]}")
                self.say(str(error))
                end = str(error).strip().rpartition("\n")[2]
                self.report.failures.append(
                    f"{self.system.title}, round {self.number + 1}: {end or type(error).__name__}"
                )
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    def _does_after_fsync(self, work: Work) -> bool:
        """Not where other settings are held against ours."""
        return work.after_fsync and not self.system.works

    def _run(self, directory: Path, works: Sequence[Work], *, durable: bool) -> None:
        system = self.system
        server = system.server(directory, durable=durable)
        settings = self.report.conditions.setdefault("settings", {})
        settings[system.title + (AFTER_FSYNC if durable else "")] = server.settings
        self._in_queue.clear()
        try:
            server.start()
            system.prepare(server, self.scale)
            command = system.client_command(server.address, durable=durable)
            with Child(command, directory / "client.log") as child:
                for work in works:
                    name = work.name + (AFTER_FSYNC if durable else "")
                    self.say(f"{system.title}: {name}")
                    try:
                        self._measure(directory, server, child, work, name)
                    except NotOfferedError as error:
                        self._not_offered(name, error)
            if system.is_whole and not durable:
                self._seconds(STOP, server.stop)
                self._seconds(RESTART, server.start)
        finally:
            server.stop()

    def _measure(
        self, directory: Path, server: Server, child: Child, work: Work, name: str
    ) -> None:
        if work.warm_up:
            child.run(work.method, **self._arguments(child, work, _WARM_UP_SHARE))
        arguments = self._arguments(child, work)
        touch_memory(max(1 << 24, round(_TOUCHED_BYTES * self.scale)))
        disk, pids = _stored_bytes(directory), server.pids()
        before, client, main = used_by(pids), used_by([child.pid]), used_by(pids[:1], alone=True)
        with self.system.beside(server) as more:
            timed = child.run(work.method, **arguments)
            after, main_after = used_by(pids), used_by(pids[:1], alone=True)
        client_after = used_by([child.pid])
        each = 1e6 / max(1, timed.count)
        figures = {
            "server processor time": ((after.cpu_s - before.cpu_s) * each, "us"),
            "main process, processor time": ((main_after.cpu_s - main.cpu_s) * each, "us"),
            "client processor time": ((client_after.cpu_s - client.cpu_s) * each, "us"),
            "memory growth": ((after.resident_bytes - before.resident_bytes) / 1e6, "MB"),
            "disk growth": ((_stored_bytes(directory) - disk) / 1e6, "MB"),
        }
        self._keep(name, work.unit, timed, (figures if pids else {}) | more)

    def _arguments(self, child: Child, work: Work, share: float = 1.0) -> dict[str, Any]:
        """Those of a work, or of a share of it in queues of their own. One that reads finds what
        it is to read."""
        is_warm_up = share < 1
        arguments = work.scaled(self.scale, share)
        if work.reads is not None:
            queue = READ_WARM if is_warm_up else READ
            there = self._filled(child, work.reads, queue, share)
            arguments |= {"queue": queue, "count": min(arguments["count"], there)}
        elif is_warm_up and "queue" in arguments:
            arguments["queue"] = WARM
        return arguments

    def _filled(self, child: Child, work: Work, queue: str, share: float) -> int:
        """How many messages are in that queue; the work puts them there once."""
        if queue not in self._in_queue:
            arguments = work.scaled(self.scale, share) | {"queue": queue}
            self._in_queue[queue] = child.run(work.method, **arguments).count
        if not self._in_queue[queue]:
            raise NotOfferedError("nothing could be put for it")
        return self._in_queue[queue]

    def _seconds(self, name: str, work: Callable[[], None]) -> None:
        self.say(f"{self.system.title}: {name}")
        began_s = perf_counter()
        work()
        figures = {RATE: Figure(perf_counter() - began_s, "s")}
        self.report.results.append(Result(self.system.name, name, self.number, figures))

    def _keep(self, name: str, unit: str, timed: Timed, more: dict[str, tuple[float, str]]) -> None:
        figures = {RATE: Figure(timed.count / timed.seconds, unit)}
        for share, value in (("median", timed.p50_us), ("p99", timed.p99_us)):
            if value is not None:
                figures[share] = Figure(value / 1e3, "ms")
        figures |= {name: Figure(*one) for name, one in {**timed.more, **more}.items()}
        self.report.results.append(Result(self.system.name, name, self.number, figures))

    def _not_offered(self, name: str, error: NotOfferedError) -> None:
        line = f"{self.system.title} has no figure of {name}: {error}."
        if line not in self.report.notes:
            self.report.notes.append(line)


def _stored_bytes(directory: Path) -> int:
    return sum(disk_bytes(directory).values())
