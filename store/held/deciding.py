"""Decides transactions under the append lock, from the state at the log's end. So each half has
exactly one outcome, despite concurrent decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    StoreBusyError,
    StoreError,
    TooManyTransactionsError,
    TransactionEndedError,
    UnknownTransactionError,
)
from store.held.transaction_ids import pack_transaction_id
from store.metadata import KEEP_ALL
from store.puts import Step
from store.state import (
    HALVES_TOPIC,
    Changes,
    HalfBegun,
    HalfEnd,
    HalfEnded,
    HalfTables,
    LookedRows,
    Tables,
    TopicsMade,
    apply_entry,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.config import StoreConfig
    from store.held.records import Ready
    from store.held.transaction_ids import Named
    from store.message import Message
    from store.state import Entry, OpenHalf
    from store.topics import Topics

_SAID = {
    HalfEnd.COMMITTED: ("committed", "was committed"),
    HalfEnd.ROLLED_BACK: ("rolled back", "was rolled back"),
    HalfEnd.TOPIC_GONE: (
        "topic gone",
        "ended when its topic was deleted: its message was not delivered",
    ),
    HalfEnd.HANDED_BACK: ("handed back", "was handed back to RocketMQ, whose broker decides it"),
    HalfEnd.RECORD_GONE: (
        "record gone",
        "ended when the disk had no room to keep its message: it was not delivered",
    ),
}


class Begin(NamedTuple):
    """A message that begins a transaction."""

    message: Message
    group: str  # of producers; one is asked if no decision arrives
    immunity_ms: int = 0  # time to the first check, at least FIRST_CHECK_MS


class Decide(NamedTuple):
    """A decision of a transaction."""

    transaction_id: str
    commit: bool  # otherwise it is rolled back


class Found(NamedTuple):
    """A half that is to be committed, as read."""

    place: int
    #: The message to put; the error if it is unreadable; None if its record left the log.
    message: Ready | StoreError | None


class ReadAgainError(Exception):
    """A half was moved since it was read, or was not read."""


class Beginning(NamedTuple):
    """A valid call that begins a transaction."""

    message: Message
    half: Ready  # the half's record
    group: str
    nonce: int
    first_check_ms: int  # relative to now


class Ending(NamedTuple):
    """A valid call that decides a transaction."""

    call: Decide
    named: Named


class Turn:
    """One attempt to decide some calls, under the append lock."""

    def __init__(
        self,
        topics: Topics,
        config: StoreConfig,
        calls: Sequence[Beginning | Ending | StoreError],
        messages: Mapping[int, Found],
        now_ms: int,
        *,
        reads_again: bool,
    ) -> None:
        """`messages`: by half, those that were read. `reads_again`: a missing one raises
        ReadAgainError; otherwise only its call is rejected."""
        self._topics = topics
        self._config = config
        self._calls = calls
        self._messages = messages
        self._reads_again = reads_again
        self.answers: list[str | StoreError] = []
        self._now_ms = now_ms
        #: How each half ends in this attempt.
        self.ended: list[HalfEnd] = []
        self._made: dict[str, TopicsMade] = {}
        self._entries: list[Entry] = []
        self._appended: list[Ready] = []

    def steps(self, log_end: int) -> Sequence[Step]:
        """The steps to append at that end of the log. Raises ReadAgainError."""
        # May be called again, if the log's next segment was not ready.
        self.answers, self.ended = [], []
        self._made = {}
        self._looked_for: set[tuple[str, int]] = set()
        self._entries, self._appended = [], []
        view = self._topics.view
        self._log_end = log_end
        rows = LookedRows(view)
        self._changes = Changes(rows)
        self._tables = HalfTables(self._changes)
        self._topic_tables = Tables(rows)
        self._next_half = self._topics.next_own(HALVES_TOPIC)
        for call in self._calls:
            try:
                if isinstance(call, Beginning):
                    self.answers.append(self._begin(call))
                elif isinstance(call, Ending):
                    self.answers.append(self._end(call))
                else:
                    self.answers.append(call)
            except StoreError as error:
                self.answers.append(error)
        # One step: this may be called again, and steps that were appended before would be repeated.
        messages = [each.message for each in self._appended]
        prepared = [each.prepared for each in self._appended]
        made = list(self._made.values())
        if self._next_half > 0 and view.tables.topic(HALVES_TOPIC) is None:
            made.append(TopicsMade([HALVES_TOPIC], 1, self._now_ms, KEEP_ALL))
        # Known if no other record comes before it.
        changes = None if made else self._changes
        own = Step(self._entries, messages, changes, prepared, None if changes is None else rows)
        steps = [Step(made)] if made else []
        return [*steps, own] if self._entries else steps

    @property
    def begun(self) -> int:
        """Number of transactions that this attempt begins."""
        pairs = zip(self._calls, self.answers, strict=True)
        return sum(isinstance(one, Beginning) and isinstance(two, str) for one, two in pairs)

    def _begin(self, call: Beginning) -> str:
        topic = call.message.topic
        for group, setting in (
            (call.group, "max_open_transactions_of_group"),
            ("", "max_open_transactions"),
        ):
            count, most = self._tables.count(group).open, getattr(self._config, setting)
            if count >= most:
                raise TooManyTransactionsError(count, group, f"store.{setting}")
        queue = topic, call.message.queue_id
        if queue not in self._looked_for:
            for made in self._topics.needed([queue]):
                self._made[topic] = made
            self._looked_for.add(queue)
        half = self._next_half
        self._next_half += 1
        check_ms = self._now_ms + call.first_check_ms
        self._add(HalfBegun(call.group, topic, half, call.nonce, self._now_ms, check_ms), call.half)
        return pack_transaction_id(half, call.nonce, topic)

    def _end(self, ending: Ending) -> str:
        (text, commit), (half, nonce, topic) = ending
        row = self._tables.open(half)
        if row is None:
            return self._again(ending)
        if (row.nonce, row.topic) != (nonce, topic):
            raise UnknownTransactionError(text)
        if not commit:
            self._finish(half, HalfEnd.ROLLED_BACK)
            return text
        if not is_live(row, self._topic_tables):
            self._finish(half, HalfEnd.TOPIC_GONE)
            raise _ended(text, HalfEnd.TOPIC_GONE)
        found = self._messages.get(half)
        if found is None or found.place != row.place:
            if self._reads_again:
                raise ReadAgainError
            raise StoreBusyError("the queue of open transactions is being rebuilt")
        message = found.message
        if isinstance(message, StoreError):
            raise message
        if message is None:
            self._finish(half, HalfEnd.RECORD_GONE)
            raise _ended(text, HalfEnd.RECORD_GONE)
        self._finish(half, HalfEnd.COMMITTED, message)
        return text

    def _again(self, ending: Ending) -> str:
        """Handle a transaction that is not open: the same decision may be repeated."""
        (text, commit), (half, nonce, _) = ending
        before = self._tables.ended(half)
        if before is None or before.nonce != nonce:
            raise UnknownTransactionError(text)
        # Every other end counts as rolled back: the message will not be delivered.
        if commit is not (before.how is HalfEnd.COMMITTED):
            raise _ended(text, before.how)
        return text

    def _finish(self, half: int, how: HalfEnd, message: Ready | None = None) -> None:
        self.ended.append(how)
        self._add(HalfEnded(half, self._now_ms, how), message)

    def _add(self, entry: Entry, message: Ready | None) -> None:
        apply_entry(entry, self._log_end, self._changes)
        self._entries.append(entry)
        if message is not None:
            self._appended.append(message)


def _ended(text: str, how: HalfEnd) -> TransactionEndedError:
    return TransactionEndedError(text, *_SAID[how])


def id_of(row: OpenHalf) -> str:
    return pack_transaction_id(row.half, row.nonce, row.topic)


def is_live(row: OpenHalf, tables: Tables) -> bool:
    """Whether the half's topic was not deleted since the half was put. `tables`: at the log's
    end."""
    topic = tables.topic(row.topic)
    return topic is not None and topic.created_offset <= row.began_at
