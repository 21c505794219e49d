"""What a fork takes from a client: its thread and its connection stay with the parent.

gRPC cannot be used in a child once its parent has used it: calls hang, or the process aborts
(measured with grpcio 1.85). So in the child every client, old or new, refuses at once. The
parent's clients are not touched.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from kvcq_client.errors import ClosedError


class ForkedError(ClosedError):
    """This process was forked from one that had made a client: no client works in it."""

    def __init__(self) -> None:
        super().__init__(
            "gRPC does not work in a process that was forked after a client was made: make "
            "clients in the children alone, or start processes with the spawn method, "
            'as by multiprocessing.set_start_method("spawn")'
        )


class Forkable(Protocol):
    """Something that does not work in a child process."""

    def after_fork(self, error: ForkedError) -> None:
        """Called in the child, which has one thread: fail what waits, and refuse what comes."""


class _Process:
    """What this process knows of clients."""

    uses_grpc = False
    forked: ForkedError | None = None


_made: weakref.WeakSet[Forkable] = weakref.WeakSet()


def begin_grpc() -> None:
    """Before the first channel. Raises ForkedError where gRPC does not work."""
    if _Process.forked is not None:
        raise _Process.forked
    _Process.uses_grpc = True


def close_in_children(made: Forkable) -> None:
    """`made.after_fork` is called in every child of this process, while `made` lives."""
    _made.add(made)


def _in_child() -> None:
    if _Process.uses_grpc and _Process.forked is None:
        _Process.forked = ForkedError()
        for made in list(_made):
            made.after_fork(_Process.forked)
        _made.clear()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_in_child)
