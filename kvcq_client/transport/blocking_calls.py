"""Blocking methods made from the coroutines of a class, with the same signatures and docstrings."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import Concatenate

C = TypeVar("C", covariant=True)  # a method of a base class works for the whole
P = ParamSpec("P")
R = TypeVar("R")


class Runner(Protocol):
    """Runs a coroutine to its end, and returns its result."""

    def __call__(self, call: Coroutine[Any, Any, R]) -> R: ...


class Blocking(Generic[C]):
    """An object with blocking methods: `run` runs the coroutines of `calls`."""

    def __init__(self, calls: C, run: Runner) -> None:
        self._calls = calls
        self._run = run


def blocking(
    call: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking[C], P], R]:
    """Make the coroutine a blocking method."""

    @wraps(call)
    def wait(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(call(self._calls, *args, **kwargs))

    return wait


def blocking_iterator(
    call: Callable[Concatenate[C, P], AsyncIterator[R]],
    at_once: int = 1000,
) -> Callable[Concatenate[Blocking[C], P], Iterator[R]]:
    """Like `blocking`, for an async iterator; fetches `at_once` items at a time."""

    @wraps(call)
    def iterate(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = call(self._calls, *args, **kwargs)

        async def some() -> list[R]:
            found: list[R] = []
            async for item in items:
                found.append(item)
                if len(found) == at_once:
                    break
            return found

        while part := self._run(some()):
            yield from part

    return iterate
