"""Converts a trace to API messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.trace import Now, Reader, What

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.trace import Event, Standing, Story

_NOW = {each: f"MESSAGE_STATE_{each.name}" for each in Now}
_WHAT = {each: f"TRACE_EVENT_KIND_{each.name}" for each in What}
_READER = {each: f"TRACE_GROUP_STATE_{each.name}" for each in Reader}
_NOBODY = ("", "")


def story_out(
    story: Story, receivers: Mapping[int, tuple[str, str]], *, is_limited: bool
) -> pb.TraceResponse:
    """`receivers`: user and address, by nonce of lease. `is_limited`: whether groups are left
    out."""
    subject = story.subject
    return pb.TraceResponse(
        message_id=subject.message_id,
        physical_offset=subject.physical_offset,
        store_time_ms=subject.stored_ms,
        topic=subject.topic,
        places=[
            pb.QueuePosition(topic=topic, queue_id=queue_id, offset=offset)
            for topic, queue_id, offset in subject.places
        ],
        state=_NOW[subject.now],
        due_ms=subject.due_ms or None,
        producer_group=subject.group,
        groups=[_group_out(each, receivers) for each in story.standings],
        events=[_event_out(each, receivers) for each in story.events],
        next_page_token="" if story.cursor is None else story.cursor.hex(),
        searched_until_ms=story.told_until_ms or None,
        log_start_offset=story.log_start,
        log_start_ms=story.log_start_ms,
        groups_limited=is_limited,
    )


def _event_out(event: Event, receivers: Mapping[int, tuple[str, str]]) -> pb.TraceEvent:
    user, address = receivers.get(event.nonce, _NOBODY)
    made = pb.TraceEvent(
        kind=_WHAT[event.what],
        time_ms=event.time_ms,
        physical_offset=event.physical_offset,
        group=event.group,
        delivery=event.delivery,
        until_ms=event.until_ms or None,
        position=None if event.position < 0 else event.position,
        message_id=event.message_id,
        user=user,
        address=address,
    )
    if event.place is not None:
        made.topic, made.queue_id, made.queue_offset = event.place
    return made


def _group_out(standing: Standing, receivers: Mapping[int, tuple[str, str]]) -> pb.TraceGroup:
    user, address = receivers.get(standing.nonce, _NOBODY)
    topic, queue_id, offset = standing.place
    return pb.TraceGroup(
        group=standing.group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        state=_READER[standing.reader],
        deliveries=standing.deliveries,
        until_ms=standing.until_ms or None,
        user=user,
        address=address,
    )
