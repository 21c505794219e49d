"""Joins the decisions of several callers into one record.

Callers that arrive during a turn wait for its end. The first of them then runs the next turn for
all that wait, so no caller waits for a timer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from store.base import Lock
from store.errors import AppendWouldWaitError, StoreError
from store.groups.turn import ChangedError, Known, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.puts import AppendPath
    from store.state import Changes
    from store.topics import Topics

    #: Called with a group and a topic or light queue; "" means all.
    Listener = Callable[[str, str], None]

T = TypeVar("T")


class _Call(Generic[T]):
    """A caller that waits for a turn."""

    __slots__ = ("end_offset", "error", "is_done", "plan", "result")

    def __init__(self, plan: Callable[[Turn], T]) -> None:
        self.plan = plan
        self.result: T
        self.error: StoreError | None = None
        self.end_offset = 0
        self.is_done = False

    def outcome(self) -> tuple[T, int]:
        """The result of a finished call."""
        if self.error is not None:
            raise self.error
        return self.result, self.end_offset


class Turns:
    """Runs turns, one at a time, for all waiting callers.

    Thread: any. Locks: `turn`, before the append lock. Memory: that of the calls in progress.
    """

    def __init__(self, appends: AppendPath, topics: Topics, now_ms: Callable[[], int]) -> None:
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._now_ms = now_ms
        self.turn = Lock()
        # Each caller adds and removes its own call.
        self.waiting: list[_Call[object]] = []
        # Guarded by `turn`: state that the next turn can reuse.
        self._known: Known | None = None
        # Guarded by `turn`: Turn.freed of the last turn, until the listeners were called.
        self._freed: set[tuple[str, str]] = set()
        #: Sums of Turn.expired and Turn.gone. Written under `turn`; may be read without a lock.
        self.expired = self.gone = 0
        # Replaced whole.
        self._listeners: tuple[Listener, ...] = ()
        appends.applier.add_listener(self._applied)

    def run(self, plan: Callable[[Turn], T]) -> tuple[T, int]:
        """Run `plan` in a turn. Returns its result and the log's end, once the turn's record is in
        the log. Raises what `plan` or the append raises."""
        self._appends.check_open()
        call = _Call(plan)
        try:
            self.waiting.append(call)  # type: ignore[arg-type]
            with self.turn:
                while not call.is_done:
                    self._take([each for each in self.waiting if not each.is_done])
        finally:
            if call in self.waiting:  # absent if an interrupt came before the append to the list
                self.waiting.remove(call)  # type: ignore[arg-type]
        return call.outcome()

    def run_at_once(self, plan: Callable[[Turn], T]) -> tuple[T, int]:
        """Like `run`, for an event loop: runs a turn of its own, without blocking.

        Raises AppendWouldWaitError if it would block or take long; nothing is appended then.
        """
        self._appends.check_open()
        if self.turn.locked() or self.waiting or self._appends.log.lock.locked():
            raise AppendWouldWaitError("another turn or append is in progress")
        call = _Call(plan)
        with self.turn:
            self._take([call], may_wait=False)  # type: ignore[list-item]
        return call.outcome()

    def _take(self, waiting: Sequence[_Call[object]], *, may_wait: bool = True) -> None:
        """Run one turn for some of the waiting calls."""
        while True:
            self._tell_freed()
            # Reset first: after an interrupt or a retry, what was known is no longer valid.
            known, self._known = self._known, None
            turn = Turn(self._appends, self._topics, known, may_wait=may_wait)
            decided: list[tuple[_Call[object], object, StoreError | None]] = []
            for call in waiting:
                if decided and (turn.is_full or not turn.takes_messages):
                    break
                try:
                    decided.append((call, call.plan(turn), None))
                except AppendWouldWaitError:
                    self._known = turn.given_up()
                    raise
                except StoreError as error:
                    decided.append((call, None, error))
            if any(error for _, _, error in decided) and turn.topics_were_deleted():
                continue  # the error may be due to the deletion
            failure: StoreError | None = None
            end = self._appends.log.appended_offset
            self._freed = turn.freed  # before the append, because an interrupt may follow it
            try:
                if not turn.is_empty:
                    now_ms = self._now_ms()
                    steps = partial(turn.steps, now_ms)
                    end = self._appends.decide_steps(steps, wait=may_wait)
            except ChangedError:
                continue
            except AppendWouldWaitError:
                raise
            except StoreError as error:
                failure = error
            for call, result, refusal in decided:
                call.result, call.error, call.end_offset = result, refusal or failure, end
                call.is_done = True
            if failure is None:
                self.expired += turn.expired
                self.gone += turn.gone
                self._known = turn.known()
                self._tell_freed()
            return

    # --- who waits for messages ------------------------------------------------------------

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """See SharedGroups.on_change."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return remove

    def _applied(self, changes: Changes, physical_offset: int) -> None:
        """Listener of the applier: reports changed groups, and deleted topics and light queues."""
        del physical_offset
        if self._listeners:
            self._tell({("", name) for name in changes.ended})
            self._tell({(key[1:].decode(), "") for key in changes.written if key[:1] == b"g"})

    def _tell_freed(self) -> None:
        """Call the listeners for `_freed`. Must hold `turn`. Repeatable."""
        if self._freed:
            self._tell(self._freed)
            self._freed = set()

    def _tell(self, changed: set[tuple[str, str]]) -> None:
        for listener in self._listeners:
            for group, topic in changed:
                listener(group, topic)
