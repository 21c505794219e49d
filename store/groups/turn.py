"""A turn: what several calls decide together, before it becomes one record of the log.

It is decided on what the state has at the log's end, and on what the calls before it in the turn
decided. Messages are read meanwhile, so the append lock is not held; under it, `steps` then looks
whether all that was decided on is still so. Only this room changes windows, one turn at a time, so
nothing but deletions and settings can be in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import GroupKindError, UnknownGroupError, UnknownTopicError
from store.light_queue import is_light
from store.metadata import KEEP_ALL, SharedGroup
from store.puts import Step
from store.state import (
    Changes,
    Finished,
    GroupMade,
    Tables,
    TopicsMade,
    apply_entry,
    pack_group,
    topic_key,
    unpack_group,
    unpack_topic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message import Message
    from store.puts import AppendPath
    from store.state import Entry
    from store.topics import End, Topics

#: All entries of a turn are in one record: see MOST_BYTES of store/state/entries.py.
_MOST_ENTRIES = 3000
#: What is decided is applied where no record is yet; only topics ask where theirs is.
_NOWHERE = 0
#: Dead letters of a turn, fewer than make columns, and their bytes.
_MOST_DEAD = 32
_MOST_DEAD_BYTES = 4 << 20


class ChangedError(Exception):
    """What was decided on is not so any more: decide again."""


class Place(NamedTuple):
    """A topic or light queue."""

    begins: int  # physical offset of the record that made the topic; 0 for a light queue
    queue_count: int


class _Seen:
    """Rows at the log's end, and which of them were looked at."""

    def __init__(self, appends: AppendPath, topics: Topics) -> None:
        self._appends = appends
        self._topics = topics
        self.rows: dict[bytes, bytes | None] = {}
        #: The records of the state when the first was looked at; -1: none was.
        self.records = -1

    def begin(self) -> None:
        """Under the append lock, before the first look: what changes from here on is noticed."""
        if self.records < 0:
            self.records = self._topics.next_state()

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        missing = [key for key in keys if key not in self.rows]
        if missing:
            with self._appends.held():
                self.begin()
                found = self._topics.view.multi_get(missing)
                self.rows.update(zip(missing, found, strict=True))
        return [self.rows[key] for key in keys]

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        raise AssertionError(f"a turn deletes no range: {start!r} to {end!r}, {limit}")


class Turn:
    """Thread: one."""

    def __init__(self, appends: AppendPath, topics: Topics) -> None:
        self._appends = appends
        self._topics = topics
        self._seen = _Seen(appends, topics)
        self._changes = Changes(self._seen)
        self._tables = Tables(self._changes)
        self._entries: list[Entry] = []
        self._messages: list[Message] = []
        self._message_bytes = 0
        self._places: dict[str, Place] = {}
        self._ends: dict[str, End] = {}
        # Windows whose last entry ends deliveries, and where that is: more go with it.
        self._open: dict[tuple[str, str, int], int] = {}
        self.windows = self._tables.windows

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= _MOST_ENTRIES

    @property
    def is_empty(self) -> bool:
        return not self._entries

    # --- looking ---------------------------------------------------------------------------

    def shared(self, group: str, *, make: bool = False) -> SharedGroup:
        """Its settings; `make` it where there is none, with those by default.

        Raises UnknownGroupError, GroupKindError.
        """
        row = self._tables.group(group)
        if row is None:
            if not make:
                raise UnknownGroupError(group)
            row = pack_group(SharedGroup())
            self.add(GroupMade(group, row))
        settings = unpack_group(row)
        if settings is None:
            raise GroupKindError(group, is_shared=False)
        return settings

    def place(self, name: str) -> Place:
        """Raises UnknownTopicError."""
        found = self._places.get(name)
        if found is None:
            with self._appends.held():
                self._seen.begin()
                self._ends.setdefault(name, self._topics.ends.get(name))
                if self._topics.view.has_ended(name):
                    raise UnknownTopicError(name, "light queue" if is_light(name) else "topic")
            found = self._places[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Place:
        if is_light(name):
            return Place(0, self._topics.queue_count(name))
        row = self._seen.get(topic_key(name))
        if row is None:
            raise UnknownTopicError(name)
        config = unpack_topic(name, row)
        return Place(config.created_offset, config.queue_count)

    # --- deciding --------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """It is decided."""
        apply_entry(entry, _NOWHERE, self._changes)
        if not isinstance(entry, Finished):
            self._open.clear()
            self._entries.append(entry)
            return
        queue = entry.group, entry.topic, entry.queue_id
        at = self._open.get(queue)
        before = None if at is None else self._entries[at]
        if (
            at is not None
            and isinstance(before, Finished)
            and (before.first, before.how) == (entry.first, entry.how)
        ):
            self._entries[at] = before._replace(mask=before.mask | entry.mask)
        else:
            self._open[queue] = len(self._entries)
            self._entries.append(entry)

    @property
    def takes_dead(self) -> bool:
        """Whether another dead letter may go with this turn."""
        return len(self._messages) < _MOST_DEAD and self._message_bytes < _MOST_DEAD_BYTES

    def bury(self, entry: Finished, message: Message) -> None:
        """The delivery ends with a dead letter."""
        self.add(entry)
        self._messages.append(message)
        self._message_bytes += len(message.body)

    # --- for the appender, under the append lock -------------------------------------------

    def steps(self, now_ms: int, made_queues: int = 1) -> list[Step]:
        """What is to be appended. Raises ChangedError."""
        view = self._topics.view
        if self._topics.next_state() != self._seen.records:
            self._check_unchanged()
        steps: list[Step] = []
        names = sorted({message.topic for message in self._messages})
        missing = [name for name in names if view.tables.topic(name) is None]
        if missing:
            steps.append(Step([TopicsMade(missing, made_queues, now_ms, KEEP_ALL)]))
        if self._entries:
            steps.append(Step(self._entries, self._messages))
        return steps

    def _check_unchanged(self) -> None:
        """What was decided on is as it was, though the state has changed."""
        view, seen = self._topics.view, self._seen.rows
        written = self._changes.written
        keys = [key for key in seen if key[:1] in b"gt" or key in written]
        if view.multi_get(keys) != [seen[key] for key in keys]:
            raise ChangedError
        for name, end in self._ends.items():
            if view.has_ended(name) or self._topics.ends.get(name) != end:
                raise ChangedError
