"""Reads and decodes requests, depending on their size."""

from __future__ import annotations

import asyncio
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from server.edge.call_gate import STREAMS
from server.edge.request_fields import check_counts, plan_of
from server.edge.request_limits import shown_name
from server.edge.request_memory import LARGE_BYTES
from server.errors import UndecodableRequestError
from server.receiving import EOF, call_below, receive, send_and_receive
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from server.access import Usage
    from server.edge.call_info import Context
    from server.edge.request_limits import RequestLimit
    from server.edge.request_memory import RequestMemory


#: A larger request is decoded in a thread, after its fields were counted. A smaller one takes 11 ms
#: and 20 MB at worst, and usually half a millisecond. A full batch of our own client has 256 KiB.
DECODED_IN_LOOP_BYTES = 320 << 10
#: Requests that name or list things are counted if they are larger than this.
COUNTED_BYTES = 64 << 10


class Decoder:
    """Reads and decodes the requests of one method."""

    def __init__(
        self,
        method: MethodDescriptor,
        limit: RequestLimit,
        thread: ThreadPoolExecutor,
        memory: RequestMemory,
        largest: int,
    ) -> None:
        self.method = shown_name(method)
        self.kind = limit.kind
        self.may_be_large = limit.waits_to_be_read
        self._limit = limit.request_bytes
        self._thread = thread
        self._memory = memory
        self._name = method.input_type.full_name
        self._class: type[Message] = GetMessageClass(method.input_type)
        self._plan = plan_of(method.input_type)
        # Requests with messages come large every time: these are counted when they are decoded
        # in the thread.
        self._counted = DECODED_IN_LOOP_BYTES if self._limit == largest else COUNTED_BYTES

    async def read(
        self,
        context: Context,
        read: Callable[[], Awaitable[Any]] | None = None,
        *,
        is_first: bool = False,
    ) -> tuple[Message | None, int]:
        """The next request, None at the end, and its size in bytes. `read`: an alternative reader;
        `is_first`: of a stream.

        Above LARGE_BYTES, `memory.end_decoding` must follow once it is no longer used. Raises
        InvalidArgumentError; MemoryFullError or RequestLateError if its reading was ended.
        """
        memory = self._memory
        memory.reading(context, self.kind, is_first=is_first)
        try:
            data = await (receive(context) if read is None else read())
        except asyncio.CancelledError:
            if self.kind not in STREAMS:
                memory.was_used()  # by the bytes that had arrived
            error = memory.readings.why_ended(context)
            if error is None:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            raise error from None
        finally:
            memory.readings.end(context, self.kind)
        if data is EOF or data is None:
            return None, 0
        size = len(data)
        if size > LARGE_BYTES:
            memory.was_used()
        if size > self._limit:
            raise InvalidArgumentError("request", f"{size} bytes, more than {self._limit}")
        if size > LARGE_BYTES:
            await memory.begin_decoding(size)
            try:
                return await asyncio.wrap_future(self._thread.submit(self._decode, data)), size
            except BaseException:
                memory.end_decoding(size)
                raise
        if size > DECODED_IN_LOOP_BYTES:
            return await asyncio.wrap_future(self._thread.submit(self._decode, data)), size
        return self._decode(data), size

    async def in_thread(self, work: Callable[..., None], *args: object) -> None:
        """Run it in the thread that decodes large requests."""
        await asyncio.wrap_future(self._thread.submit(work, *args))

    def decode(self, data: bytes) -> Message:
        """Decode a request that is small enough for the event loop."""
        if len(data) > self._limit:
            raise InvalidArgumentError("request", f"{len(data)} bytes, more than {self._limit}")
        return self._decode(data)

    def _decode(self, data: bytes) -> Message:
        if self._plan and len(data) > self._counted:
            check_counts(data, self._plan)
        try:
            return self._class.FromString(data)
        except DecodeError as error:
            raise UndecodableRequestError(self._name, str(error)) from None


class Requests:
    """The requests of a stream. Each is in use until the next is requested."""

    def __init__(self, decoder: Decoder, context: Context, memory: RequestMemory) -> None:
        self._decoder = decoder
        self._context = context
        self._memory = memory
        self._size = 0
        self._is_first = True
        self._answer: Callable[[], Awaitable[bytes | None]] | None = None
        #: For the user of the stream; None if it is not measured.
        self.usage: Usage | None = None

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - of the method's type
        if self._size > LARGE_BYTES:
            self.end()
        usage = self.usage
        if usage is not None:
            await usage.pause()
        answer, self._answer = self._answer, None
        is_first, self._is_first = self._is_first, False
        read = self._decoder.read
        request, self._size = await read(self._context, answer, is_first=is_first)
        if usage is not None:
            usage.count(self._size)
        if request is None:
            raise StopAsyncIteration
        return request

    @cached_property
    def call_below(self) -> object | None:
        """The object that `answer` needs; None if it is not available."""
        return call_below(self._context)

    def answer(self, data: bytes) -> None:
        """Send a response together with reading the next request, which must follow at once."""
        self._answer = partial(send_and_receive, self.call_below, data)

    @property
    def is_large(self) -> bool:
        """Whether the current request is large."""
        return self._size > DECODED_IN_LOOP_BYTES

    def end(self) -> None:
        """Release the last request. Repeatable."""
        if self._size > LARGE_BYTES:
            self._memory.end_decoding(self._size)
        self._size = 0
