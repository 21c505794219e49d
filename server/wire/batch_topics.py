"""Which topics the messages of a batch are of, for its row in the metrics."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq_client.pb.v1 import kvcq_pb2 as pb

#: Of a batch with more messages, of several topics, so many are looked at.
SAMPLE = 32
#: Where they are looked at, 0 to 1: spread without a period, since topics may take turns.
_PLACES = tuple(number * 0.618_033_988_749 % 1 for number in range(SAMPLE))


def topics_of(request: pb.PutBatchRequest) -> Mapping[str, int]:
    """Messages by topic, all of them together as many as the batch has.

    Exact for a batch of columns with one topic, and one of up to SAMPLE messages; otherwise as in
    a sample: a batch is counted at one price, however many messages it has. The request has been
    stored, so it is not empty, and its columns fit each other.
    """
    if request.HasField("columns"):
        columns = request.columns
        names, indexes = columns.topics, columns.topic_indexes
        count = len(columns.bodies)
        if len(names) == 1:
            return {names[0]: count}
        found = Counter(map(names.__getitem__, map(indexes.__getitem__, _looked_at(count))))
    else:
        messages = request.messages
        count = len(messages)
        looked_at = messages if count <= SAMPLE else [messages[at] for at in _looked_at(count)]
        found = Counter([message.topic for message in looked_at])
    return found if count <= SAMPLE else _scaled(found, count)


@lru_cache(maxsize=16)  # producers fill their batches
def _looked_at(count: int) -> Sequence[int]:
    return range(count) if count <= SAMPLE else [int(place * count) for place in _PLACES]


def _scaled(sample: Counter[str], count: int) -> Mapping[str, int]:
    """The sample as `count` messages; what rounding leaves goes to the topic with most."""
    taken = sample.total()
    scaled = {topic: part * count // taken for topic, part in sample.items()}
    scaled[max(sample, key=sample.__getitem__)] += count - sum(scaled.values())
    return scaled
