"""The append-only log of records. Everything else in a store can be rebuilt from it.

Append: under one lock, records become readable bytes of the mapped segment and get their queue
offsets. They are durable once `flush` has passed them. A signal handler that raises (Ctrl-C) may
end an append between any two steps. So an append notes what it is about to do, and the next caller
undoes or completes it: `settle`. Reads are in `readable_log.py`.
"""

from __future__ import annotations

import logging
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import (
    AppendWouldWaitError,
    InvalidArgumentError,
    StoreClosedError,
)
from store.format import (
    PLAIN,
    PlainBatch,
    pack_blank,
)
from store.log.queue_offsets import TakenLight
from store.log.readable_log import ReadableLog
from store.log.store_times import CARRY_MS, StoreTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.base import Clock
    from store.consume_queue import DispatchRequest
    from store.format import BatchMark, Prepared
    from store.log.batch_encoder import BatchEncoder, Encoded
    from store.log.queue_offsets import QueueOffsets
    from store.log.segment import Segment
    from store.log.segment_set import SegmentSet
    from store.message import Message

logger = logging.getLogger(__name__)

_QUEUE = itemgetter(0, 2)  # of a message: topic and queue id
#: Appends over several segments that are remembered until a flush has passed them.
_BEGINS_KEPT = 64


#: An append that must not wait looks up this many queues at most: 10 to 20 us each.
_FEW_QUEUES = 256

#: All that an append copies, each with its physical offset. From here on it is finished, whatever
#: ends it. The runs tell whose it is.
_Ready = tuple["list[Encoded]", list[tuple[int, bytes]], "LogAppend"]


class LogAppend(NamedTuple):
    """The records of one append, at `start_offset..end_offset`, with blanks between segments."""

    requests: Sequence[DispatchRequest]
    start_offset: int
    end_offset: int
    store_time_ms: int
    row_count: int  # rows to derive: one for each message, each light queue it is in, and each key


class CommitLog(ReadableLog):
    """Segments, and the append path.

    Thread: `append` on any thread, one at a time (`lock`); reads on any thread; `flush` only on the
    flush thread. Locks: `lock`, outermost of the store; see docs/threads.md.
    """

    def __init__(
        self,
        segments: SegmentSet,
        hot_queues: QueueOffsets,
        encoder: BatchEncoder,
        clock: Clock,
        *,
        hot_read_bytes: int,
        last_store_time_ms: int = 0,
        times: StoreTimes | None = None,
    ) -> None:
        super().__init__(segments, hot_read_bytes)
        # Constant after construction.
        self.lock = Lock()
        #: Under the lock.
        self.hot_queues = hot_queues
        self._encoder = encoder
        self._clock = clock
        self._times = times or StoreTimes(clock)
        # Guarded by lock; read freely.
        self.last_store_time_ms = last_store_time_ms
        # Both in one value, for the flush thread, which holds no lock.
        self._published = (self.appended_offset, last_store_time_ms)
        #: A physical end below which all is durable, and the store time of the last record before
        #: it, ms: of the last flush that took all there was. Replaced whole by the flush thread.
        self.flushed_mark = self._published
        # For an append in progress or interrupted: the batch that took queue offsets, and, once the
        # append is certain, the bytes to copy. The second only counts if it belongs to the first.
        self._begun: list[Encoded] | None = None
        self._ready: _Ready | None = None
        # For each segment that begins within an append, where that append begins; the latest ones.
        # Replaced whole, read by the flush thread.
        self._begins: dict[int, int] = {}

    # --- append ----------------------------------------------------------------------------

    def append(
        self,
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        publish: Callable[[LogAppend], None],
        *,
        separate: bool = False,
        wait: bool = True,
        mark: BatchMark | None = None,
    ) -> LogAppend:
        """Append all messages or none. The caller must hold `lock`.

        The messages are one batch, of which a crash leaves all or nothing. If they are `separate`,
        it may leave the first ones. `publish` runs under the lock, in log order, once the bytes are
        readable. If an interrupt ends the append, all or none of them are in the log after
        `settle`, which this tries to run itself; `publish` may not have run then. Raises
        DiskFullError, SegmentNotReadyError, InvalidArgumentError, StoreClosedError and what loading
        a queue raises. Unless it may `wait`, raises AppendWouldWaitError if many queues must be
        looked up, or a backward step of store times must be noted. Nothing is written then.
        Durability: none before `flush`.
        """
        if self._begun is not None:
            self.settle()
        if self._closed:
            raise StoreClosedError("commit log")
        hot = self.hot_queues.turn(self.appended_offset)
        queues = hot.queues
        light: Sequence[str] = ()
        row_count = len(prepared)
        if isinstance(prepared, PlainBatch):
            plain = prepared.messages
            missing = set(zip(plain.topics, plain.queue_ids, strict=True)).difference(queues)
            if prepared.light is not None:
                light = prepared.light.different
                row_count += len(prepared.light)
        else:
            missing = set(map(_QUEUE, messages)).difference(queues)
            all_names = []
            for details in prepared:
                if details is not PLAIN:
                    names = details[3]
                    row_count += len(details[1]) + len(names)
                    if names:
                        all_names.append(names)
            if all_names:
                light = list(dict.fromkeys(chain.from_iterable(all_names)))
        hot.light = TakenLight()
        if missing or light:
            self.hot_queues.warm(
                missing, light, self.appended_offset, None if wait else _FEW_QUEUES
            )
        now_ms = self._clock.now_ms()
        if now_ms < self.last_store_time_ms:
            now_ms = self._stamp_behind(now_ms, wait=wait)
        segment = self._segments.last
        assert segment is not None, "recovery makes the first segment"
        start = segment.start_offset + segment.appended
        assert start == self.appended_offset, f"bytes up to {start}, end {self.appended_offset}"
        begin = start if len(messages) > 1 and not separate else None
        runs: list[Encoded] = []
        self._begun = runs
        try:
            encoded = self._encoder.encode(
                messages,
                prepared,
                0,
                hot,
                start,
                segment.size - segment.appended,
                now_ms,
                begin,
                runs,
                mark,
            )
            if encoded.count == len(messages):
                data = b"".join(encoded.parts)
                assert start + len(data) == encoded.end_offset, "records lie where they say"
                done = LogAppend(encoded.requests, start, encoded.end_offset, now_ms, row_count)
                self._ready = (runs, [(start, data)], done)
                # The steps of `_finish`, inlined for speed.
                self.last_store_time_ms = now_ms
                segment.append(data)
                if light:
                    self.hot_queues.keep_light()
                self.appended_offset = done.end_offset
                self._published = (done.end_offset, now_ms)
            else:
                ready = self._encode_across(
                    segment, runs, messages, prepared, now_ms, begin, row_count, mark
                )
                self._ready = ready
                self._finish(ready)
                done = ready[2]
            publish(done)
        except BaseException:
            self.settle()
            raise
        self._begun = None
        self._ready = None  # it keeps the bytes of the append
        return done

    def _stamp_behind(self, now_ms: int, *, wait: bool) -> int:
        """The store time to use if the clock is behind the last one: the last one, or the clock's
        after a backward step."""
        last_ms = self.last_store_time_ms
        if last_ms - now_ms <= CARRY_MS:
            return last_ms
        if not wait:  # it is noted on disk
            raise AppendWouldWaitError("store times fall")
        logger.error(
            "the clock: it is %d s behind the last message. Store times fall from %d to %d ms",
            (last_ms - now_ms) // 1000,
            last_ms,
            now_ms,
        )
        self._times.fall(self.appended_offset, last_ms, now_ms)
        self.last_store_time_ms = now_ms
        return now_ms

    def settle(self) -> None:
        """Undo or complete an append that was interrupted.

        The caller must hold `lock`. Repeatable, and may itself be interrupted.
        """
        runs = self._begun
        if runs is None:
            return
        ready = self._ready
        if ready is not None and ready[0] is runs:
            self._finish(ready)
        else:
            for run in reversed(runs):
                run.give_back_offsets()
        self._begun = None

    def _finish(self, ready: _Ready) -> None:
        """Copy missing bytes, then raise the end. Nothing can be undone here, since a flush may
        have counted the first bytes as durable."""
        _, places, done = ready
        self.last_store_time_ms = done.store_time_ms
        for start, data in places:
            segment = self._segments.last
            assert segment is not None, "recovery makes the first segment"
            if start >= segment.start_offset + segment.size:
                segment = self._segments.roll()
            if segment.start_offset + segment.appended == start:
                segment.append(data)
            end = segment.start_offset + segment.appended
            assert end >= start + len(data), f"bytes at {start} do not follow the end {end}"
        self.hot_queues.keep_light()
        self.appended_offset = done.end_offset
        self._published = (done.end_offset, done.store_time_ms)

    def _encode_across(
        self,
        segment: Segment,
        runs: list[Encoded],
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        now_ms: int,
        begin: int | None,
        row_count: int,
        mark: BatchMark | None,
    ) -> _Ready:
        """Encode into new segments as well, and reserve them, so that everything that can fail, as
        on a full disk, comes before the first byte."""
        start = segment.start_offset + segment.appended
        segment_end = segment.start_offset + segment.size
        first = runs[0].count
        while first < len(messages):
            offset = segment_end + (len(runs) - 1) * segment.size
            if not first and begin is not None:
                begin = offset
            encoded = self._encoder.encode(
                messages,
                prepared,
                first,
                self.hot_queues.young,
                offset,
                segment.size,
                now_ms,
                begin,
                runs,
                mark,
            )
            first += encoded.count
            if encoded.count == 0:
                raise InvalidArgumentError(
                    f"messages[{first}].body",
                    f"the record does not fit a segment of {segment.size} bytes",
                )
        places: list[tuple[int, bytes]] = []
        at = start
        for run in runs[:-1]:
            blank = pack_blank(segment_end - run.end_offset)
            places.append((at, b"".join([*run.parts, blank])))
            at = segment_end
            segment_end += segment.size
        places.append((at, b"".join(runs[-1].parts)))
        requests = [request for run in runs for request in run.requests]
        self._segments.reserve(len(runs) - 1)
        # Known before any byte of it can be flushed.
        begins = dict(list(self._begins.items())[-_BEGINS_KEPT:])
        begins |= {place: start for place, _ in places[1:]}
        self._begins = begins
        done = LogAppend(requests, start, runs[-1].end_offset, now_ms, row_count)
        return runs, places, done

    @property
    def segment_bytes(self) -> int:
        """Size of each segment."""
        return self._segments.segment_bytes

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the next message in this existing queue. The caller must hold `lock`, with
        no append half done. Raises what loading a queue raises."""
        queue = topic, queue_id
        hot = self.hot_queues.turn(self.appended_offset)
        if queue not in hot.queues:
            self.hot_queues.warm([queue], (), self.appended_offset)
        return hot.queues[queue]

    def next_light_offsets(self, names: Sequence[str]) -> list[int]:
        """Like `next_offset`, for distinct light queues; 0 if it never had a message."""
        hot = self.hot_queues.turn(self.appended_offset)
        self.hot_queues.warm((), names, self.appended_offset)
        found = [int(offset) for offset in hot.light.offsets]
        hot.light = TakenLight()  # nothing of them is appended
        return found

    def wait_for_segment(self, start_offset: int, timeout_s: float) -> bool:
        """Block until an append that raised SegmentNotReadyError is worth a retry. Returns False
        after `timeout_s`.

        Must not be called under `lock`.
        """
        return self._segments.wait_ready(start_offset, timeout_s)

    def removed_file(self) -> Path | None:
        """The file of the segment that takes appends, if another program removed it; else None."""
        segment = self._segments.last
        return segment.path if segment is not None and segment.is_removed else None

    def create_segments_in_background(self) -> None:
        """From now on create segments only in the background, not in an append. Repeatable."""
        self._segments.create_segments_in_background()

    # --- durability and end of life --------------------------------------------------------

    def flush(self, least_pages: int) -> int:
        """Make appended bytes durable if at least `least_pages` pages wait; with 0 if any do.

        Returns the offset below which everything is durable. It is never inside an append, because
        recovery starts there. Raises OSError if fsync fails.
        """
        # Read first: what an append has copied but not published yet does not count.
        published = self._published
        end = published[0]
        flushed = min(self._segments.flush(least_pages), end)
        if flushed == end:
            self.flushed_mark = published
        # Full segments are flushed even if later bytes are not.
        return self._begins.get(flushed, flushed)

    def close(self) -> None:
        """Reject further appends; readers get StoreClosedError. Does not flush. Repeatable."""
        with self.lock:
            self.settle()
            self._closed = True
        self._segments.close()
