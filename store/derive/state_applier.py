"""Applies state records during dispatch, before any record behind them is dispatched."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.consume_queue import PlainRequests
from store.derive.endings import DeadOrEnded, endings
from store.format import unpack_record
from store.state import STATE_TOPIC, TopicEnded, changes_of, unpack_entries
from store.topics import Admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.consume_queue import ConsumeQueueStore, DispatchRequest
    from store.log import CommitLog
    from store.state import Changes, Entry, StateStore

    #: Takes what a state record changed, and its physical offset.
    Listener = Callable[[Changes, int], None]

#: Number of recently appended records that need not be read back.
_MOST_RECENT = 256


class StateApplier:
    """Applies the entries of state records to the rows, in log order.

    Thread: that of dispatch; `appended` under the append lock.
    """

    def __init__(
        self,
        log: CommitLog,
        state: StateStore,
        queues: ConsumeQueueStore,
        base_offset: int = 0,
    ) -> None:
        """`base_offset`: see StoreIdentity."""
        # Constant after construction.
        self._log = log
        self._state = state
        self._queues = queues
        self._base_offset = base_offset
        # Replaced whole.
        self._listeners: tuple[Listener, ...] = ()
        # Physical offset of a record, and its changes.
        self._recent: dict[int, Changes] = {}
        # The record that is being applied, and its changes. After a stall or an interrupt all of it
        # is applied again, even if its rows are there already.
        self._begun: tuple[int, Changes] | None = None

    def appended(self, physical_offset: int, changes: Changes) -> None:
        """Register the changes of the record that was appended there, so that dispatch need not
        read it. All records before it must be applied."""
        point = self._state.point
        if physical_offset < point:
            return  # dispatch was faster
        if len(self._recent) >= _MOST_RECENT:
            for at in list(self._recent):  # the records that were dispatched meanwhile
                if at < point:
                    self._recent.pop(at, None)
        if len(self._recent) < _MOST_RECENT:
            self._recent[physical_offset] = changes

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the changes of a record and its physical offset, once they are
        applied and deleted names are removed from the queues. Runs on the dispatching thread and
        must be short. Returns a function that removes it."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return remove

    def pieces(
        self, requests: Sequence[DispatchRequest], end_offset: int
    ) -> Iterator[tuple[Sequence[DispatchRequest], int]]:
        """Yield the requests, split before each state record, each slice with its end. The entries
        of a state record are applied before the slice that begins with it is yielded.

        Raises StoreBusyError, CorruptRecordError, CorruptStateError.
        """
        if not isinstance(requests, PlainRequests):
            first = 0
            for at, request in enumerate(requests):
                if request.topic != STATE_TOPIC or request.physical_offset < self._base_offset:
                    continue
                ended = self._ended_before(request)
                if ended is not None and not ended:
                    continue
                if at > first:
                    yield requests[first:at], request.physical_offset
                    first = at
                if ended is None:
                    self._apply(request)
                else:
                    for name in ended:
                        self._queues.delete_topic(name, request.physical_offset)
            if first:
                requests = requests[first:]
        yield requests, end_offset

    def _ended_before(self, request: DispatchRequest) -> list[str] | None:
        """The names deleted by a record that the state already has, if the queues are behind it;
        None if the record has to be applied."""
        at = request.physical_offset
        is_begun = self._begun is not None and self._begun[0] == at
        if is_begun or at + request.record_size > self._state.point:
            return None
        return [each.topic for each in self._entries(request) if isinstance(each, TopicEnded)]

    def _entries(self, request: DispatchRequest) -> Sequence[Entry]:
        record = self._log.read(request.physical_offset, request.record_size)
        return unpack_entries(unpack_record(record, verify=False).body)

    def _apply(self, request: DispatchRequest) -> None:
        at = request.physical_offset
        end = at + request.record_size
        if self._begun is None or self._begun[0] != at:
            changes = self._recent.get(at)
            if changes is None:
                changes = changes_of(self._entries(request), at, self._state)
            self._begun = at, changes
        changes = self._begun[1]
        if end > self._state.point:
            self._state.apply(changes, end)
        for name in changes.ended:
            self._queues.delete_topic(name, at)
        for listener in self._listeners:
            listener(changes, at)
        self._recent.pop(at, None)
        self._begun = None

    # --- for who goes over the log -----------------------------------------------------------

    @contextmanager
    def admitting(self, admission: Admission) -> Iterator[Admission]:
        """A context with an Admission that also knows the light queues deleted by the log up to
        now, and by later records.

        Memory: as `endings`. Raises DamagedQueueError, CorruptStateError.
        """
        topics, dead = admission
        ended: dict[str, int] = {}

        def note(changes: Changes, physical_offset: int) -> None:
            ended.update(dict.fromkeys(changes.ended, physical_offset))

        remove = self.add_listener(note)
        try:
            for name, at in self.endings().items():
                ended[name] = max(at, ended.get(name, 0))
            yield Admission(topics, DeadOrEnded(dead, ended))
        finally:
            remove()

    def endings(self) -> dict[str, int]:
        """See endings.py."""
        return endings(self._log, self._queues, self._base_offset)

    def into(self, queues: ConsumeQueueStore) -> StateApplier:
        """An applier for queues that are behind the state: deletions are applied there as well."""
        return StateApplier(self._log, self._state, queues, self._base_offset)
