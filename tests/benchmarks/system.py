"""A system: a server that is started here, and a client in a process of its own."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcq_bench.report import Goal
    from tests.benchmarks.work import Work

OURS = "kvcq"
#: Its works must not import its system: older checkouts beside this one lack what that needs.
IDLE = "kvcq-idle"
#: Figures that are found out beside a work: value and unit by name.
More = dict[str, tuple[float, str]]


class Server(Protocol):
    """One server over one directory; what it stores lies in `directory`/store."""

    #: How it is set for its durability, in its own words.
    settings: str

    def start(self) -> None:
        """Ready for calls when it returns. After `stop`: again, over what it stored.

        Raises NotOfferedError when it has no such durability.
        """
        ...

    def stop(self) -> None:
        """Repeatable."""
        ...

    @property
    def address(self) -> str: ...

    def pids(self) -> list[int]:
        """Its processes; their children count without being named."""
        ...


class NoServer:
    """Of a client that has its store in its own process."""

    settings = "in the client's process"

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self.address = str(directory / "store")

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def pids(self) -> list[int]:
        return []


@dataclass(frozen=True)
class System:
    """What is measured; `server` and `client` are made anew for each turn."""

    name: str
    title: str
    server: Callable[..., Server]  # of a directory and `durable`
    #: The class of the client: of address and `durable`. A string: a module and a class of it.
    client: str
    #: How to install it, when it is not there.
    missing: Callable[[], str | None] = lambda: None
    version: Callable[[], str] = lambda: ""
    #: The name under which works have its loops.
    loops: str = ""
    #: The works that it does; empty for all that it has a loop for.
    works: frozenset[str] = frozenset()
    #: No peer, but shows what is possible.
    is_limit: bool = False
    #: What a client of another language is started with, and the methods that it knows.
    command: Callable[[str], list[str]] | None = None
    methods: frozenset[str] = frozenset()
    #: Before its works, on the running server; and what goes on while one is measured.
    prepare: Callable[[Any, float], None] = lambda _, __: None
    beside: Callable[[Any], AbstractContextManager[More]] = lambda _: nullcontext({})
    goals: list[Goal] = field(default_factory=list)

    def does(self, work: Work) -> bool:
        if self.works:
            return work.name in self.works
        if self.methods:
            return work.method in self.methods
        return (self.loops or self.name) in work.loops

    @property
    def is_whole(self) -> bool:
        """Whether it is a system of its own: no limit, and not a part of ours or a variant."""
        return not (self.is_limit or self.name.startswith(f"{OURS}-"))

    def client_command(self, address: str, *, durable: bool) -> list[str]:
        if self.command is not None:
            return self.command(address)
        words = (self.client, self.loops or self.name, address, str(int(durable)))
        return [sys.executable, "-m", "tests.benchmarks.client", *words]
