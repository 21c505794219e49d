"""What is not derived from the log: topics, groups, committed offsets, marks of deleted topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from store.consume_queue import LastUnit


class Retention(NamedTuple):
    """What each queue of a topic keeps; 0: as much as the log does."""

    time_ms: int = 0  # messages that were stored so long ago at most
    bytes: int = 0  # the last ones whose records have so many bytes together, and one at least
    messages: int = 0  # the last ones, so many
    latest: bool = False  # of each key, the latest one, as far as it was looked through


#: All that is in the log.
KEEP_ALL = Retention()


class TopicConfig(NamedTuple):
    """Settings of one topic."""

    name: str
    queue_count: int
    created_ms: int
    created_offset: int  # end of the log at creation: older records belong to an earlier topic
    retention: Retention = KEEP_ALL


class KeptQueue(NamedTuple):
    """What was counted of a queue whose topic keeps so many bytes. `end_offset` is exclusive."""

    topic: str
    queue_id: int
    created_offset: int  # of the topic then
    limit_bytes: int
    first_offset: int  # of the queue: where it begins for its readers
    end_offset: int
    kept_bytes: int  # of records in first_offset..end_offset


class LatestHead(NamedTuple):
    """How far along the log a queue was kept to the latest message of each key."""

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical: records from there on were not looked at
    hidden: int  # messages that were hidden then


class DeleteMark(NamedTuple):
    """A topic was deleted: its records below `below_offset` are dead, whatever replays them."""

    topic: str
    below_offset: int
    sequence: int  # deletions are numbered from 1; 0 or less: from before the store was ours


class Metadata(Protocol):
    """Durable when each call returns, unless it says otherwise. Safe from several threads."""

    def topics(self, names: Sequence[str]) -> list[TopicConfig | None]: ...

    def put_topics(self, topics: Iterable[TopicConfig], *, sync: bool = True) -> None:
        """Without `sync` they survive a kill of the process, power loss only after `sync()`."""
        ...

    def put_topics_like(self, names: Sequence[str], config: TopicConfig) -> None:
        """Topics with this config, but for their names. Durable only after `sync()`."""
        ...

    def sync(self) -> None:
        """What was written without sync is durable. Raises OSError or EngineFailedError."""
        ...

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        """In name order (by UTF-8 bytes), names above `after` only."""
        ...

    def delete_topics(self, marks: Sequence[DeleteMark]) -> None:
        """Remove these topics, offsets on them and their last units, and leave the marks, in one
        step. A mark of a number that is there is replaced."""
        ...

    def put_marks(self, marks: Iterable[DeleteMark]) -> None:
        """Leave marks of which no rows are to be removed: their sequences are 0 or less."""
        ...

    def delete_marks(self) -> list[DeleteMark]:
        """All marks, in the order of their sequence."""
        ...

    def marks_above(self, sequence: int, limit: int) -> list[DeleteMark]:
        """Those with higher numbers, the lowest first."""
        ...

    def last_mark(self) -> int:
        """The highest number of a mark; 0 when there is none above."""
        ...

    def dead_below(self, names: Sequence[str]) -> list[int]:
        """Of each name the highest physical offset that a mark of it has; 0 without one."""
        ...

    def name_marks(self) -> None:
        """On opening: marks of an earlier version are found by their names from now on."""
        ...

    def drop_marks(self, marks: Sequence[DeleteMark]) -> None:
        """Forget these marks: nothing can bring their records back any more."""
        ...

    def commit_offsets(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Store (topic, queue id, next offset to read) for the group."""
        ...

    def committed_offsets(
        self, group: str, queues: Sequence[tuple[str, int]]
    ) -> list[int | None]: ...

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]: ...

    def delete_group(self, group: str) -> None: ...

    def list_groups(self, after: str | None, limit: int) -> list[str]: ...

    def put_last_units(self, units: Sequence[LastUnit]) -> None:
        """One for each queue, in place of an earlier one. Durable after `sync()`.

        Raises StoreBusyError when it cannot be taken now.
        """
        ...

    def last_units(self) -> Iterator[list[LastUnit]]:
        """What was put and not deleted with its topic, in short lists."""
        ...

    def put_kept(self, kept: Sequence[KeptQueue]) -> None:
        """One for each queue, in place of an earlier one. Survives a kill of the process on return,
        power loss after `sync()`; what is lost is counted again."""
        ...

    def kept(self, topic: str, queue_id: int) -> KeptQueue | None:
        """What was put and not deleted with its topic."""
        ...

    def put_hidden(self, head: LatestHead, bits: Mapping[int, bytes]) -> None:
        """The queue's head and all its rows of bits, by number, in place of earlier ones, in one
        step. Durable as what `put_kept` puts."""
        ...

    def hidden_bits(self, topic: str, queue_id: int, number: int) -> bytes | None:
        """The row of bits of that number."""
        ...

    def latest_heads(self) -> Iterator[LatestHead]:
        """Of all queues."""
        ...

    def forget_hidden(self, topic: str) -> None:
        """Remove heads and bits of all queues of the topic, as its deletion does."""
        ...

    def get_state(self, name: str) -> bytes | None:
        """A small named value, such as the state of a migration."""
        ...

    def put_state(self, name: str, value: bytes) -> None: ...

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name."""
        ...

    def states(self, prefix: str) -> list[tuple[str, bytes]]:
        """All named values whose names begin so, by name."""
        ...

    def drop_state(self, name: str) -> None:
        """Repeatable."""
        ...

    def maintain(self) -> None:
        """What is due now and then; called every second. After a full disk: takes writes again."""
        ...

    def close(self) -> None: ...
