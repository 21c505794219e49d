"""What each system brings: a server that is started here, and a client in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tests.peers.values import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Set
    from pathlib import Path

    from tests.peers.values import Durability, Timed
    from tests.peers.works import Work


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


class Client(Protocol):
    """One client process. Bodies have 1 KiB. Each method may raise NotOfferedError."""

    def put_one(self, limit_s: float) -> Timed:
        """One message at a time, from blocking code."""
        ...

    def put_one_asyncio(self, limit_s: float) -> Timed:
        """The same in an event loop."""
        ...

    def put_by_callers(self, limit_s: float) -> Timed:
        """64 callers, one message a call."""
        ...

    def put_each(self, queue: str, count: int) -> Timed:
        """The client is handed one message at a time, and batches them its own way."""
        ...

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        """Batches of 128. What was put in time counts, and is what is read back."""
        ...

    def read_back(self, queue: str, count: int) -> Timed:
        """All of a queue through the client's consumer."""
        ...

    def pull(self, queue: str, each: int, count: int) -> Timed:
        """`each` messages a call, one call at a time, from the queue's begin."""
        ...

    def new_queues(self, count: int, limit_s: float) -> Timed:
        """The first message to each of so many new queues, in batches of 128."""
        ...

    def many_new_queues(self, count: int, limit_s: float) -> Timed:
        """The same to so many that are new again; with how fast the last tenth was."""
        ...

    def light_queues(self, queues: int, each: int, count: int, limit_s: float) -> Timed:
        """`count` messages that each stand in `each` of `queues` light queues; units are timed."""
        ...

    def close(self) -> None: ...


class System:
    """A name, and how to get its server and its client."""

    def __init__(
        self,
        name: str,
        title: str,
        missing: Callable[[], str | None],
        server: Callable[[Path, Durability], Server],
        client_command: Callable[[str, Durability], list[str]],
        version: Callable[[], str],
        limits: Set[str] = frozenset(),
    ) -> None:
        self.name = name
        self.title = title
        #: How to install it, when it is not there.
        self.missing = missing
        self.server = server
        #: By address and durability.
        self.client_command = client_command
        self.version = version
        #: Of what is no peer but shows what is possible: the methods whose works it bounds, which
        #: are all that its client has. Its server is not started again.
        self.limits = limits

    def does(self, work: Work) -> bool:
        """What is asked of it; a peer may answer that it cannot."""
        return work.method in self.limits if self.limits else work.of_peers or self.name == OURS
