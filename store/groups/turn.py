"""A turn: several calls decide together, and the result becomes one record of the log.

Decisions are based on the state at the log's end, and on the earlier calls of the turn. They read
messages, so they run without the append lock. Under that lock, `steps` then checks that everything
read is unchanged. Only turns change windows, one turn at a time, so only deletions and changed
settings can interfere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import AppendWouldWaitError, GroupKindError, UnknownGroupError, UnknownTopicError
from store.light_queue import is_light
from store.metadata import KEEP_ALL, MessageType, SharedGroup
from store.puts import Step
from store.state import (
    STATE_TOPIC,
    Begun,
    Changes,
    Finished,
    GroupMade,
    Seen,
    Tables,
    TopicsMade,
    apply_entry,
    group_made_at,
    pack_group,
    topic_key,
    unpack_group,
    unpack_topic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message import Message
    from store.puts import AppendPath
    from store.state import Entry, LetterEnded
    from store.topics import End, Topics

#: A turn with this many entries takes no further calls. With names of usual length they fit one
#: record: see MOST_BYTES of store/state/packing.py.
_MOST_ENTRIES = 3000
#: Message groups that take as many bytes as an entry.
_KEYS_AN_ENTRY = 6
#: Most bytes of rows that a turn which must be short decodes together.
_MOST_AT_ONCE_BYTES = 32 << 10
#: Most rows that the next turn reuses.
_MOST_KNOWN = 256
#: Stands for the offset of the turn's own record, which is not known before the append.
_NOWHERE = 0
#: Most messages that a turn appends (fewer than are encoded as columns), and their bytes.
_MOST_MESSAGES = 32
_MOST_MESSAGE_BYTES = 4 << 20


class ChangedError(Exception):
    """State that the turn has read was changed. Run the turn again."""


class Begin(NamedTuple):
    """Where a from-latest group starts; physical offsets of records."""

    made_at: int  # of the record that created the group
    #: Of the record of its first receive from the topic; 0: that record is part of this turn; None:
    #: the group has not received from the topic.
    begun_at: int | None


def begin_of(tables: Tables, group: str, topic: str) -> Begin:
    """Where the group starts on the topic. The group must exist and be shared."""
    row = tables.group(group)
    assert row is not None, "it was looked up"
    made_at, begun_at = group_made_at(row), tables.begun_at(group, topic)
    # May be left over from a deleted group of the same name.
    left_over = begun_at is not None and _NOWHERE < begun_at < made_at
    return Begin(made_at, None if left_over else begun_at)


class Place(NamedTuple):
    """A topic or light queue."""

    begins: int  # physical offset of the record that made the topic; 0 for a light queue
    queue_count: int
    by_priority: bool = False  # messages of higher queues are delivered first


class Known:
    """State at the log's end that turns have read: rows and places.

    While nothing else changes the state, the next turn reuses it. Memory: that of a turn;
    _MOST_KNOWN rows between turns.
    """

    def __init__(self, appends: AppendPath, topics: Topics) -> None:
        self._appends = appends
        self._topics = topics
        self.rows: dict[bytes, bytes | None] = {}
        self.places: dict[str, Place] = {}
        self.ends: dict[str, End] = {}
        #: Number of state records at which all of this is valid; -1: nothing is known.
        self.records = -1
        self._is_current = False
        #: Most bytes of rows that are looked up together; None: no limit.
        self.most_bytes: int | None = None

    def next_turn(self) -> Known | None:
        """The part that the next turn can reuse, if any."""
        if not 0 < len(self.rows) <= _MOST_KNOWN:
            return None
        self._is_current = False
        return self

    def look(self) -> None:
        """Call before the first read of a turn; changes from here on are detected."""
        if self._is_current:
            return
        with self._appends.held():
            records = self._topics.next_own(STATE_TOPIC)
        if records != self.records:
            self.rows.clear()
            self.places.clear()
            self.ends.clear()
        self.records = records
        self._is_current = True

    def take(self, changes: Changes, records: int) -> None:
        """Apply the changes of a turn; `records` is the new number of state records."""
        self.rows.update(changes.written)
        self.records = records

    # --- as rows ---------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.look()
        rows = self.rows
        missing = [key for key in keys if key not in rows]
        if missing:
            with self._appends.held():
                found = self._topics.view.multi_get(missing)
            rows.update(zip(missing, found, strict=True))
        wanted = [rows[key] for key in keys]
        if self.most_bytes is not None and sum(map(len, filter(None, wanted))) > self.most_bytes:
            raise AppendWouldWaitError("rows are long")
        return wanted

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        """Scan rows. Only found rows are checked for changes later. That is enough for rows of dead
        letters: only turns add them, and they are deleted with their topic."""
        assert start[:1] in b"xy", f"a turn looks through no range: {start!r} to {end!r}"
        self.look()
        with self._appends.held():
            found = self._topics.view.scan(start, end, limit)
        self.rows.update(found)
        return found


class Turn:
    """The decisions of one turn, until they are appended. Thread: one."""

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        known: Known | None = None,
        *,
        may_wait: bool = True,
    ) -> None:
        """`known`: what the previous turn left for reuse."""
        #: If False, waiting for the disk or long work raises AppendWouldWaitError.
        self.may_wait = may_wait
        self._appends = appends
        self._topics = topics
        self._known = known or Known(appends, topics)
        self._known.most_bytes = None if may_wait else _MOST_AT_ONCE_BYTES
        self._changes = Changes(self._known)
        self.tables = Tables(self._changes)
        self._entries: list[Entry] = []
        self._weight = 0  # what entries with message groups count beyond one each
        self._messages: list[Message] = []
        self._message_bytes = 0
        # By topic: next offset of queue 0 when it was looked up.
        self._next_offsets: dict[str, int] = {}
        # Index of the last entry of a window if that is Finished: later ones may be merged with it.
        self._open: dict[tuple[str, str, int], int] = {}
        # Whether a row contains _NOWHERE.
        self._has_nowhere = False
        # Number of state records after this turn; -1: unknown, other records were appended too.
        self._records_after = -1
        self.windows = self.tables.windows
        #: Groups and topics or light queues that may have more to receive after this turn.
        self.freed: set[tuple[str, str]] = set()
        #: Messages that their topic no longer keeps: expired before, gone after a delivery.
        self.expired = self.gone = 0

    def check_may_wait(self) -> None:
        """Call before waiting for the disk or long work. Raises AppendWouldWaitError."""
        if not self.may_wait:
            raise AppendWouldWaitError("it takes long")

    @property
    def is_full(self) -> bool:
        return len(self._entries) + self._weight >= _MOST_ENTRIES

    @property
    def is_empty(self) -> bool:
        return not self._entries

    # --- looking ---------------------------------------------------------------------------

    def shared(self, group: str, *, make: bool = False) -> SharedGroup:
        """The group's settings; with `make`, a missing group is created with default settings.

        Raises UnknownGroupError, GroupKindError.
        """
        row = self.tables.group(group)
        if row is None:
            if not make:
                raise UnknownGroupError(group)
            self.add(GroupMade(group, pack_group(SharedGroup())))
            row = self.tables.group(group)
            assert row is not None, "it was made just now"
        settings = unpack_group(row)
        if settings is None:
            raise GroupKindError(group, is_shared=False)
        return settings

    def begun(self, group: str, topic: str) -> Begin:
        """Where this from-latest group, which must be shared, started on the topic. If it has not
        started, it starts with this turn."""
        begin = begin_of(self.tables, group, topic)
        if begin.begun_at is None:
            self.add(Begun(group, topic))
            begin = Begin(begin.made_at, _NOWHERE)
        return begin

    def place(self, name: str) -> Place:
        """The topic or light queue. Raises UnknownTopicError."""
        known = self._known
        known.look()
        found = known.places.get(name)
        if found is None:
            with self._appends.held():
                known.ends.setdefault(name, self._topics.ends.get(name))
                if self._topics.view.has_ended(name):
                    raise UnknownTopicError(name, "light queue" if is_light(name) else "topic")
            found = known.places[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Place:
        if is_light(name):
            return Place(0, self._topics.queue_count(name))
        row = self._known.get(topic_key(name))
        if row is None:
            raise UnknownTopicError(name)
        config = unpack_topic(name, row)
        by_priority = config.message_type == MessageType.PRIORITY
        return Place(config.created_offset, config.queue_count, by_priority)

    # --- deciding --------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Add an entry to the turn's record."""
        apply_entry(entry, _NOWHERE, self._changes)
        if isinstance(entry, (GroupMade, Begun)):
            self._has_nowhere = True
        elif isinstance(entry, Seen):
            self._weight += len(entry.keys) // _KEYS_AN_ENTRY
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

    def free(self, group: str, topic: str) -> None:
        """Note that a receive of the group may get more there than before."""
        self.freed.add((group, topic))

    @property
    def takes_messages(self) -> bool:
        """Whether another message fits into this turn."""
        return len(self._messages) < _MOST_MESSAGES and self._message_bytes < _MOST_MESSAGE_BYTES

    def next_offset(self, topic: str) -> int:
        """The queue offset that `append` assigns next in queue 0 of the existing topic."""
        found = self._next_offsets.get(topic)
        if found is None:
            self._known.look()
            with self._appends.held():
                found = self._next_offsets[topic] = self._appends.log.next_offset(topic, 0)
        own = [each for each in self._messages if (each.topic, each.queue_id) == (topic, 0)]
        return found + len(own)

    def append(self, entry: Finished | LetterEnded, message: Message) -> None:
        """Append the message and the entry together; the log gets both or neither."""
        self.check_may_wait()
        self.add(entry)
        self._messages.append(message)
        self._message_bytes += len(message.body)

    # --- for the appender, under the append lock -------------------------------------------

    def steps(self, now_ms: int) -> list[Step]:
        """The steps to append. Raises ChangedError."""
        view = self._topics.view
        records = self._topics.next_own(STATE_TOPIC)
        if records != self._known.records:
            self._check_unchanged()
        for topic, offset in self._next_offsets.items():
            if self._appends.log.next_offset(topic, 0) != offset:
                raise ChangedError
        steps: list[Step] = []
        names = sorted({message.topic for message in self._messages})
        missing = [name for name in names if view.tables.topic(name) is None]
        if missing:
            steps.append(Step([TopicsMade(missing, 1, now_ms, KEEP_ALL)]))
        if self._entries:
            changes = None if self._has_nowhere else self._changes
            steps.append(Step(self._entries, self._messages, changes))
        if records == self._known.records and not missing:
            self._records_after = records + len(steps)
        return steps

    def known(self) -> Known | None:
        """State that the next turn can reuse, after this turn is in the log."""
        if self._entries:
            if self._records_after < 0 or self._has_nowhere:
                return None
            self._known.take(self._changes, self._records_after)
        return self._known.next_turn()

    def given_up(self) -> Known | None:
        """State that the next turn can reuse, if this turn is not appended."""
        return self._known.next_turn()

    def topics_were_deleted(self) -> bool:
        """Whether a topic or light queue was deleted since the turn read its rows."""
        return self._topics.ends.changed_since(self._known.ends)

    def _check_unchanged(self) -> None:
        """Raise ChangedError if a row or place that the turn read has changed."""
        view, seen = self._topics.view, self._known.rows
        written = self._changes.written
        keys = [key for key in seen if key[:1] in b"gt" or key in written]
        if view.multi_get(keys) != [seen[key] for key in keys]:
            raise ChangedError
        for name, end in self._known.ends.items():
            if view.has_ended(name) or self._topics.ends.get(name) != end:
                raise ChangedError
