"""System topics: their records mean something to a broker or to this store, so callers may not
change them. System groups: their offsets are a broker's, or say what was taken over from it.

Records that were written under such a name before stay readable. Retry topics (%RETRY%) and
dead-letter topics (%DLQ%) belong to their groups and are not system topics: callers may create,
limit and delete them, but not put to them. Only the store writes dead letters, in the append that
ends the delivery, and no group receives what a broker put into a retry topic.

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
#: RocketMQ 5.5, MixAll.
_GROUP_PREFIX = "CID_RMQ_SYS_"
_DEAD_LETTERS, _RETRY = "%DLQ%", "%RETRY%"


def is_system_topic(name: str) -> bool:
    """Whether the topic is a system topic: callers may not create, limit or delete it, or put to
    it."""
    return name.startswith(_PREFIX) or name in _NAMES


def is_system_group(name: str) -> bool:
    """Whether the group is a system group. No consumer uses it, so its lag means nothing."""
    return name.startswith(_GROUP_PREFIX)


def check_may_delete(group: str) -> None:
    """Raises InvalidArgumentError for a system group."""
    if is_system_group(group):
        raise InvalidArgumentError(
            "group",
            f"{group!r} is a system group and cannot be deleted: its offsets say which delayed "
            "messages and transactions a RocketMQ broker has delivered",
        )


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


def check_may_put(topic: str, field: str = "topic") -> None:
    """Raises InvalidArgumentError for a system topic, and for one that is a group's own."""
    check_may_write(topic, field)
    check_no_group_topics([topic], field)


def check_no_group_topics(topics: Sequence[str], field: str = "messages[{at}].topic") -> None:
    """Raises InvalidArgumentError for the first of these that is a group's own. Lists without such
    topics are recognised in one pass.

    Every put is checked, since queues of dead letters may be hot: the store writes them. Queues of
    system topics never are, so `check_all_may_write` is called when an offset is loaded.
    """
    text = "\n".join(topics)
    if _DEAD_LETTERS not in text and _RETRY not in text:
        return
    for at, topic in enumerate(topics):
        if topic.startswith(_DEAD_LETTERS):
            group = topic.removeprefix(_DEAD_LETTERS)
            raise InvalidArgumentError(
                field.format(at=at),
                f"{topic!r} has the dead letters of group {group!r}, which only the store writes: "
                f"put to another topic; `kvcq dlq list` and `kvcq dlq redrive` are for these",
            )
        if topic.startswith(_RETRY):
            raise InvalidArgumentError(
                field.format(at=at),
                f"{topic!r} is for what a RocketMQ broker delivers to group "
                f"{topic.removeprefix(_RETRY)!r} again, and no group receives from it here: put to "
                "the topic that the group receives from",
            )
