"""Topics whose records mean something to a broker, or to this store: no caller changes them.

What was written under such a name before stays readable. A retry topic (%RETRY%) or one of dead
letters (%DLQ%) is a topic of its group's, and none of these.

Source: RocketMQ 5.5, TopicValidator; RMQ_SYS_TRACE_TOPIC is missing, as clients put traces to it.
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
    """Whether callers may neither create, limit nor delete the topic, nor put to it."""
    return name.startswith(_PREFIX) or name in _NAMES


def check_all_may_write(topics: Sequence[str]) -> None:
    """`check_may_write` of each. Names of which none is of this kind are seen in one look."""
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
