"""The turns: each system starts, does its works and stops, before the next one starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_bench.machine import touch_memory
from tests.peers.child import Child
from tests.peers.processes import Used, machine_cpu_s, stored_bytes, used_by
from tests.peers.values import (
    WARM_UP_QUEUE,
    Durability,
    Memory,
    NotOfferedError,
    Sample,
    Timed,
)
from tests.peers.works import RESTART, STOP, WORKS, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.peers.cold import ColdMemory
    from tests.peers.systems.protocol import Server, System

T = TypeVar("T")

#: More than a piece of work takes.
_TOUCHED_BYTES = 3 << 29
_WARM_UP_SHARE = 0.1


@dataclass
class Found:
    """What a run has found out."""

    samples: list[Sample] = field(default_factory=list)
    #: Of bare calls: the system is a pair of a server and a client.
    echoes: list[Sample] = field(default_factory=list)
    #: System to how to install it.
    left_out: dict[str, str] = field(default_factory=dict)
    #: System to work to why there is none.
    not_offered: dict[str, dict[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def installed(systems: Sequence[System], found: Found) -> list[System]:
    """Those that can be measured; the others are noted with how to install them."""
    there = []
    for system in systems:
        missing = system.missing()
        if missing is None:
            there.append(system)
            if not system.limits:  # made of what is named with ours
                found.versions[system.name] = system.version()
        else:
            found.left_out[system.name] = f"{system.title} is not installed: {missing}"
    return there


def in_turns(systems: Sequence[T], rounds: int, turn: Callable[[T, int], None]) -> None:
    """Each round begins with another one, so that none is always measured first."""
    for number in range(rounds):
        first = number % max(1, len(systems))
        for system in (*systems[first:], *systems[:first]):
            turn(system, number)


class Turn:
    """One system's turn in one round."""

    def __init__(
        self,
        system: System,
        number: int,
        directory: Path,
        found: Found,
        cold: ColdMemory,
        scale: float,
        say: Callable[[str], None],
    ) -> None:
        self._system = system
        self._number = number
        self._directory = directory
        self._found = found
        self._cold = cold
        self._scale = scale
        self._say = say
        #: Messages in a queue: reading back must find just that.
        self._in_queue: dict[str, int] = {}

    def run(self) -> None:
        """All its works. A failure ends the turn and is noted: the run ends with an error."""
        for durability in WORKS:
            works = [work for work in WORKS[durability] if self._system.does(work)]
            directory = self._directory / durability.replace(" ", "-")
            directory.mkdir(parents=True)
            try:
                self._run(directory, durability, works)
            except NotOfferedError as error:
                self._note(f"all, {durability}", error)
            except Exception as error:  # noqa: BLE001 - the other systems are measured all the same
                for log in sorted(directory.glob("*.log")):
                    self._say(f"{log.name}: {log.read_text('utf-8', 'replace')[-2000:]}")
                text = f"{self._system.title}, {durability}, round {self._number + 1}: "
                text += str(error).strip().rpartition("\n")[2]
                self._say(str(error))
                self._found.failures.append(text)
                self._say(f"failed: {text}")
            finally:
                shutil.rmtree(directory)

    def _run(self, directory: Path, durability: Durability, works: Sequence[Work]) -> None:
        server = self._system.server(directory, durability)
        self._found.settings.setdefault(self._system.name, {})[durability] = server.settings
        works_left = list(works)
        self._in_queue.clear()
        try:
            server.start()
            while works_left:
                command = self._system.client_command(server.address, durability)
                with Child(command, directory / "client.log") as child:
                    while works_left and works_left[0].method:
                        self._measure(directory, server, child, works_left.pop(0), durability)
                while works_left and not works_left[0].method:
                    work = works_left.pop(0)
                    self._without_client(server, work, durability, goes_on=bool(works_left))
        finally:
            server.stop()

    def _measure(
        self, directory: Path, server: Server, child: Child, work: Work, durability: Durability
    ) -> None:
        self._say(f"{self._system.title}, {durability}: {work.name}, memory {work.memory}")
        try:
            if work.warm_up:
                self._do(child, work, work.scaled(self._scale, _WARM_UP_SHARE), WARM_UP_QUEUE)
            more = self._prepare_memory(work.memory)
            disk = stored_bytes(directory)
            before, client_before = used_by(server.pids()), used_by([child.pid])
            machine_s = machine_cpu_s()
            timed = self._do(child, work, work.scaled(self._scale), work.arguments.get("queue", ""))
            machine_s = machine_cpu_s() - machine_s
            client_after, after = used_by([child.pid]), used_by(server.pids())
        except NotOfferedError as error:
            self._note(work.name, error)
            return
        more |= _growth(before, after)
        more["disk_bytes"] = stored_bytes(directory) - disk
        more["client_resident_bytes"] = client_after.resident_bytes - client_before.resident_bytes
        self._keep(
            work,
            durability,
            timed,
            client_cpu_s=client_after.cpu_s - client_before.cpu_s,
            server_cpu_s=after.cpu_s - before.cpu_s,
            machine_cpu_s=machine_s,
            more=more,
        )

    def _do(self, child: Child, work: Work, arguments: dict[str, Any], queue: str) -> Timed:
        if "queue" in arguments:
            arguments = {**arguments, "queue": queue}
        in_queue = self._in_queue.get(queue, 0)
        if work.method in ("read_back", "pull") and not in_queue:
            raise NotOfferedError("nothing could be put for it")
        if work.method == "read_back":
            arguments["count"] = in_queue
        elif work.method == "pull":
            arguments["count"] = min(arguments["count"], in_queue)
        timed = child.run(work.method, **arguments)
        if work.method in ("put_batches", "put_each"):
            self._in_queue[queue] = in_queue + timed.count
        return timed

    def _without_client(
        self, server: Server, work: Work, durability: Durability, *, goes_on: bool
    ) -> None:
        assert work.name == STOP or (work.name == RESTART and goes_on)
        self._say(f"{self._system.title}, {durability}: {work.name}")
        began_s = perf_counter()
        server.stop()
        stopped_s = perf_counter()
        if work.name == STOP:
            self._keep(work, durability, Timed(1, stopped_s - began_s))
        if goes_on:
            self._prepare_memory(work.memory)
            began_s = perf_counter()
            server.start()
            if work.name == RESTART:
                self._keep(work, durability, Timed(1, perf_counter() - began_s))

    def _prepare_memory(self, memory: Memory) -> dict[str, float]:
        if memory is Memory.AS_IT_COMES:
            return {}
        if memory is Memory.COLD:
            began_s = perf_counter()
            is_cold = self._cold.fill()
            return {
                "is_cold": float(is_cold),
                "fresh_memory_mb_s": self._cold.cold_mb_s,
                "held_bytes": self._cold.held_bytes,
                "held_after_s": perf_counter() - began_s,
            }
        size = max(1 << 24, round(_TOUCHED_BYTES * self._scale))
        self._cold.give(size)
        return {"fresh_memory_mb_s": touch_memory(size)}

    def _keep(self, work: Work, durability: Durability, timed: Timed, **used: Any) -> None:  # noqa: ANN401 - fields of Sample
        self._found.samples.append(
            Sample(
                self._system.name,
                work.name,
                durability,
                work.memory,
                self._number,
                timed.document(),
                **used,
            )
        )

    def _note(self, work: str, error: NotOfferedError) -> None:
        self._found.not_offered.setdefault(self._system.name, {})[work] = str(error)


def _growth(before: Used, after: Used) -> dict[str, float]:
    return {
        "resident_bytes": after.resident_bytes - before.resident_bytes,
        "pss_bytes": after.pss_bytes - before.pss_bytes,
        "resident_bytes_after": after.resident_bytes,
    }
