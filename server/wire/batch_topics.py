"""Counts the messages of a batch by topic, for metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_client.pb.v1 import kvcq_pb2 as pb


def topics_of(request: pb.PutBatchRequest) -> Mapping[str, int]:
    """Messages by topic. The request was stored, so it is not empty, and its columns have equal
    length.

    Takes a few hundredths of the time to append the messages.
    """
    if not request.HasField("columns"):
        return Counter([message.topic for message in request.messages])
    columns = request.columns
    names = columns.topics[:]
    if len(names) == 1:
        return {names[0]: len(columns.bodies)}
    found: Counter[str] = Counter()
    for index, count in Counter(columns.topic_indexes[:]).items():
        found[names[index]] += count
    return found
