"""A served method: checks its rights, encodes its response, audits its changes."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from server.access import Need, asker, audit_act, current_caller
from server.edge.call_info import request_id_of
from server.errors import AccessError
from server.wire import INTERNAL_ROW, row_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from google.protobuf.message import Message

    from server.edge.call_info import Context
    from server.edge.decoder import Decoder
    from server.edge.request_memory import RequestMemory


@cache  # a process may start many servers
def _takes_size(handler: Callable[..., object]) -> bool:
    return "large" in inspect.signature(handler).parameters


class Method:
    """A unary method."""

    def __init__(
        self,
        decoder: Decoder,
        handler: Callable[..., Awaitable[Message | bytes]],
        handler_now: Callable[[Any, Any, Context], Message | bytes | None] | None,
        servicer: Callable[[], object],
        memory: RequestMemory | None,
        need: Need,
    ) -> None:
        self.name = decoder.method
        self.kind = decoder.kind
        self._handler_now = handler_now
        self._decoder = decoder
        #: A request that is short enough to be decoded in the loop. Raises InvalidArgumentError.
        self.decode = decoder.decode
        self._handler = handler
        self._takes_size = _takes_size(handler)
        self._servicer = servicer
        self._memory = memory  # for large responses; None if it has none
        #: Around each `answer`, where calls are traced; those that come by themselves have a span.
        self.span: Callable[[str], AbstractContextManager[object]] | None = None
        self._check = need.check
        self._is_laborious = need.is_laborious
        self._target = need.target  # None: no administrative act

    async def handle(self, request: Message, context: Context, *, large: bool) -> bytes:
        """The encoded response. Raises the error that rejects the call."""
        caller = current_caller()
        if self._is_laborious is None or not self._is_laborious(caller, request):
            self._check(caller, request)
        else:
            await self._decoder.in_thread(self._check, caller, request)
        if self._target is None:
            return await self._handle(request, context, large=large)
        target = self._target(request)
        try:
            data = await self._handle(request, context, large=large)
        except BaseException as error:
            if not isinstance(error, AccessError):  # this error is a rejection, and audited as such
                row = row_of(error) or INTERNAL_ROW
                reason = row.reason if isinstance(error, Exception) else "CANCELLED"
                audit_act(self.name, target, request_id_of(context), (reason, str(error)))
            raise
        audit_act(self.name, target, request_id_of(context))
        return data

    async def _handle(self, request: Message, context: Context, *, large: bool) -> bytes:
        if self._memory is not None:
            await self._memory.room_to_send(asker())
        size = {"large": large} if self._takes_size else {}
        return encoded(await self._handler(self._servicer(), request, context, **size))

    async def answer(self, request: Message, context: Context) -> bytes:
        """The encoded response to a small request, in a span of its own."""
        with nullcontext() if self.span is None else self.span(self.name):
            return await self.handle(request, context, large=False)

    def answer_now(self, request: Message, context: Context) -> bytes | None:
        """Like `answer`, without a turn of the loop; None if it would take one, and nothing is done
        then."""
        if self._handler_now is None or not self._is_plain():
            return None
        self._check(current_caller(), request)
        response = self._handler_now(self._servicer(), request, context)
        return None if response is None else encoded(response)

    def _is_plain(self) -> bool:
        """Whether it needs no wrapping and no waiting."""
        if self._target is not None or self.span is not None:
            return False
        return self._memory is None or not self._memory.is_crowded(asker())


def encoded(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
