"""Walks the segments of a stopped store: each record must be whole and in its place, with ascending
times."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kvcq.inspect.batch_places import BatchPlaces
from kvcq.inspect.findings import Kind
from store.errors import CorruptRecordError
from store.format import FastParser, Found, unpack_record
from store.light_queue import is_light
from store.log import Damage, Poison, PreadWindow, Run, holds_record, look_at, pread, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq.inspect.findings import Findings
    from store.consume_queue import DispatchRequest
    from store.log import Falls, Segment, SegmentSet

LOG = "log"
_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)
_PAGE_BYTES = 4096


class _Damaged(NamedTuple):
    """A place below the durable end without a record."""

    damage: Damage
    place: str
    records_before: int
    owner: tuple[str, int, int] | None  # topic, queue and offset in its header


class LogCheck:
    """One pass over the log; afterwards `end_offset` is where it ends.

    Memory: one window of the log, and the places of damage.
    """

    def __init__(
        self,
        segments: SegmentSet,
        durable_end: int,
        findings: Findings,
        progress: Callable[[float], None],
        take: Callable[[Sequence[DispatchRequest]], None],
        *,
        may_be_torn: bool,
        was_closed: bool = False,
        falls: Falls = (),
    ) -> None:
        """`durable_end`: the log was fsynced below it, so bytes there that are not a record are
        damage. Above it, bytes that `may_be_torn` are the end; otherwise they are damage too, if
        the log continues.

        Noted `falls` of store times are not reported. `was_closed`: cleanly, so nothing may be
        behind the end. `take` gets the requests derived from the records, run by run. Records that
        no queue can hold are skipped, as in dispatch.
        """
        self._segments = segments
        self._durable_end = durable_end
        self._tell = partial(findings.add, side=LOG)
        self._progress = progress
        self._take = take
        self._was_closed = was_closed
        self._may_be_torn = may_be_torn
        self._falls = falls
        self.start_offset = segments.first_offset
        self.end_offset = segments.first_offset
        #: The end of its last file.
        self.files_end = segments.first_offset + len(segments) * segments.segment_bytes
        self.record_count = 0
        self._damage: list[_Damaged] = []
        self.damaged_starts: list[int] = []  # physical, rising
        self.damaged_ends: list[int] = []
        self._last_time_ms = -1
        self._likely_end = 0
        self._look = PreadWindow()
        self._places = BatchPlaces(self.start_offset, self._tell_place)

    def run(self) -> None:
        """Walk from the first segment to the end of the log."""
        self._likely_end = self._guess_end()
        for step in walk(
            self._segments,
            self.start_offset,
            written_end=self._durable_end,
            may_be_torn=self._may_be_torn,
            parser=FastParser(),
            look=self._look,
        ):
            self.end_offset = step.next_offset
            match step:
                case Run():
                    self.record_count += step.record_count
                    self._look_at_times(step.requests)
                    self._look_at_places(step)
                    self._take(step.requests)
                case Poison():  # neither dispatch nor a rebuild makes anything of it
                    self.record_count += 1
                    self._places.skip(step.next_offset)
                case Damage():
                    self._damaged(step)
                    self._places.skip(step.next_offset)
            self._report(step.next_offset)
        if self.end_offset < self._durable_end:
            self._tell(
                Kind.SHORT_LOG,
                "commitlog",
                f"records up to {self._durable_end}, which the checkpoint file calls durable",
                f"none from {self.end_offset} on",
                physical_offset=self.end_offset,
            )
        if self._was_closed:  # otherwise the next opening cuts a batch that was not finished
            self._places.end(self.end_offset)
        self._look_behind(self.end_offset)
        self._progress(1.0)

    def _guess_end(self) -> int:
        """An estimate of the log's end, since files are longer. Only used for progress."""
        for segment in reversed(list(self._segments)):
            low, high = 0, segment.size // _PAGE_BYTES
            while low < high:
                middle = (low + high) // 2
                page = segment.pread(middle * _PAGE_BYTES, _PAGE_BYTES)
                low, high = (low, middle) if page == _ZEROS[:_PAGE_BYTES] else (middle + 1, high)
            if low:
                return segment.start_offset + low * _PAGE_BYTES
        return self.start_offset

    def _report(self, at: int) -> None:
        self._progress(
            min(1.0, (at - self.start_offset) / max(1, self._likely_end - self.start_offset))
        )

    def _damaged(self, damage: Damage) -> None:
        segment = self._segments.find(damage.physical_offset)
        assert segment is not None
        owner = _owner(segment, damage.physical_offset)
        place = f"commitlog/{segment.path.name}"
        self._damage.append(_Damaged(damage, place, self.record_count, owner))
        self.damaged_starts.append(damage.physical_offset)
        self.damaged_ends.append(damage.next_offset)

    def name_damage(
        self, physical_offset: int, topic: str, queue_id: int, queue_offset: int
    ) -> None:
        """Name the damaged record by the unit that points to it, which is more reliable than a
        damaged header."""
        at = bisect_left(self.damaged_starts, physical_offset)
        # Light queues only point at a message; it is that of its own queue.
        if self._damage[at].owner is None or not is_light(topic):
            owner = topic, queue_id, queue_offset
            self._damage[at] = self._damage[at]._replace(owner=owner)

    def tell_damage(self, is_left_out: Callable[[int], bool]) -> None:
        """Report damage after the walk. `is_left_out`: whether no row refers to the damage with
        that number."""
        for number, damaged in enumerate(self._damage):
            damage = damaged.damage
            following = self.record_count - damaged.records_before
            left_out = is_left_out(number)
            records = "1 record follows" if following == 1 else f"{following:,} records follow"
            topic, queue_id, queue_offset = damaged.owner or (None, None, None)
            self._tell(
                Kind.LEFT_OUT if left_out else Kind.DAMAGED_RECORD,
                damaged.place,
                "a whole record",
                f"{damage.reason}; the log goes on at {damage.next_offset}, {records}",
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=damage.physical_offset,
                note=_left_out(damaged) if left_out else "",
            )

    def _look_at_times(self, requests: Sequence[DispatchRequest]) -> None:
        times = [request[6] for request in requests]
        if times[0] >= self._last_time_ms and times == sorted(times):
            self._last_time_ms = times[-1]
            return
        for request in requests:
            self._look_at_time(request.store_time_ms, request.physical_offset)

    def _look_at_places(self, run: Run) -> None:
        begin, end = run.requests[0].physical_offset, run.next_offset
        segment = self._segments.find(begin)
        assert segment is not None
        view = self._look(segment, begin, end, end - begin)  # still in the page cache
        self._places.take(view, begin, [request.physical_offset for request in run.requests])

    def _tell_place(self, physical_offset: int, expected: str, found: str) -> None:
        self._tell(Kind.BATCH_PLACE, "commitlog", expected, found, physical_offset=physical_offset)

    def _look_at_time(self, store_time_ms: int, at: int) -> None:
        is_noted = any(fall.offset >= at and fall.after_ms <= store_time_ms for fall in self._falls)
        if store_time_ms < self._last_time_ms and not is_noted:
            # Search by time and expiry only take recorded falls into account.
            self._tell(
                Kind.FALLING_TIME,
                "commitlog",
                f"at least {self._last_time_ms} ms",
                f"{store_time_ms} ms",
                physical_offset=at,
            )
        self._last_time_ms = store_time_ms

    def _look_behind(self, end: int) -> None:
        """Report bytes behind the log's end as a torn tail."""
        for segment in self._segments:
            position = max(0, end - segment.start_offset)
            while position < segment.size:
                size = min(_CHUNK_BYTES, segment.size - position)
                data = segment.pread(position, size)
                if data != _ZEROS[:size]:
                    at = segment.start_offset + position + size - len(data.lstrip(b"\0"))
                    self._tell(
                        Kind.TORN_TAIL,
                        f"commitlog/{segment.path.name}",
                        f"nothing behind the log's end at {end}",
                        "bytes that are not a record, although the store was shut down cleanly: "
                        "the next opening removes them"
                        if self._was_closed
                        else "bytes of appends that never became durable: the next opening cuts "
                        "them",
                        physical_offset=at,
                        is_fault=self._was_closed,
                        note=f"Behind the log's end at {end:,} lie bytes of what was not wholly "
                        "written (a kill or a power loss does that); the next start removes them"
                        + self._set_aside_told(end),
                    )
                    return
                position += size

    def _set_aside_told(self, end: int) -> str:
        count = sum(
            segment.start_offset >= end and holds_record(segment, pread)
            for segment in list(self._segments)[1:]
        )
        if not count:
            return "."
        segments = "a segment that holds" if count == 1 else f"{count} segments that hold"
        return f", and sets aside {segments} whole records, in a directory beside commitlog/."


def _left_out(damaged: _Damaged) -> str:
    damage, place, _, owner = damaged
    whose = ""
    if owner is not None:
        topic, queue_id, queue_offset = owner
        whose = f", offset {queue_offset} of queue {queue_id} of {topic}"
    return (
        f"A damaged record is left out of the queues: physical offset {damage.physical_offset} in "
        f"{place}{whose} ({damage.reason}). Its message is lost; readers get an error there, and "
        "can continue after it."
    )


def _owner(segment: Segment, at: int) -> tuple[str, int, int] | None:
    """Topic, queue and offset of a damaged record, if its header is still consistent."""
    end = segment.start_offset + segment.size
    checked, data = look_at(segment, at, end, pread, verify_crc=False)
    if checked.found is not Found.RECORD:
        return None
    try:
        message = unpack_record(data, verify=False)
    except (CorruptRecordError, ValueError):
        return None
    return message.topic, message.queue_id, message.queue_offset
