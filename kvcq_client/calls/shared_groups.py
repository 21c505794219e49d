"""Calls on groups whose members share messages."""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client.arguments import INT32_MAX, checked, of_kind, text, whole, wrong_kind
from kvcq_client.calls.call_group import CallGroup, set_where
from kvcq_client.errors import KvcqError, ServerError
from kvcq_client.format import split_records
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from kvcq_client.shared_groups import (
    GroupMember,
    GroupReset,
    GroupState,
    LiteSettings,
    Outcome,
    Received,
    ReceivedBatch,
    SharedGroup,
    SharedQueue,
)
from kvcq_client.transport import in_background, in_parts, paged
from kvcq_client.values import Queue, Start
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

#: Handles of one request; the server takes no more.
HANDLES_A_CALL = 1024
#: Handles that one receive acknowledges at most.
HANDLES_OF_A_RECEIVE = 256


def received_in(answer: shared_pb.ReceiveResponse, queues: Sequence[Queue]) -> list[Received]:
    """What was received, each from its queue. Raises ServerError, CorruptRecordError."""
    messages = split_records(answer.records, answer.queue_offsets, queues=queues)
    columns = (messages, answer.handles, answer.deliveries, answer.until_ms)
    if len({*map(len, columns)}) > 1:
        raise ServerError("the columns of the received messages have different lengths")
    return list(map(Received, *columns))


class _Outcomes(NamedTuple):
    outcomes: list[Outcome]


@checked()
class SharedGroupCalls(CallGroup):
    """Receives, acknowledges and gives back messages of shared groups, and manages the groups."""

    # --- messages --------------------------------------------------------------------------

    async def receive(
        self,
        topic: str,
        *,
        group: str,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        wait_s: float = 0.0,
        invisible_s: float | None = None,
        tag_filter: str = "",
        sql_filter: str = "",
        skip_damaged: bool = False,
        acknowledge: Sequence[Received | str] = (),
        timeout_s: float | None = None,
    ) -> ReceivedBatch:
        """Receive messages of a topic or light queue for a shared group; [] if there are none.

        No other member gets them for `invisible_s`, by default the group's setting; messages that
        are neither acknowledged nor given back by then are delivered again. `wait_s`: how long to
        wait for the first message. At least one message is returned whatever its size. Messages
        that a filter (see `pull`) excludes count as done for the whole group. `client.receiver`
        receives ahead, and renews.

        `acknowledge`: messages to acknowledge before receiving, in the same call. `outcomes` of the
        result has an outcome for each, as `acknowledge` returns them. Such a call does not wait for
        a message: repeat it without them. If it raises, they may not be acknowledged. An error of
        receiving is raised by the next call without them. If there are more than 256, earlier ones
        are acknowledged by separate calls.

        The first receive creates the group, if the server allows it. If the response is lost, its
        messages are delivered again after `invisible_s`. Raises NotFoundError, NotPossibleError if
        the group is a reader group, DataLossError if the next message is damaged; with
        `skip_damaged` an unreadable message is done for the whole group instead.
        """
        limit_s = self._connection.timeout_s if timeout_s is None else timeout_s
        before, acknowledge = (
            acknowledge[:-HANDLES_OF_A_RECEIVE],
            acknowledge[-HANDLES_OF_A_RECEIVE:],
        )
        outcomes = await self.acknowledge(group, before, timeout_s=timeout_s) if before else []
        answer = await self._call(
            self._shared.Receive,
            shared_pb.ReceiveRequest(
                group=group,
                topic=topic,
                max_messages=max_messages,
                max_bytes=max_bytes,
                invisible_ms=None if invisible_s is None else round(invisible_s * 1000),
                tag_filter=tag_filter,
                sql_filter=sql_filter,
                skip_damaged=skip_damaged,
                wait_ms=0 if acknowledge else round(wait_s * 1000),
                form=pb.RECORD_FORM_WHOLE,
                attempt_id=secrets.token_hex(8),
                acknowledge=[_handle_of("acknowledge", one) for one in acknowledge],
            ),
            limit_s + wait_s,
            late=partial(self._give_back_late, group),
        )
        queues = {queue_id: Queue(topic, queue_id) for queue_id in set(answer.queue_ids)}
        received = received_in(answer, [queues[queue_id] for queue_id in answer.queue_ids])
        if acknowledge and not answer.outcomes:  # an older server does not know the field
            outcomes += await self.acknowledge(group, acknowledge, timeout_s=timeout_s)
        else:
            outcomes += from_wire(_Outcomes, answer).outcomes
        return ReceivedBatch(received, outcomes)

    def _give_back_late(self, group: str, response: bytes) -> None:
        """Give back messages whose caller has gone, so that they are delivered again at once."""

        async def give_back() -> None:
            with suppress(KvcqError):  # it is redelivered when its lease ends
                await self.give_back(group, handles, 0.0, not_begun=True)

        if handles := list(shared_pb.ReceiveResponse.FromString(response).handles):
            in_background(give_back(), "kvcq-giving-back")

    async def acknowledge(
        self,
        group: str,
        deliveries: Sequence[Received | str],
        *,
        timeout_s: float | None = None,
    ) -> list[Outcome]:
        """Acknowledge messages, given as they were received or by their handles.

        They are done, durably, and are not delivered again. Returns an outcome for each, in their
        order; 1,024 at a time are acknowledged together. Raises InvalidArgumentError, naming a
        handle that this group was not given; NotFoundError.
        """

        def request(handles: Sequence[str]) -> shared_pb.AcknowledgeRequest:
            return shared_pb.AcknowledgeRequest(group=group, handles=handles)

        return await self._for_each(self._shared.Acknowledge, request, deliveries, timeout_s)

    async def change_invisible(
        self,
        group: str,
        deliveries: Sequence[Received | str],
        invisible_s: float,
        *,
        timeout_s: float | None = None,
    ) -> list[Outcome]:
        """Keep messages for `invisible_s` from now on. Their handles stay valid.

        Returns and raises as `acknowledge` does.
        """

        def request(handles: Sequence[str]) -> shared_pb.ChangeInvisibleTimeRequest:
            return shared_pb.ChangeInvisibleTimeRequest(
                group=group, handles=handles, invisible_ms=round(invisible_s * 1000)
            )

        return await self._for_each(
            self._shared.ChangeInvisibleTime, request, deliveries, timeout_s
        )

    async def give_back(
        self,
        group: str,
        deliveries: Sequence[Received | str],
        delay_s: float | None = None,
        *,
        not_begun: bool = False,
        timeout_s: float | None = None,
    ) -> list[Outcome]:
        """Give messages back: they are delivered again, to any member, after `delay_s`.

        With None, after the group's backoff. A message that has used up the group's deliveries
        becomes a dead letter instead. `not_begun`: no work on them has begun, so this delivery does
        not count. Returns and raises as `acknowledge` does.
        """

        def request(handles: Sequence[str]) -> shared_pb.GiveBackRequest:
            return shared_pb.GiveBackRequest(
                group=group,
                handles=handles,
                delay_ms=None if delay_s is None else round(delay_s * 1000),
                not_begun=not_begun,
            )

        return await self._for_each(self._shared.GiveBack, request, deliveries, timeout_s)

    async def _for_each(
        self,
        method: Callable[..., Awaitable[Any]],
        request: Callable[[Sequence[str]], Any],
        deliveries: Sequence[Received | str],
        timeout_s: float | None,
    ) -> list[Outcome]:
        handles = [_handle_of("deliveries", one) for one in deliveries]
        outcomes: list[Outcome] = []
        for part in in_parts(handles, HANDLES_A_CALL):
            answer = await self._call(method, request(part), timeout_s)
            outcomes += from_wire(_Outcomes, answer).outcomes
        return outcomes

    # --- groups ----------------------------------------------------------------------------

    async def create_group(
        self,
        group: str,
        *,
        max_deliveries: int | None = None,
        invisible_ms: int | None = None,
        most_in_flight: int | None = None,
        in_order: bool | None = None,
        from_latest: bool | None = None,
        paused: bool | None = None,
        dead_letters_keep_ms: int | None = None,
        backoff_ms: Sequence[int] | None = None,
        lite: LiteSettings | None = None,
        timeout_s: float | None = None,
    ) -> SharedGroup:
        """Create a shared group durably. Settings: see SharedGroup; None for the default.

        Repeatable; raises AlreadyExistsError if the group exists with other settings or is a reader
        group.
        """
        settings = _settings_out(
            max_deliveries=max_deliveries,
            invisible_ms=invisible_ms,
            most_in_flight=most_in_flight,
            in_order=in_order,
            from_latest=from_latest,
            paused=paused,
            dead_letters_keep_ms=dead_letters_keep_ms,
            backoff_ms=backoff_ms,
            lite=lite,
        )
        request = shared_pb.CreateGroupRequest(group=group, settings=settings)
        answer = await self._call(self._shared.CreateGroup, request, timeout_s)
        return _settings_of(answer.settings)

    async def update_group(
        self,
        group: str,
        *,
        max_deliveries: int | None = None,
        invisible_ms: int | None = None,
        most_in_flight: int | None = None,
        paused: bool | None = None,
        dead_letters_keep_ms: int | None = None,
        backoff_ms: Sequence[int] | None = None,
        lite: LiteSettings | None = None,
        timeout_s: float | None = None,
    ) -> SharedGroup:
        """Change settings of a shared group durably; None leaves one unchanged.

        Messages in flight keep their leases. Raises NotFoundError, and NotPossibleError if the
        group is a reader group.
        """
        settings = _settings_out(
            max_deliveries=max_deliveries,
            invisible_ms=invisible_ms,
            most_in_flight=most_in_flight,
            paused=paused,
            dead_letters_keep_ms=dead_letters_keep_ms,
            backoff_ms=backoff_ms,
            lite=lite,
        )
        request = shared_pb.UpdateGroupRequest(group=group, settings=settings)
        answer = await self._call(self._shared.UpdateGroup, request, timeout_s)
        return _settings_of(answer.settings)

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> GroupState:
        """A group of either kind. Raises NotFoundError."""
        request = shared_pb.DescribeGroupRequest(group=group)
        found = [
            page async for page in paged(self._call, self._shared.DescribeGroup, request, timeout_s)
        ]
        last = found[-1]
        return GroupState(
            _settings_of(last.settings) if last.shared else None,
            [from_wire(SharedQueue, one) for page in found for one in page.queues],
            last.dead_letters,
            _members_of([from_wire(GroupMember, one) for page in found for one in page.members]),
        )

    async def reset_group(
        self,
        group: str,
        topic: str,
        to: Start | str | int,
        *,
        queue_ids: Sequence[int] = (),
        time_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> GroupReset:
        """Move a shared group in a topic: to an end, an offset, or a time.

        With empty `queue_ids`, in all queues. `time_ms` takes precedence over `to`. Messages in
        flight there are ended, and their handles become invalid. Raises NotFoundError, and
        NotPossibleError if the group is a reader group.
        """
        queue_ids = [whole("queue_ids", queue_id, INT32_MAX) for queue_id in queue_ids]
        request = shared_pb.ResetGroupRequest(group=group, topic=topic, queue_ids=queue_ids)
        set_where(request, to, time_ms)
        # If it were repeated after a lost response, it would also end messages received since.
        answer = await self._call(self._shared.ResetGroup, request, timeout_s, may_repeat=False)
        queues = [from_wire(SharedQueue, one) for one in answer.queues]
        return GroupReset(queues, answer.ended_in_flight)


def _handle_of(field: str, one: Received | str) -> str:
    if isinstance(one, Received):
        return one.handle
    if not isinstance(one, str):
        raise wrong_kind(field, "what was received, or its handle", one)
    return text(field, one)


def _settings_out(
    *,
    backoff_ms: Sequence[int] | None,
    lite: LiteSettings | None,
    **settings: Any,  # noqa: ANN401 - checked by annotation
) -> shared_pb.SharedGroupSettings:
    made = shared_pb.SharedGroupSettings(**settings)
    if backoff_ms is not None:
        made.backoff.delays_ms.extend(whole("backoff_ms", one) for one in backoff_ms)
        made.backoff.SetInParent()  # an empty list means no backoff
    if lite is not None:
        of_kind("lite", lite, LiteSettings)
        made.lite.CopyFrom(shared_pb.LiteSettings(**lite._asdict()))
    return made


def _settings_of(settings: shared_pb.SharedGroupSettings) -> SharedGroup:
    return SharedGroup(
        settings.max_deliveries if settings.HasField("max_deliveries") else None,
        settings.invisible_ms,
        settings.most_in_flight,
        settings.in_order,
        settings.from_latest,
        settings.paused,
        settings.dead_letters_keep_ms,
        tuple(settings.backoff.delays_ms),
        from_wire(LiteSettings, settings.lite) if settings.HasField("lite") else None,
    )


def _members_of(found: Sequence[GroupMember]) -> list[GroupMember]:
    """Each member once, although every response has its messages in the queues of that response."""
    members: dict[tuple[str, str], GroupMember] = {}
    for one in found:
        before = members.get((one.user, one.address))
        in_flight = one.in_flight + (before.in_flight if before else 0)
        members[one.user, one.address] = one._replace(in_flight=in_flight)
    return list(members.values())
