"""Delivers due messages: one step, and the thread that repeats it.

A step takes the earliest keys, without a lower time bound. So messages that are late for any reason
are delivered at the next step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock, Wake
from store.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
)
from store.held.records import TIMER_DELIVER, ready
from store.puts import Step
from store.state import (
    TIMER_TOPIC,
    TimerEnd,
    TimersEnded,
    split_timer_key,
    timer_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.format import Prepared
    from store.held.readable import Scattered
    from store.held.records import Ready
    from store.log import StoreTimes
    from store.message import Message
    from store.puts import AppendPath
    from store.state import Changes, Tables, TimerRow
    from store.topics import Topics

logger = logging.getLogger(__name__)

#: Most messages delivered in a second; and the pause after each append while others append too, as
#: a share of the time for which this thread had the interpreter: puts keep their half of it.
MOST_A_SECOND = 25_000
_REST = 1.0
#: Messages of one append, and their bytes: the append lock is held for about 2 ms.
_TOGETHER = 256
_MOST_BYTES = 4 << 20
#: After this many messages the thread releases the interpreter, which puts would wait 5 ms for.
_UNINTERRUPTED = 64
#: Longest wait while any message waits: the store's time follows a jump of the clock in steps.
_LOOK_S = 1.0
#: Delay before looking again for due messages that are not dispatched yet.
_LEAST_S = 0.002
#: Delay after an error.
_AGAIN_S = 1.0
#: Messages that are later than this are logged.
_LATE_MS = 10_000
#: Above every key of a timer, and above every due time.
_LAST = b"j"
_NEVER_MS = (1 << 63) - 1


class _Due(NamedTuple):
    """A timer that is due."""

    key: bytes
    row: TimerRow
    ready: Ready | None  # None: lost


class Firing:
    """Delivers due messages. Thread: "timers"; any for `fire`. Locks: `_step`, held for a step,
    before the append lock; `_lock`, innermost."""

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        tables: Tables,
        times: StoreTimes,
        scattered: Scattered,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tables`: the state at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._tables = tables
        self._times = times
        self._scattered = scattered
        self._monotonic_s = monotonic_s
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
        self._stopped = threading.Event()
        self._wake = Wake()
        self._step = Lock()
        # Guarded by _step.
        self._end = 0  # of the last append here
        #: Whether others had appended between the last two appends here.
        self.others_append = False
        self._lock = Lock()
        # Guarded by _lock. Dispatched rows have keys from `_lowest` on; rows that came since the
        # last step, from `_lowered` on. So a scan does not pass over deleted rows again.
        self._lowest = timer_key(0, 0)
        self._lowered = _LAST
        # Due time of the next message as of the last step; may be read without a lock.
        self._next_ms = 0
        #: Numbers of messages since the store was opened; may be read without a lock.
        self.fired = 0
        self.gone = 0
        self.lost = 0
        self._late_ms = 0
        self._told_late = False
        appends.applier.add_listener(self._applied)

    # --- one step --------------------------------------------------------------------------

    def fire(self) -> int:
        """Deliver some due messages, the earliest first. Returns how many timers ended; 0 if none
        is due, or the due ones cannot be read yet.

        As durable as a put on return. Raises what an append raises.
        """
        with self._step:
            now_ms = self._times.now_ms()
            rows = self._look(now_ms)
            self._tell_how_late(now_ms, rows)
            if not rows:
                return 0
            count, end = self._put(self._read(rows))
            self._appends.wait_acknowledged(end)
            return count

    def _look(self, now_ms: int) -> Sequence[tuple[bytes, TimerRow]]:
        """The earliest due timers at the dispatch point. `_put` checks under the append lock
        whether they still wait."""
        with self._lock:
            start = self._lowest = min(self._lowest, self._lowered)
            self._lowered = _LAST
        rows = self._tables.list_timers(start, now_ms + 1, _TOGETHER)
        first = rows[0][0] if rows else None
        if not rows:
            following = self._tables.list_timers(start, _NEVER_MS, 1)
            first = following[0][0] if following else None
        with self._lock:
            self._lowest = max(self._lowest, _LAST if first is None else first)
            lowest = min(self._lowest, self._lowered)
            self._next_ms = _NEVER_MS if lowest == _LAST else split_timer_key(lowest)[0]
        return rows

    def _applied(self, changes: Changes, physical_offset: int) -> None:
        """Listener of the applier: notes new rows, and ends `_wait` if one is due earlier."""
        del physical_offset
        came = [key for key, row in changes.written.items() if row is not None and key[:1] == b"i"]
        if not came:
            return
        lowest = min(came)
        with self._lock:
            self._lowered = min(self._lowered, lowest)
            is_next = split_timer_key(lowest)[0] < self._next_ms
        if is_next:
            self._wake.set()

    def _read(self, rows: Sequence[tuple[bytes, TimerRow]]) -> list[_Due]:
        records, lost = self._scattered.read(TIMER_TOPIC, [row.place for _, row in rows])
        due: list[_Due] = []
        size = 0
        for at, (key, row) in enumerate(rows):
            if at % _UNINTERRUPTED == 0:
                time.sleep(0)
            record = records.get(row.place)
            reason = lost.get(row.place)
            what: Ready | None = None
            if record is not None:
                size += len(record)
                if size > _MOST_BYTES and due:
                    break
                try:
                    what = ready(record, (TIMER_DELIVER,))
                except (InvalidArgumentError, CorruptRecordError) as error:
                    reason = str(error)
            if what is None and reason is None:
                continue  # not dispatched yet, or its queue is being rebuilt
            if reason is not None:
                logger.error("the delayed message at place %d is lost: %s", row.place, reason)
            due.append(_Due(key, row, what))
        return due

    def _put(self, due: Sequence[_Due]) -> tuple[int, int]:
        """Deliver or end the timers in one append. Returns how many ended, and the log's end."""
        keys = [each.key for each in due]
        ended: list[TimersEnded] = []

        def steps() -> list[Step]:
            self.others_append = self._appends.log.appended_offset != self._end
            ended.clear()
            tables = self._topics.view.tables
            rows = tables.timers(keys)
            names = {each.ready.message.topic for each in due if each.ready is not None}
            found = dict(zip(names, tables.topics(list(names)), strict=True))
            messages: list[Message] = []
            details: list[Prepared] = []
            fired: list[bytes] = []
            gone: list[bytes] = []
            lost: list[bytes] = []
            for (key, row, what), now in zip(due, rows, strict=True):
                if now != row:
                    continue  # recalled or moved
                if what is None:
                    lost.append(key)
                    continue
                message, prepared = what
                topic = found[message.topic]
                if topic is None or topic.created_offset != row.begins:
                    gone.append(key)
                    continue
                fired.append(key)
                if message.queue_id >= topic.queue_count:
                    message = message._replace(queue_id=message.queue_id % topic.queue_count)
                messages.append(message)
                details.append(prepared)
            # Those that are delivered in the order of their messages: a trace counts on it.
            ends = (fired, TimerEnd.FIRED), (gone, TimerEnd.GONE), (lost, TimerEnd.LOST)
            ended.extend(TimersEnded(*each) for each in ends if each[0])
            return [Step(list(ended), messages, prepared=details)] if ended else []

        if due:
            self._end = end = self._appends.decide_steps(steps)
        else:
            end = self._appends.log.appended_offset
        count = Counter({how: len(of) for of, how in ended})
        self.fired += count[TimerEnd.FIRED]
        self.gone += count[TimerEnd.GONE]
        self.lost += count[TimerEnd.LOST]
        return count.total(), end

    def _tell_how_late(self, now_ms: int, rows: Sequence[tuple[bytes, TimerRow]]) -> None:
        late_ms = now_ms - split_timer_key(rows[0][0])[0] if rows else 0
        self._late_ms = late_ms
        if late_ms > _LATE_MS and not self._told_late:
            self._told_late = True
            logger.warning(
                "delayed messages are %d s late; %d wait. They are put now, the earliest first, "
                "%d a second at most",
                *(late_ms // 1000, self._tables.count_timers(), MOST_A_SECOND),
            )
        elif self._told_late and late_ms < _LATE_MS // 2:
            self._told_late = False
            logger.info("delayed messages are on time again")

    # --- the thread ------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step. Repeatable."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        told = ""
        while not self._stopped.is_set():
            begin_s, begin_cpu_s = self._monotonic_s(), time.thread_time()
            try:
                count = self.fire()
            except (StoreClosedError, StoreFailedError):
                return
            except Exception as error:
                if told != (told := f"{type(error).__name__}: {error}"):
                    if isinstance(error, StoreError):
                        logger.warning("delayed messages wait: %s", error)
                    else:
                        logger.exception("delayed messages wait; delivery is retried")
                self._stopped.wait(_AGAIN_S)
                continue
            told = ""
            if count:
                took_s = time.thread_time() - begin_cpu_s
                rest_s = _REST * took_s if self.others_append else 0.0
                spare_s = begin_s + count / MOST_A_SECOND - self._monotonic_s()
                self._stopped.wait(max(rest_s, spare_s))
            else:
                self._wait()

    def _wait(self) -> None:
        """Wait until the next timer may be due."""
        if self._next_ms == _NEVER_MS:
            self._wake.wait()
            return
        ahead_s = (self._next_ms - self._times.now_ms()) / 1000
        self._wake.wait(min(max(ahead_s, _LEAST_S), _LOOK_S))

    def statistics(self) -> dict[str, float]:
        return {
            "store.timers_fired": self.fired,
            "store.timers_gone": self.gone,
            "store.timers_lost": self.lost,
            "store.timers_late_s": self._late_ms / 1000,
        }
