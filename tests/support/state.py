"""Rows of state in a dict, and histories of entries made at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from store.metadata import MessageType, Retention
from store.state import (
    Begun,
    Committed,
    Ended,
    Finished,
    GroupEnded,
    GroupMade,
    Held,
    LatestLooked,
    Lease,
    Leased,
    LetterEnd,
    LetterEnded,
    LiteTopicsOf,
    Passed,
    Reset,
    Seen,
    TimerEnd,
    TimerEnded,
    TimerSet,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.state import Changes
    from store.state.rows import Pair


class DictRows:
    """Rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
        return sorted(row for row in self.rows.items() if start <= row[0] < end)[:limit]

    def take(self, changes: Changes) -> None:
        for start, end in changes.ranges:
            for key in [key for key in self.rows if start <= key < end]:
                del self.rows[key]
        for key, value in changes.written.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value


TOPICS = st.sampled_from(["a", "ab", "b", "ü", "%LMQ%a", "%LMQ%ab", "%DLQ%g"])
GROUPS = st.sampled_from(["g", "ga", "h", "ö"])
_I64 = st.integers(0, (1 << 63) - 1)
_QUEUES = st.integers(0, 3)
_RETENTIONS = st.builds(Retention, _I64, _I64, _I64, st.booleans())
_BITS = st.dictionaries(st.integers(0, 4), st.binary(min_size=1, max_size=9), max_size=3)

_FIRST = st.integers(0, 200)
_MASKS = st.one_of(st.integers(1, (1 << 64) - 1), st.integers(1, 7))
_LEASES = st.builds(Lease, _FIRST, _MASKS, st.integers(0, 0xFFFF), _I64, _I64, _I64, _I64)
_GROUP_KEYS = st.sampled_from([0, 1, -(1 << 63), (1 << 63) - 1])
_SEEN = _MASKS.flatmap(
    lambda mask: st.builds(
        Seen,
        GROUPS,
        TOPICS,
        _QUEUES,
        _FIRST,
        st.just(mask),
        st.lists(_GROUP_KEYS, min_size=mask.bit_count(), max_size=mask.bit_count()).map(tuple),
    )
)
WINDOW_ENTRIES = st.one_of(
    st.builds(Leased, GROUPS, TOPICS, _QUEUES, _LEASES, st.sampled_from(Held)),
    st.builds(Finished, GROUPS, TOPICS, _QUEUES, _FIRST, _MASKS, st.sampled_from(Ended)),
    st.builds(Passed, GROUPS, TOPICS, _QUEUES, _FIRST),
    st.builds(Reset, GROUPS, TOPICS, _QUEUES, _FIRST),
    st.builds(Begun, GROUPS, TOPICS),
    _SEEN,
)
LETTERS_ENDED = st.builds(
    LetterEnded,
    st.just("%DLQ%g"),
    *(st.integers(0, 3), st.integers(0, 20_000), st.integers(-1, 20_000), st.integers(0, 20_000)),
    st.sampled_from(LetterEnd),
)

_SOME_TOPICS = st.lists(TOPICS, min_size=1, max_size=5, unique=True)
ENTRIES = st.one_of(
    st.builds(TopicsMade, _SOME_TOPICS, st.integers(1, 64), _I64, _RETENTIONS),
    st.builds(TopicEnded, TOPICS),
    st.builds(GroupMade, GROUPS, st.binary(max_size=20)),
    st.builds(GroupEnded, GROUPS),
    st.builds(Committed, GROUPS, TOPICS, _QUEUES, _I64),
    st.builds(LatestLooked, TOPICS, _QUEUES, _I64, _I64, st.integers(0, 4), _BITS),
    WINDOW_ENTRIES,
    LETTERS_ENDED,
    st.builds(LiteTopicsOf, TOPICS, _I64),
)
ANY_ENTRIES = st.one_of(
    ENTRIES,
    st.builds(TopicKeeps, TOPICS, _RETENTIONS),
    st.builds(TopicTakes, TOPICS, st.sampled_from(MessageType)),
    st.builds(TimerSet, TOPICS, _I64, _I64, _I64),
    st.builds(TimerEnded, _I64, _I64, _I64, st.sampled_from(TimerEnd)),
)
