"""Work in a process of its own, which shares neither interpreter nor memory with what it is held
against."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from server.process import calm_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from multiprocessing.connection import Connection

    #: Yields what a turn came to, and is sent the size of the next one. What it yields first counts
    #: for nothing: it is ready.
    Turns = Generator[float, float, None]


class OwnProcess:
    """Does a turn of its work on order. Between turns it stands still: what its threads have left
    to do takes no processor from others."""

    def __init__(self, pid: int, pipe: Connection) -> None:
        self._pid = pid
        self._pipe = pipe

    def begin(self, size: float) -> None:
        self.go_on()
        self._pipe.send(size)

    def answer(self) -> float:
        """What the turn came to that was begun, once it is done. Raises EOFError when it failed."""
        found: float = self._pipe.recv()
        os.kill(self._pid, signal.SIGSTOP)
        return found

    def turn(self, size: float) -> float:
        """One begun and done."""
        self.begin(size)
        return self.answer()

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@contextmanager
def own_process(turns: Callable[..., Turns], *arguments: object) -> Iterator[OwnProcess]:
    """A process that is ready for turns of `turns(*arguments)`, a function of a module.

    Its generator is closed at the end.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=_work, args=(its, turns, arguments))
    process.start()
    assert process.pid is not None
    found = OwnProcess(process.pid, ours)
    its.close()  # so that its end is the end of the pipe
    try:
        found.answer()
        yield found
    finally:
        found.go_on()
        ours.close()
        process.join()


def _work(pipe: Connection, turns: Callable[..., Turns], arguments: tuple[object, ...]) -> None:
    calm_collector()  # as the server's own process does
    with closing(turns(*arguments)) as work:
        pipe.send(next(work))
        while True:
            try:
                size = pipe.recv()
            except EOFError:
                return
            pipe.send(work.send(size))
