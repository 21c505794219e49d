"""A work: what is measured, how much of it, and a loop for each system that can do it.

A file of `works/` makes works; all of them are found there. A system may also have a client in
another language: it is sent the work's method and arguments, see `client`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_bench.report import Goal
    from tests.benchmarks.timing import Timed

#: No amount is below these, however small the scale: what is in flight at once must fit.
_LEAST = {"count": 1024, "queues": 1000, "limit_s": 0.2}
AFTER_FSYNC = ", after fsync"


@dataclass
class Work:
    """One row of the tables."""

    name: str
    unit: str
    #: What a client of another language knows it by.
    method: str
    #: `count`, `queues` and `limit_s` are scaled; other arguments are not.
    arguments: dict[str, Any]
    goals: list[Goal] = field(default_factory=list)
    #: Also measured where messages are acknowledged only after fsync.
    after_fsync: bool = False
    #: A tenth is done before, so that what is compiled while it runs is compiled.
    warm_up: bool = True
    #: The work that fills the queue which this one reads.
    reads: Work | None = None
    loops: dict[str, Callable[..., Timed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ALL.append(self)

    def of(self, *systems: str) -> Callable[[Callable[..., Timed]], Callable[..., Timed]]:
        """Decorates the loop of these systems. It gets their client and the arguments."""

        def register(loop: Callable[..., Timed]) -> Callable[..., Timed]:
            self.loops |= dict.fromkeys(systems, loop)
            return loop

        return register

    def scaled(self, scale: float, share: float = 1.0) -> dict[str, Any]:
        """The arguments for that share of it."""
        found = dict(self.arguments)
        for name, least in _LEAST.items():
            if isinstance(value := found.get(name), int):
                found[name] = max(least, round(value * scale * share))
            elif value is not None:
                found[name] = max(least, value * min(1.0, scale) * share)
        return found


_ALL: list[Work] = []


@cache
def all_works() -> list[Work]:
    """Those of all files of `works/`, in the order of their names."""
    from tests.benchmarks import works

    for module in sorted(one.name for one in pkgutil.iter_modules(works.__path__)):
        importlib.import_module(f"{works.__name__}.{module}")
    return _ALL
