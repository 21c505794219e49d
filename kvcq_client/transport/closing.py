"""`with` and `async with` for objects with a `close` method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType


class _Closes(Protocol):
    def close(self) -> object: ...


class _AsyncCloses(Protocol):
    async def close(self) -> object: ...


class Closing:
    """Is closed at the end of `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closes,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing:
    """Is closed at the end of `async with`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: _AsyncCloses,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
