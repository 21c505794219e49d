"""Clients in forked processes: every call raises ForkedError.

gRPC does not work in a child process once its parent has used it: calls hang, or the process
aborts. So every client in the child, old or new, fails at once. The parent's clients are not
affected.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from kvcq_client.errors import ClosedError


class ForkedError(ClosedError):
    """This process was forked after a client was made, so no client works in it."""

    def __init__(self) -> None:
        super().__init__(
            "gRPC does not work in a process that was forked after a client was made: make "
            "clients only in the children, or start processes with the spawn method, "
            'for example with multiprocessing.set_start_method("spawn")'
        )


class Forkable(Protocol):
    """An object that does not work in a forked child."""

    def after_fork(self, error: ForkedError) -> None:
        """Called in the child, which has one thread: fail pending calls, and reject new ones."""


class _Process:
    """Whether this process, or a parent, has made a client."""

    uses_grpc = False
    forked: ForkedError | None = None


_made: weakref.WeakSet[Forkable] = weakref.WeakSet()


def begin_grpc() -> None:
    """Must be called before a channel is made. Raises ForkedError where gRPC does not work."""
    if _Process.forked is not None:
        raise _Process.forked
    _Process.uses_grpc = True


def close_in_children(made: Forkable) -> None:
    """Call `made.after_fork` in every forked child, while `made` is alive."""
    _made.add(made)


def _in_child() -> None:
    if _Process.uses_grpc and _Process.forked is None:
        _Process.forked = ForkedError()
        for made in list(_made):
            made.after_fork(_Process.forked)
        _made.clear()


if hasattr(os, "register_at_fork"):  # not on all systems
    os.register_at_fork(after_in_child=_in_child)
