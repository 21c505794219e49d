"""Converts shared groups to API messages and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client.format import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.wire.messages_out import stored_out
from store.errors import InvalidArgumentError
from store.groups import AtOffset, AtTime, Edge, Outcome
from store.lite import name_of
from store.metadata import LiteGroup, SharedGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.pb.v1.lite_topics_pb2 import SyncLiteSubscriptionsRequest
    from store.groups import DeadLetter, Received, SharedQueue, Where

_OUTCOMES = {
    Outcome.DONE: pb.HANDLE_OUTCOME_DONE,
    Outcome.NOT_IN_FLIGHT: pb.HANDLE_OUTCOME_NOT_IN_FLIGHT,
    Outcome.QUEUE_ENDED: pb.HANDLE_OUTCOME_QUEUE_ENDED,
}
_RECORDS = length_delimited(pb.ReceiveResponse, "records")
#: Settings by the names of their fields, where the store has other ones.
_IN_STORE = {"paused": "is_paused"}
_BACKOFF = re.compile(r"backoff_ms(\[\d+\])?")


class EncodedDeliveries(NamedTuple):
    """An encoded ReceiveResponse."""

    message_count: int
    cost_bytes: int  # of the records
    data: bytes


def encode_deliveries(
    received: Received, form: kvcq_pb2.RecordForm, *, of_lite: bool = False
) -> EncodedDeliveries:
    """Whole records come last, so they are copied once. `of_lite`: they are from lite topics."""
    deliveries = received.deliveries
    response = pb.ReceiveResponse(
        handles=[one.handle for one in deliveries],
        queue_ids=[one.queue_id for one in deliveries],
        queue_offsets=[one.queue_offset for one in deliveries],
        deliveries=[one.deliveries for one in deliveries],
        until_ms=[one.until_ms for one in deliveries],
        lite_topics=[name_of(one.topic) for one in deliveries] if of_lite else (),
        lost_lite_topics=received.lost,
        outcomes=outcomes_out(received.outcomes),
    )
    size = sum(len(one.record) for one in deliveries)
    if form != kvcq_pb2.RECORD_FORM_WHOLE:
        response.messages.extend(stored_out(one.record, one.queue_offset) for one in deliveries)
        return EncodedDeliveries(len(deliveries), size, response.SerializeToString())
    parts = [response.SerializeToString()]
    if size:
        parts.append(_RECORDS + varint(size))
        parts += [one.record for one in deliveries]
    return EncodedDeliveries(len(deliveries), size, b"".join(parts))


def outcomes_out(outcomes: Sequence[Outcome]) -> list[pb.HandleOutcome]:
    return [_OUTCOMES[one] for one in outcomes]


def settings_in(given: pb.SharedGroupSettings, found: SharedGroup | None) -> SharedGroup:
    """The settings for a new group, or, with its settings `found`, for an update. The store
    validates them."""
    values: dict[str, Any] = {
        _IN_STORE.get(name, name): getattr(given, name)
        for name in (each.name for each in given.DESCRIPTOR.fields)
        if name not in ("backoff", "lite") and given.HasField(name)
    }
    if given.HasField("backoff"):
        values["backoff_ms"] = tuple(given.backoff.delays_ms)
    if given.HasField("lite"):
        values["lite"] = _lite_in(given.lite, found and found.lite)
    return (found or SharedGroup())._replace(**values)


def _lite_in(given: pb.LiteSettings, found: LiteGroup | None) -> LiteGroup:
    lite = found or LiteGroup(given.parent)
    return LiteGroup(
        given.parent or lite.parent,
        given.client_quota if given.HasField("client_quota") else lite.client_quota,
        given.exclusive if given.HasField("exclusive") else lite.is_exclusive,
        given.wildcard if given.HasField("wildcard") else lite.is_wildcard,
    )


def _lite_out(lite: LiteGroup | None) -> pb.LiteSettings | None:
    return lite and pb.LiteSettings(
        parent=lite.parent,
        client_quota=lite.client_quota,
        exclusive=lite.is_exclusive,
        wildcard=lite.is_wildcard,
    )


def settings_out(settings: SharedGroup) -> pb.SharedGroupSettings:
    return pb.SharedGroupSettings(
        max_deliveries=settings.max_deliveries,
        invisible_ms=settings.invisible_ms,
        most_in_flight=settings.most_in_flight,
        in_order=settings.in_order,
        from_latest=settings.from_latest,
        paused=settings.is_paused,
        dead_letters_keep_ms=settings.dead_letters_keep_ms,
        backoff=pb.Backoff(delays_ms=settings.backoff_ms),
        lite=_lite_out(settings.lite),
    )


def queue_out(queue: SharedQueue) -> pb.SharedQueue:
    return pb.SharedQueue(**queue._asdict())


def dead_letter_out(letter: DeadLetter) -> pb.DeadLetter:
    return pb.DeadLetter(
        offset=letter.offset,
        place=letter.place,
        topic=letter.topic,
        queue_id=letter.queue_id,
        queue_offset=None if letter.queue_offset < 0 else letter.queue_offset,
        message_id=letter.message_id,
        deliveries=letter.deliveries,
        time_ms=letter.time_ms,
    )


def where_in(
    request: pb.ResetGroupRequest | SyncLiteSubscriptionsRequest, chosen: str | None
) -> Where | None:
    """The position in the field that was `chosen`; None if it is another field. Does not validate
    numbers."""
    match chosen:
        case "earliest":
            return Edge.EARLIEST
        case "latest":
            return Edge.LATEST
        case "time_ms":
            return AtTime(request.time_ms)
        case "offset":
            return AtOffset(request.offset)
        case _:
            return None


def of_settings(error: InvalidArgumentError) -> InvalidArgumentError:
    """The error with the setting's name as in the request, where it is part of a message."""
    field = error.field
    if backoff := _BACKOFF.fullmatch(field):
        field = f"backoff.delays_ms{backoff[1] or ''}"
    if field.partition(".")[0] not in pb.SharedGroupSettings.DESCRIPTOR.fields_by_name:
        return error
    return InvalidArgumentError(f"settings.{field}", error.reason)
