"""Converts lite topics and their parents to API messages and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import lite_topics_pb2 as pb

if TYPE_CHECKING:
    from store.lite import LiteParent, LiteTopic


def lite_parent_out(parent: LiteParent) -> kvcq_pb2.LiteParent:
    return kvcq_pb2.LiteParent(
        expiry_ms=parent.expiry_ms,
        lite_topics=parent.lite_topics,
        has_more=parent.has_more,
        clients=parent.clients,
    )


def lite_topic_out(lite_topic: LiteTopic) -> pb.LiteTopicState:
    return pb.LiteTopicState(
        min_offset=lite_topic.min_offset,
        max_offset=lite_topic.max_offset,
        last_ms=lite_topic.last_ms,
        ends_ms=lite_topic.ends_ms,
        clients=lite_topic.clients,
    )
