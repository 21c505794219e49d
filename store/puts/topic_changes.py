"""Changes of topics: each is a record of the log, decided under the append lock."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.metadata import Retention
from store.state import MOST_ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from store.derive import Superseded
    from store.metadata import MessageType, TopicConfig
    from store.puts.append_path import AppendPath
    from store.state import Entry, TopicEnded
    from store.topics import End, Topics

#: Looked up, turned into rows and dispatched under the append lock, at about 0.2 ms each, so that
#: puts wait for a part of a large deletion and not for all of it. They are in one record: if they
#: are decided again because the log's next segment was not ready, none of them has ended yet.
_DELETED_TOGETHER = MOST_ENDED


class TopicChanges:
    """Creates, changes and deletes topics.

    Methods without a docstring are documented in MessageStore. Thread: any.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        superseded: Superseded,
        wait_visible: Callable[[], None],
    ) -> None:
        self._appends = appends
        self._topics = topics
        self._superseded = superseded
        self._wait_visible = wait_visible

    def create(
        self,
        topics: Sequence[tuple[str, int]],
        retentions: Mapping[str, Retention],
        types: Mapping[str, MessageType],
    ) -> list[TopicConfig]:
        for index, (name, _) in enumerate(topics):
            if (retention := retentions.get(name)) is not None:
                self._check_retention(f"topics[{index}].retention.", retention)
        self._decide(lambda: self._topics.create(topics, retentions, types))
        return [self._topics.get(name) for name, _ in topics]

    def keep(
        self,
        name: str,
        time_ms: int | None,
        size_bytes: int | None,
        messages: int | None,
        *,
        latest: bool | None,
    ) -> TopicConfig:
        def change(kept: Retention) -> Retention:
            changed = Retention(
                kept.time_ms if time_ms is None else time_ms,
                kept.bytes if size_bytes is None else size_bytes,
                kept.messages if messages is None else messages,
                kept.latest if latest is None else latest,
            )
            self._check_retention("retention_", changed)
            return changed

        self._decide(lambda: self._topics.keep(name, change))
        return self._topics.get(name)

    def take(self, name: str, message_type: MessageType) -> TopicConfig:
        self._decide(lambda: self._topics.take(name, message_type))
        return self._topics.get(name)

    def _check_retention(self, prefix: str, retention: Retention) -> None:
        for field, value in retention._asdict().items():
            if value < 0:
                raise InvalidArgumentError(f"{prefix}{field}", f"{value} is below 0")
        hours = self._appends.config.reserved_hours
        if retention.time_ms > hours * 3_600_000:
            raise InvalidArgumentError(
                f"{prefix}time_ms",
                f"{retention.time_ms} ms is longer than the log keeps any message: "
                f"store.reserved_hours is {hours:g}, {hours * 3_600_000:.0f} ms",
            )

    def delete(self, names: Sequence[str]) -> None:
        self._end(list(dict.fromkeys(names)), self._topics.end)

    def delete_light(self, names: Sequence[str]) -> int:
        """Delete those of these light queues that exist, like `MessageStore.delete_topic`, in
        chunks. Returns how many. Raises what an append raises."""
        return self._end_light(names, lambda _, offset: offset > 0)

    def last_ends(self, names: Sequence[str]) -> dict[str, End]:
        """The last deletion of each. For `delete_idle`: to be asked before anything else is looked
        up, since one that is deleted and filled again may have the same next offset."""
        return {name: self._topics.ends.get(name) for name in names}

    def delete_idle(self, found: Mapping[str, tuple[int, End]]) -> int:
        """Delete those of these light queues whose next offset and last deletion are still these.
        Returns how many. Raises what an append raises."""
        last = self._topics.ends.get
        return self._end_light(list(found), lambda name, at: (at, last(name)) == found[name])

    def _end_light(self, names: Sequence[str], is_meant: Callable[[str, int], bool]) -> int:
        """Delete those of these distinct light queues that exist and are selected by their next
        offset. Returns how many."""

        def end_some(some: Sequence[str]) -> Sequence[TopicEnded]:
            next_offsets = self._appends.log.next_light_offsets(some)
            meant = [
                name
                for name, offset in zip(some, next_offsets, strict=True)
                if is_meant(name, offset) and not self._topics.view.has_ended(name)
            ]
            return self._topics.end(meant)

        return self._end(names, end_some)

    def _end(
        self,
        names: Sequence[str],
        decide: Callable[[Sequence[str]], Sequence[TopicEnded]],
    ) -> int:
        """Returns how many were deleted."""
        count = 0
        for first in range(0, len(names), _DELETED_TOGETHER):
            some = names[first : first + _DELETED_TOGETHER]
            self._wait_visible()  # a light queue exists once its first message is dispatched
            count += self._end_together(partial(decide, some))
        return count

    def _end_together(self, decide: Callable[[], Sequence[TopicEnded]]) -> int:
        ended: Sequence[TopicEnded] = ()

        def entries() -> Sequence[TopicEnded]:
            nonlocal ended
            ended = decide()  # it may be called again
            return ended

        self._decide(entries)
        self._superseded.forget({each.topic for each in ended})
        return len(ended)

    def _decide(self, entries: Callable[[], Sequence[Entry]]) -> None:
        """Append the entries, durably."""
        self._appends.wait_durable(self._appends.decide(entries))
