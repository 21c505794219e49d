"""Lists that are too long for one message: requests in parts, responses in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from kvcq_client.transport.connection import Caller

V = TypeVar("V")


def in_parts(items: Sequence[V], most: int) -> Iterator[Sequence[V]]:
    """Yield the items, at most `most` at a time."""
    for begin in range(0, len(items), most):
        yield items[begin : begin + most]


async def paged(
    call: Caller,
    method: Callable[..., Awaitable[Any]],
    request: Any,  # noqa: ANN401 - of the method's type, one with a page_token
    timeout_s: float | None,
) -> AsyncIterator[Any]:
    """The responses to the request, page by page; `timeout_s` is for each. Raises as `call`."""
    while True:
        page = await call(method, request, timeout_s)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
