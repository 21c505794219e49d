"""The calls of lite topics."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from store.base import check_time_within, check_within
from store.errors import InvalidArgumentError, LiteGroupError, UnknownTopicError
from store.format import check_topic
from store.groups import (
    MOST_ATTEMPT_ID,
    MOST_INVISIBLE_MS,
    MOST_RECEIVED,
    AtOffset,
    Received,
    hash_of,
    offset_of,
)
from store.light_queue import is_light
from store.lite.clients import Action, Pass, Synced
from store.lite.expiry import LiteExpiry
from store.lite.listing import LiteListing
from store.lite.names import check_lite_topics, no_parent, parts_of, prefix_of, queue_of
from store.lite.receiving import LiteReceiving, LiteWish
from store.lite.subscriptions import CLIENT_TIMEOUT_MS, Subscriptions
from store.state import FRESH, LiteTopicsOf, Reset, group_made_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups import SharedGroups, Turn, Where
    from store.log import StoreTimes
    from store.metadata import LiteGroup, SharedGroup
    from store.puts import AppendPath, TopicChanges
    from store.reads import ReadPath
    from store.state import Entry, Tables
    from store.topics import Topics

#: Longest expiry of lite topics, ms: 10 years.
MOST_EXPIRY_MS = 10 * 365 * 24 * 3_600_000
#: Shortest expiry, ms: a minute.
LEAST_EXPIRY_MS = 60_000
#: Maximum number of lite topics in one call.
MOST_SYNCED = 10_000
#: Maximum number of characters in a client's id.
MOST_CLIENT_ID = 255
#: Number of queues that one turn resets.
_RESET_TOGETHER = 500
#: Number of names that a pass looks up together, and most look-ups of one call.
_PASS_TOGETHER = 1000
_PASSES_A_CALL = 8


class FromEnd(NamedTuple):
    """Start with the last `messages` messages of the queue."""

    messages: int


class LiteTopics:
    """Lite topics: light queues of a parent topic, by the million. See store/docs/lite.md.

    Thread: any. Memory: that of `Subscriptions`; nothing for each lite topic.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        tables: Tables,
        times: StoreTimes,
        reads: ReadPath,
        changes: TopicChanges,
        groups: SharedGroups,
    ) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._queues = queues
        self._tables = tables
        self._now_ms = times.steady_ms
        self._opened_ms = self._now_ms()
        self._reads = reads
        self._changes = changes
        self._groups = groups
        self.subscriptions = Subscriptions()
        self.expiry = LiteExpiry(tables, queues, appends.log, times, self.subscriptions, changes)
        self.listing = LiteListing(topics, tables, queues, times, self.subscriptions, reads)
        groups.on_change(self._changed)

    # --- parents ---------------------------------------------------------------------------

    def make(self, topic: str, expiry_ms: int = 0, queue_count: int = 0) -> None:
        """Create a parent of lite topics, or turn an existing topic into one. Durable on return.

        A lite topic without a message for `expiry_ms` is deleted if no client is subscribed to it;
        0: never. An existing parent gets the new time. Raises InvalidArgumentError,
        TopicExistsError if the topic has another number of queues, and what an append raises.
        """
        check_topic(topic)
        if expiry_ms:
            check_time_within("expiry_ms", expiry_ms, LEAST_EXPIRY_MS, MOST_EXPIRY_MS)

        if self._tables.lite_expiry_ms(topic) is None:
            self.expiry.end_former(topic)

        def decide() -> list[Entry]:
            tables = self._topics.view.tables
            found = tables.topic(topic)
            made: list[Entry] = []
            if found is None or queue_count:
                made += self._topics.create([(topic, queue_count)])
            if tables.lite_expiry_ms(topic) != expiry_ms:
                made.append(LiteTopicsOf(topic, expiry_ms))
            return made

        self._appends.wait_durable(self._appends.decide(decide))

    def is_parent(self, topic: str) -> bool:
        """Whether the topic is a parent of lite topics. Raises UnknownTopicError,
        InvalidArgumentError."""
        self._topics.get(topic)
        return self._tables.lite_expiry_ms(topic) is not None

    def expiry_ms(self, topic: str) -> int:
        """How long a lite topic of this parent may be idle before it is deleted, ms; 0: forever.

        Raises UnknownTopicError, InvalidArgumentError if it is not a parent of lite topics.
        """
        if not self.is_parent(topic):
            raise no_parent(topic)
        return self._tables.lite_expiry_ms(topic) or 0

    def delete(self, topic: str, names: Sequence[str]) -> int:
        """Delete these lite topics, with the positions of groups in them. Subscriptions stay.

        Returns how many existed. Durable on return. Raises InvalidArgumentError, and what an append
        raises.
        """
        check_topic(topic)
        check_lite_topics(names, "lite_topics")
        check_within("lite_topics", len(names), 1, MOST_SYNCED)
        return self._changes.delete_light([queue_of(topic, name) for name in dict.fromkeys(names)])

    # --- subscriptions ---------------------------------------------------------------------

    def sync(
        self,
        group: str,
        client_id: str,
        action: Action,
        names: Sequence[str] = (),
        version: int = 0,
        start: Where | FromEnd | None = None,
    ) -> Synced:
        """Change the client's subscriptions; see Action. They are only in memory, and end when the
        client has not called for three minutes.

        `start`: in lite topics that are new to the client, the group continues there, and its
        messages in flight are ended. A call with a lower `version` than an earlier one is late, and
        changes nothing. Raises InvalidArgumentError, UnknownGroupError, GroupKindError,
        LiteGroupError, UnknownTopicError for the parent, LiteQuotaError: then nothing has changed.
        If it raises what an append raises, the client is subscribed.
        """
        lite = self._group(group).lite
        check_within("client_id", len(client_id), 1, MOST_CLIENT_ID)
        if lite is None:
            raise LiteGroupError(group, None)
        check_within("lite_topics", len(names), 0, max(MOST_SYNCED, lite.client_quota))
        check_lite_topics(names, "lite_topics")
        if action is not Action.LEAVE:
            self.expiry_ms(lite.parent)
        if lite.is_wildcard and names:
            raise InvalidArgumentError(
                "lite_topics", f"group {group!r} receives from all lite topics of {lite.parent!r}"
            )
        if isinstance(start, FromEnd):
            check_within("start.from_end", start.messages, 0, 1 << 40)
        new: list[str] = []
        if start is not None and action in (Action.ADD, Action.COMPLETE):
            new = self.subscriptions.is_new(group, client_id, names)
        done = self.subscriptions.sync(
            group, lite, client_id, action, names, version, self._now_ms()
        )
        added = set(done.added)
        self._begin(group, lite, [name for name in new if name in added], start)
        return done

    def _group(self, group: str) -> SharedGroup:
        settings = self._groups.describe(group)
        if settings is None or settings.lite is None:
            raise LiteGroupError(group, None)
        return settings

    def _begin(
        self, group: str, lite: LiteGroup, names: Sequence[str], start: Where | FromEnd | None
    ) -> None:
        """Set the group's position in these lite topics. A lite topic without a message begins at
        0."""
        if start is None or not names:
            return

        def move(some: Sequence[str], turn: Turn) -> None:
            turn.shared(group)  # it may have been deleted meanwhile
            for name in some:
                queue = queue_of(lite.parent, name)
                with suppress(UnknownTopicError):
                    turn.place(queue)
                    turn.add(Reset(group, queue, 0, self._start_of(queue, start)))
                    turn.free(group, queue)

        end = 0
        for first in range(0, len(names), _RESET_TOGETHER):
            some = names[first : first + _RESET_TOGETHER]
            _, end = self._groups.turns.run(partial(move, some))
        self._appends.wait_acknowledged(end)

    def _start_of(self, queue: str, start: Where | FromEnd) -> int:
        ((low, high),) = self._reads.bounds([(queue, 0)])
        match start:
            case FromEnd(messages):
                return max(low, high - messages)
            case AtOffset(offset):
                return min(max(low, offset), high)
            case _:
                return offset_of(self._reads, queue, 0, start)

    def is_wildcard(self, group: str) -> bool:
        """Whether the clients of the group share all lite topics. Raises UnknownGroupError,
        LiteGroupError."""
        lite = self._group(group).lite
        return lite is not None and lite.is_wildcard

    # --- messages --------------------------------------------------------------------------

    def receive(
        self,
        group: str,
        client_id: str,
        *,
        parent: str | None = None,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        invisible_ms: int | None = None,
        attempt_id: str = "",
        skip_damaged: bool = False,
    ) -> Received:
        """Receive messages of lite topics that the client is subscribed to, or of all in a wildcard
        group: up to eight of a lite topic before the next one has its turn. They are acknowledged,
        renewed and given back like other messages of the group. `parent`: if given, must be the
        group's parent.

        Does not wait for messages: see `Subscriptions.add_listener`. Raises InvalidArgumentError,
        UnknownGroupError, GroupKindError, LiteGroupError, UnknownLiteClientError if the client must
        synchronize first (for example after a restart of the server), what an append raises, and
        CorruptMessageError or DamagedQueueError if there is nothing else to deliver.
        """
        check_within("max_messages", max_messages, 1, MOST_RECEIVED)
        check_within("max_bytes", max_bytes, 1, 1 << 40)
        check_within("attempt_id", len(attempt_id), 0, MOST_ATTEMPT_ID)
        check_within("client_id", len(client_id), 1, MOST_CLIENT_ID)
        if invisible_ms is not None:
            check_time_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
        settings = self._group(group)
        lite = settings.lite
        assert lite is not None, "it was looked up so"
        if parent not in (None, lite.parent):
            raise InvalidArgumentError(
                "topic", f"group {group!r} receives from lite topics of {lite.parent!r}"
            )
        now_ms = self._now_ms()
        lost = self.subscriptions.receives(group, lite, client_id, now_ms)
        if lite.is_wildcard and not settings.is_paused:
            self._pass(group, lite, self._begins_behind(group, settings))
        attempt = hash_of(attempt_id)
        wish = LiteWish(
            group, client_id, max_messages, max_bytes, invisible_ms, skip_damaged, attempt
        )
        receiving = LiteReceiving(
            wish, lite, self.subscriptions, self._groups, self._queues, self._now_ms
        )
        try:
            deliveries, _ = self._groups.turns.run(receiving.plan)
            receiving.settle()
        finally:
            receiving.put_back()
        if receiving.damage is not None and not deliveries:
            raise receiving.damage
        if settings.is_paused and not deliveries:  # otherwise it was resumed meanwhile
            return Received([], None, lost)
        look_ms = self.subscriptions.next_look_ms(group, client_id, self._now_ms())
        return Received(deliveries, look_ms, lost, receiving.nonces)

    def _begins_behind(self, group: str, settings: SharedGroup) -> int:
        """The physical offset at which a from-latest wildcard group begins; 0 for any other group.
        Lite topics without a window have no messages for the group if their last one is before it.
        """
        row = self._topics.view.tables.group(group) if settings.from_latest else None
        return 0 if row is None else group_made_at(row)

    def _pass(self, group: str, lite: LiteGroup, begins_behind: int) -> None:
        """Continue the pass, which makes names ready whose messages are older than the wildcard
        group. Names with new messages become ready without it.

        Looks up the rows of many names together: ten million names take minutes, and receives
        continue meanwhile.
        """
        prefix = prefix_of(lite.parent)
        who = Pass()
        try:
            for _ in range(_PASSES_A_CALL):
                names: list[str] = []
                after = self.subscriptions.begin_pass(group, who)
                if after is None:
                    return
                reached: str | None = after
                try:
                    queues = self._queues.list_names(prefix, after or None, _PASS_TOGETHER)
                    places = [(queue, 0) for queue in queues]
                    windows = self._tables.windows_of(group, places)
                    lasts = self._queues.last_of(places)
                    for queue, window, last in zip(queues, windows, lasts, strict=True):
                        if window is FRESH:
                            is_done = last is None or last[0] < begins_behind
                        else:
                            is_behind = last is not None and window.next_offset <= last[1]
                            is_done = not (window.leases or window.keys or is_behind)
                        if not is_done and (parts := parts_of(queue)) is not None:
                            names.append(parts[1])
                    reached = queues[-1] if len(queues) == _PASS_TOGETHER else None
                finally:
                    self.subscriptions.end_pass(group, who, reached, names)
        finally:
            who.is_over = True

    # --- what happens ----------------------------------------------------------------------

    def _changed(self, group: str, topic: str) -> None:
        """The listener of groups: messages became available, or a group or queue was deleted."""
        if not group:
            if not is_light(topic):
                self.expiry.parent_may_have_ended()
            return
        if not topic and self._tables.group(group) is None:
            self.subscriptions.forget(group)
        else:
            self.subscriptions.freed(group, topic)

    def look(self) -> None:
        """The job: remove clients that no longer call, and delete idle lite topics."""
        now_ms = self._now_ms()
        self.subscriptions.expire(now_ms)
        # Earlier, clients may not have subscribed again since the start.
        self.expiry.look(ends_idle=now_ms - self._opened_ms >= CLIENT_TIMEOUT_MS)

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        return {
            "store.lite_subscriptions": self.subscriptions.subscribed,
            "store.lite_clients": self.subscriptions.clients,
            "store.lite_passes": self.subscriptions.passes,
            "store.lite_topics_expired": self.expiry.expired,
        }
