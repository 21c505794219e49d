"""System topics: their records mean something to a broker or to this store, so callers may not
change them.

Records that were written under such a name before stay readable. Retry topics (%RETRY%) and
dead-letter topics (%DLQ%) belong to their groups and are not system topics.

Source: RocketMQ 5.5, TopicValidator; without RMQ_SYS_TRACE_TOPIC, since clients put traces to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Delayed messages; transactions that are open or settled; what a broker notes or tests with.
_NAMES = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "TBW102",
    }
)
#: Among them rmq_sys_wheel_timer, and each topic that this store will have for itself.
_PREFIX = "rmq_sys_"


def is_system_topic(name: str) -> bool:
    """Whether the topic is a system topic: callers may not create, limit or delete it, or put to
    it."""
    return name.startswith(_PREFIX) or name in _NAMES


def check_all_may_write(topics: Sequence[str]) -> None:
    """Run `check_may_write` on each name. Lists without system topics are recognised in one
    pass."""
    if not _NAMES.isdisjoint(topics) or _PREFIX in "\n".join(topics):
        for topic in topics:
            check_may_write(topic)


def check_may_write(topic: str, field: str = "topic") -> None:
    """Raises InvalidArgumentError for a system topic."""
    if is_system_topic(topic):
        raise InvalidArgumentError(
            field,
            f"{topic!r} is a system topic: it can be read, but not created, put to, limited or "
            f"deleted; take another name, which does not begin with {_PREFIX}",
        )
