"""Calls on delayed messages."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kvcq_client.arguments import checked, name_as_given, number, text
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.errors import InvalidArgumentError
from kvcq_client.format import (
    Checker,
    outgoing_of,
    outgoing_or_message,
    with_message_fields,
    write_to,
)
from kvcq_client.pb.v1 import timers_pb2 as pb
from kvcq_client.timers import Delayed, RecallOutcome, Scheduled, wire_time
from kvcq_client.transport import in_parts, paged
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from kvcq_client.format import Outgoing
    from kvcq_client.timers import DeliverAt
    from kvcq_client.values import Message, MessageFields

#: Handles of one request.
_HANDLES_A_CALL = 1024
_PAGE = 1000
_OUTCOMES = {
    pb.RECALL_OUTCOME_RECALLED: RecallOutcome.RECALLED,
    pb.RECALL_OUTCOME_NOT_WAITING: RecallOutcome.NOT_WAITING,
}
_check = partial(Checker().check, strict=True)


@checked(but=("put_delayed",))
class TimerCalls(CallGroup):
    """Puts messages that are delivered later, and recalls and lists them."""

    @with_message_fields
    async def put_delayed(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        deliver_at: DeliverAt,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Scheduled:
        """Store a message that is delivered later: `put_delayed("orders", b"…",
        deliver_at=timedelta(minutes=5))`.

        `deliver_at`: a datetime with a time zone, or a timedelta from now, at most 40 days; a past
        time means now. No reader sees the message before that; then it is put into its topic and
        light queues as by `put`, exactly once. If the topic is deleted before, so is the message.
        Fields: see Message, which may also be given instead of all fields.

        The message is sent once, as by `put`: after an UnavailableError or DeadlineError it may be
        stored, and putting it again may deliver it twice. Raises as `put`, and InvalidArgumentError
        for a time too far ahead.
        """
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        request = pb.PutDelayedRequest()
        _add(request, _check(outgoing_or_message(topic, body, fields))[0], deliver_at, "deliver_at")
        (scheduled,) = await self._put_delayed(request, timeout_s)
        return scheduled

    async def put_delayed_many(
        self,
        messages: Sequence[Message],
        deliver_at: datetime | timedelta | Sequence[DeliverAt],
        *,
        timeout_s: float | None = None,
    ) -> list[Scheduled]:
        """Like `put_delayed`, for up to 1,024 messages, atomically; `deliver_at` is a time for all,
        or has one for each.

        Raises as `put_delayed`.
        """
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        if isinstance(deliver_at, datetime | timedelta):
            deliver_at = [deliver_at] * len(messages)
        if len(messages) != len(deliver_at):
            raise ValueError(f"deliver_at: {len(deliver_at)} times for {len(messages)} messages")
        request = pb.PutDelayedRequest()
        for at, (message, when) in enumerate(zip(messages, deliver_at, strict=True)):
            outgoing, _ = _check(outgoing_of(message, f"messages[{at}]"))
            _add(request, outgoing, when, f"deliver_at[{at}]")
        return await self._put_delayed(request, timeout_s)

    async def _put_delayed(
        self, request: pb.PutDelayedRequest, timeout_s: float | None
    ) -> list[Scheduled]:
        try:
            answer = await self._call(self._timers.PutDelayed, request, timeout_s, may_repeat=False)
        except InvalidArgumentError as error:
            name_as_given(error, ("deliver_at",))
            raise
        return [
            Scheduled(handle, due_ms)
            for handle, due_ms in zip(answer.handles, answer.deliver_at_ms, strict=True)
        ]

    async def recall(
        self, topic: str, handles: str | Sequence[str], *, timeout_s: float | None = None
    ) -> list[RecallOutcome]:
        """Cancel the delivery of delayed messages of the topic. Returns an outcome for each handle,
        in order.

        A message is either recalled or delivered, never both. `timeout_s` is for each 1,024
        handles. Raises InvalidArgumentError for a handle of another topic.
        """
        wanted = [handles] if isinstance(handles, str) else handles
        outcomes: list[RecallOutcome] = []
        for part in in_parts([text("handles", one) for one in wanted], _HANDLES_A_CALL):
            request = pb.RecallRequest(topic=topic, handles=part)
            answer = await self._call(self._timers.Recall, request, timeout_s)
            outcomes += [_OUTCOMES[each] for each in answer.outcomes]
        return outcomes

    async def delayed(
        self,
        topic: str = "",
        *,
        max_messages: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Delayed]:
        """Waiting delayed messages, without their bodies, earliest due first.

        `topic`: empty for all topics. Raises PermissionDeniedError.
        """
        most = _PAGE if max_messages is None else min(max_messages, _PAGE)
        request = pb.ListDelayedRequest(topic=topic, page_size=max(1, most))
        found: list[Delayed] = []
        async for page in paged(self._call, self._timers.ListDelayed, request, timeout_s):
            found += [from_wire(Delayed, one) for one in page.messages]
            if max_messages is not None and len(found) >= max_messages:
                break
        return found[:max_messages]

    async def delayed_pending(self, *, timeout_s: float | None = None) -> int:
        """Number of waiting delayed messages in all topics."""
        request = pb.ListDelayedRequest(page_size=1)
        answer = await self._call(self._timers.ListDelayed, request, timeout_s)
        pending: int = answer.pending
        return pending


def _add(request: pb.PutDelayedRequest, outgoing: Outgoing, when: DeliverAt, field: str) -> None:
    one = request.messages.add()
    write_to(one.message, outgoing)
    name, value = wire_time(field, when)
    setattr(one, name, value)
