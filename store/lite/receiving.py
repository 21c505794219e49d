"""One receive from lite topics. It looks at ready names in their order, in one turn.

A look is a receive from the name's light queue. Its result decides whether the name is ready again,
and when. A turn may be repeated, or fail; then the names taken for it are put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import LiteGroupError, StoreError, UnknownTopicError
from store.groups import DAMAGE, Delivery, Wish
from store.lite.names import queue_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.consume_queue import ConsumeQueueStore
    from store.groups import SharedGroups, Turn
    from store.lite.subscriptions import Subscriptions
    from store.metadata import LiteGroup
    from store.state import Window

#: Maximum number of messages of a lite topic before the next one has its turn.
MOST_OF_ONE = 8
#: Maximum number of names whose rows are looked up together.
_TOGETHER = 64
#: Minimum number of names looked up together, however few messages are requested.
_FEWEST = 8
#: Maximum number of names that one receive looks at; after that it returns even without a message.
_MOST_LOOKS = 1024


class LiteWish(NamedTuple):
    """The checked arguments of one call."""

    group: str
    client_id: str
    max_messages: int
    max_bytes: int
    invisible_ms: int | None
    skip_damaged: bool
    attempt: int  # a hash of the attempt id; 0 without one


class LiteReceiving:
    """One call; `plan` may run several times."""

    def __init__(
        self,
        wish: LiteWish,
        lite: LiteGroup,
        subscriptions: Subscriptions,
        groups: SharedGroups,
        queues: ConsumeQueueStore,
        now_ms: Callable[[], int],
    ) -> None:
        self._wish = wish
        self._lite = lite
        self._subscriptions = subscriptions
        self._groups = groups
        self._queues = queues
        self._now_ms = now_ms
        self._taken: list[str] = []  # names that are neither settled nor put back
        # Results of looks: whether there is more now, and when there may be more, ms.
        self._looks: dict[str, tuple[bool, int | None]] = {}
        self._deliveries: list[Delivery] = []
        self._stuck: set[str] = set()  # light queues that cannot be read now
        #: Nonces of the leases that were delivered.
        self.nonces: list[int] = []
        #: The error of the first unreadable message that blocks a lite topic.
        self.damage: StoreError | None = None

    def plan(self, turn: Turn) -> list[Delivery]:
        """Plan the receive in `turn`; returns its deliveries. May be called again.

        Raises UnknownGroupError, GroupKindError, LiteGroupError, and what reading messages raises.
        """
        self.put_back()
        self._deliveries, self._looks, self.damage, self.nonces = [], {}, None, []
        self._stuck.clear()
        settings = turn.shared(self._wish.group)
        if settings.lite is None:
            raise LiteGroupError(self._wish.group, None)
        is_wildcard = settings.lite.is_wildcard
        if settings.from_latest and is_wildcard:
            turn.begun(self._wish.group, settings.lite.parent)
        # Otherwise a look begins, as a receive of other groups does while they are paused.
        if settings.is_paused and (is_wildcard or not settings.from_latest):
            return []  # all names stay ready
        if self._wish.attempt and self._redeliver(turn):
            return self._deliveries
        looked = 0
        while looked < _MOST_LOOKS and not self._is_full(turn):
            wanted = min(_TOGETHER, max(_FEWEST, self._left))
            before = len(self._taken)
            self._subscriptions.take(
                self._wish.group, self._wish.client_id, wanted, self._now_ms(), self._taken
            )
            names = self._taken[before:]
            if not names:  # look again at names that have more
                names = self._with_more
                if not names:
                    break
            looked += len(names)
            self._look_at(turn, names)
        return self._deliveries

    def settle(self) -> None:
        """The turn's record is in the log: report the results of the looks."""
        wish = self._wish
        left = [name for name in self._taken if name not in self._looks]
        self._subscriptions.put_back(wish.group, wish.client_id, left)
        self._subscriptions.looked(
            wish.group, wish.client_id, [(name, *found) for name, found in self._looks.items()]
        )
        self._taken = []
        if wish.attempt and self._deliveries:
            parts = dict.fromkeys(each.topic for each in self._deliveries)
            self._subscriptions.attempted(wish.group, wish.client_id, wish.attempt, list(parts))

    def put_back(self) -> None:
        """Nothing of the turn is in the log: put all names back. Repeatable."""
        if self._taken:
            self._subscriptions.put_back(self._wish.group, self._wish.client_id, self._taken)
            self._taken = []

    @property
    def _with_more(self) -> list[str]:
        return [
            name
            for name, (is_more, _) in self._looks.items()
            if is_more and queue_of(self._lite.parent, name) not in self._stuck
        ][:_TOGETHER]

    # --- looks -----------------------------------------------------------------------------

    @property
    def _left(self) -> int:
        return self._wish.max_messages - len(self._deliveries)

    @property
    def _bytes_left(self) -> int:
        return self._wish.max_bytes - sum(len(each.record) for each in self._deliveries)

    def _is_full(self, turn: Turn) -> bool:
        return self._left <= 0 or self._bytes_left <= 0 or turn.is_full or not turn.takes_messages

    def _look_at(self, turn: Turn, names: list[str]) -> None:
        group = self._wish.group
        queues = [queue_of(self._lite.parent, name) for name in names]
        # For all names before the first look: reading rows one by one takes ten times as long.
        windows = turn.tables.windows_of(group, [(queue, 0) for queue in queues])
        ends = self._queues.next_offsets([(queue, 0) for queue in queues])
        for name, queue, window, end in zip(names, queues, windows, ends, strict=True):
            if self._is_full(turn):
                return
            _, before_ms = self._looks.pop(name, (False, None))
            is_more, look_ms = self._look(turn, queue, window, end)
            times = [each for each in (before_ms, look_ms) if each is not None]
            self._looks[name] = is_more, min(times, default=None)  # the latest look comes last

    def _look(self, turn: Turn, queue: str, window: Window, end: int) -> tuple[bool, int | None]:
        """Receive from one light queue. Returns whether there is more now, and when there may be
        more."""
        now_ms = self._now_ms()
        until_ms = min((lease.until_ms for lease in window.leases), default=None)
        is_due = any(lease.is_over(now_ms) for lease in window.leases)
        if not (is_due or window.keys or window.next_offset < end):
            return False, until_ms
        wish = self._wish_of(queue)
        receiving = self._groups.receiving(turn, wish, now_ms)
        try:
            found = receiving.run()
        except UnknownTopicError:
            return False, None  # deleted; its next message makes it ready
        except DAMAGE as error:
            self.damage = self.damage or error
            self._stuck.add(queue)
            return True, None
        except StoreError:
            if not self._deliveries:
                raise
            self._stuck.add(queue)
            return True, None  # the next call tries again, and may get the error
        self._deliveries += found
        self.nonces += receiving.nonces
        if not found:
            self._stuck.add(queue)  # it needs another turn
        look_ms = receiving.next_look_ms
        size = sum(len(each.record) for each in found)
        is_full = len(found) >= wish.max_messages or size >= wish.max_bytes or turn.is_full
        times = [each.until_ms for each in found]
        if look_ms is not None and look_ms > now_ms:
            times.append(look_ms)
        is_more = is_full or (look_ms is not None and look_ms <= now_ms)
        return is_more, min(times, default=None)

    def _wish_of(self, queue: str) -> Wish:
        wish = self._wish
        return Wish(
            wish.group,
            queue,
            min(self._left, MOST_OF_ONE),
            self._bytes_left,
            wish.invisible_ms,
            tag_filter=None,
            makes_group=False,
            skip_damaged=wish.skip_damaged,
            attempt=wish.attempt,
            of_lite=True,
        )

    def _redeliver(self, turn: Turn) -> bool:
        """Add the messages of an earlier receive with this attempt id that are still in flight.
        Returns whether there are any."""
        wish, now_ms = self._wish, self._now_ms()
        queues = self._subscriptions.attempt(wish.group, wish.client_id, wish.attempt)
        for queue, window in zip(
            queues, turn.tables.windows_of(wish.group, [(each, 0) for each in queues]), strict=True
        ):
            if any(
                lease.attempt == wish.attempt and not lease.is_over(now_ms)
                for lease in window.leases
            ):
                try:
                    wish_again = self._wish_of(queue)
                    receiving = self._groups.receiving(turn, wish_again, now_ms)
                    self._deliveries += receiving.run()
                    self.nonces += receiving.nonces
                except (UnknownTopicError, *DAMAGE):
                    continue
        return bool(self._deliveries)
