"""The data source `commitlog`: records of a commit log directory, in batch and as a stream.

| option               | default     | meaning                                                   |
|----------------------|-------------|-----------------------------------------------------------|
| path                 |             | the directory of the store, or of its segments; or where  |
|                      |             | backups are kept: a directory, s3://BUCKET/PREFIX, s3a:// |
| backup               | newest      | where backups are kept: the id of one                     |
| segmentBytes         | file size   | size every segment must have                              |
| maxBytesPerPartition | 67108864    | bytes of a segment for one task; 0: a whole segment,      |
|                      |             | which is the default in a bucket: it is fetched whole     |
| verifyCrc            | false       | check the CRCs of every record read                       |
| failOnCorrupt        | true        | false: continue at the next record                        |
| endingOffset         | end of log  | physical offset to stop at, exclusive: the committed end  |
| risingTime           | false       | store times never fall in this log: skip segments by time |
| topic, queueId       | all         | only these, separated by commas                           |
| minStoreTimeMs       | all         | only records stored at or after this time                 |
| maxStoreTimeMs       | all         | only records stored at or before this time                |
| minPhysicalOffset    | all         | only records at or above this physical offset             |
| maxPhysicalOffset    | all         | only records at or below this physical offset             |
| pushFilters          | false       | batch: take such limits from the query; see below         |
| startingOffset       | earliest    | stream: earliest, latest, or where a record begins        |
| maxBytesPerTrigger   | all         | stream: about this many bytes of the log in one batch     |
| failOnDataLoss       | true        | stream: fail if unread segments were dropped; false: skip |

Columns are those of columns.py. Pass `schema` the ones that are needed: only these are built.

With pushFilters, conditions of the query on topic, queue_id, store_time_ms and physical_offset work
like the options. It is off by default because of a defect of Spark 4.3.0 that returns wrong
results: Spark keeps the filters that one query pushed down with the DataFrame, and applies them to
other queries on it (`f.where(a).union(f.where(b))` loses rows, and so does `f.count()` after
`f.where(a).count()`). Turn it on for a DataFrame that is used in one query, once.

The server may append meanwhile. Without endingOffset, the log ends after its last record, and
damage before that is reported. Records that are not flushed yet are included, although a crash of
that machine loses them. After a power loss, open the store once, which cuts its log, or pass an
endingOffset.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from kvcq.backup import keeps_backups
from migration.columnar import (
    LogLayout,
    ReadOptions,
    Segment,
    advance,
    backup_layout,
    first_store_time,
    read_layout,
    split,
)
from migration.spark.arrow import read_batches
from migration.spark.columns import COMMITLOG, struct_of
from migration.spark.errors import PipelineError, SourceOptionError
from migration.spark.source.options import Options, wanted_columns
from migration.spark.source.record_filter import RecordFilter, filter_from_options, from_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

DEFAULT_PARTITION_BYTES = 64 << 20


class LogOptions(NamedTuple):
    """The options of the table above, validated."""

    path: Path | str  # str: a place with backups
    backup_id: str | None
    segment_bytes: int | None
    max_bytes_per_partition: int
    read: ReadOptions
    ending_offset: int | None
    rising_time: bool
    starting_offset: str
    max_bytes_per_trigger: int | None
    fail_on_data_loss: bool
    chosen: RecordFilter
    push_filters: bool

    def layout(self, known_end: int | None = None) -> LogLayout:
        if isinstance(self.path, str):
            return self._backup()
        return read_layout(self.path, self.segment_bytes, self.ending_offset, known_end)

    def _backup(self) -> LogLayout:
        layout = backup_layout(str(self.path), self.backup_id)
        end = self.ending_offset
        return layout if end is None else layout._replace(end=min(end, layout.end))


class CommitLogSource(DataSource):
    """The records of a commit log."""

    @classmethod
    def name(cls) -> str:
        return "commitlog"

    def schema(self) -> StructType:
        return struct_of(COMMITLOG)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        kind = PushingCommitLogReader if options.push_filters else CommitLogReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CommitLogStreamReader(parse_options(self.options), schema)


def parse_options(options: Mapping[str, str]) -> LogOptions:
    """Parse the options. Raises SourceOptionError."""
    given = Options(options)
    starting = given.text("startingOffset", "earliest")
    if starting not in ("earliest", "latest") and not starting.isdecimal():
        raise SourceOptionError(
            "startingOffset", f"{starting!r} is not earliest, latest, or a physical offset"
        )
    segments = _segments(given.text("path"))
    found = LogOptions(
        path=segments,
        backup_id=given.maybe_text("backup"),
        segment_bytes=given.maybe_whole("segmentBytes"),
        # Objects in a bucket are fetched whole, so one task reads a segment.
        max_bytes_per_partition=given.whole(
            "maxBytesPerPartition", 0 if "://" in str(segments) else DEFAULT_PARTITION_BYTES
        ),
        read=ReadOptions(
            verify_crc=given.flag("verifyCrc", default=False),
            fail_on_corrupt=given.flag("failOnCorrupt", default=True),
        ),
        ending_offset=given.maybe_whole("endingOffset"),
        rising_time=given.flag("risingTime", default=False),
        starting_offset=starting,
        max_bytes_per_trigger=given.maybe_whole("maxBytesPerTrigger"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        chosen=filter_from_options(given),
        push_filters=given.flag("pushFilters", default=False),
    )
    given.refuse_others()
    return found


def _segments(path: str) -> Path | str:
    """The directory of the segments, also for a store's directory; a place with backups stays
    unchanged."""
    if keeps_backups(path):
        return path
    given = Path(path.removeprefix("file://"))
    inside = given / "commitlog"
    return inside if inside.is_dir() else given


class _Reader:
    """The common part of batch and stream. A partition is one range of one segment."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, COMMITLOG, "commitlog")
        self._filter = options.chosen

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one whose value is None.
        if partition.value is not None:
            options, choose = self._options.read, self._filter.choose
            yield from read_batches(partition.value, self._columns, options, choose)


class CommitLogReader(_Reader, DataSourceReader):
    """Reads the log as of when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        layout = self._options.layout()
        offsets = self._filter.physical_offset
        begin = max(layout.start, offsets.low)
        end = min(layout.end, offsets.high + 1)
        if self._options.rising_time:
            layout = _prune_by_time(layout, self._filter)
        ranges = split(layout, begin, end, self._options.max_bytes_per_partition)
        return list(map(InputPartition, ranges))


class PushingCommitLogReader(CommitLogReader):
    """Also takes limits from the query. Spark does not pass them to other readers."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filter &= from_spark(filters)
        return filters  # Spark checks them again


class CommitLogStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log. An offset is `{"physical_offset": end of what was read}`."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: int | None = None
        self._known_end: int | None = None

    def initialOffset(self) -> dict[str, int]:
        starting = self._options.starting_offset
        layout = self._options.layout()
        if starting == "earliest":
            return {"physical_offset": layout.start}
        if starting == "latest":
            return {"physical_offset": layout.end}
        if not layout.start <= int(starting) <= layout.end:
            raise SourceOptionError(
                "startingOffset", f"{starting} is outside the log, {layout.start} to {layout.end}"
            )
        return {"physical_offset": int(starting)}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begin = start["physical_offset"]
        end = self._end() if self._target is None else self._target
        if isinstance(limit, ReadMaxBytes) and end - begin > limit.max_bytes:
            layout = self._options.layout(end)
            # Must be the end of a record, because the next batch begins there.
            end = min(end, advance(layout, max(begin, layout.start), limit.max_bytes))
        return {"physical_offset": max(begin, end)}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"physical_offset": self._end()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, stop = start["physical_offset"], end["physical_offset"]
        layout = self._options.layout(stop)
        if begin < layout.start and begin < stop and self._options.fail_on_data_loss:
            raise PipelineError(
                f"the log begins at {layout.start} now: {begin} to {min(stop, layout.start)} is"
                " gone unread (failOnDataLoss false continues behind it)"
            )
        begin = max(begin, layout.start)
        step = self._options.max_bytes_per_partition
        ranges = split(layout, begin, stop, step, exact=True)
        return list(map(InputPartition, ranges))

    def _end(self) -> int:
        self._known_end = self._options.layout(self._known_end).end
        return self._known_end


def _prune_by_time(layout: LogLayout, wanted: RecordFilter) -> LogLayout:
    """Leave out segments whose records were all stored outside the requested times."""
    times = wanted.store_time_ms
    if not times.is_limited:
        return layout
    kept: list[Segment] = []
    next_time: int | None = None
    for segment in reversed(layout.segments):
        first = first_store_time(segment)
        too_late = first is not None and first > times.high
        too_early = next_time is not None and next_time < times.low
        if not (too_late or too_early):
            kept.append(segment)
        next_time = first if first is not None else next_time
    return layout._replace(segments=tuple(reversed(kept)))
