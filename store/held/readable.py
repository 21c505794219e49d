"""Records that are read as far as they can be."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.errors import CorruptRecordError, DamagedQueueError, UnknownTopicError
from store.held.records import read_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.held.reads import Reads

logger = logging.getLogger(__name__)


class Readable(NamedTuple):
    """What there is at some places of a topic."""

    records: dict[int, bytes]  # by place
    #: Places whose records cannot be read, and will not be: they are damaged, or gone from the log.
    lost: dict[int, str]  # with the reason


def read_each(reads: Reads, topic: str, places: Sequence[int]) -> Readable:
    """Those in queue 0 that are dispatched. A place that is in neither of both is not dispatched
    yet, or its queue is being rebuilt: ask later."""
    try:
        ((low, high),) = reads.bounds([(topic, 0)])
    except UnknownTopicError:
        return Readable({}, {})
    lost = dict.fromkeys((at for at in places if at < low), "it is gone from the log")
    wanted = [at for at in places if low <= at < high]
    with suppress(CorruptRecordError, DamagedQueueError):
        return Readable(read_places(reads, topic, wanted), lost)
    records: dict[int, bytes] = {}
    for place in wanted:
        try:
            records.update(read_places(reads, topic, [place]))
        except CorruptRecordError as error:
            lost[place] = str(error)
        except DamagedQueueError as error:
            if error.next_offset is not None:  # a rebuild has not helped
                lost[place] = str(error)
    return Readable(records, lost)
