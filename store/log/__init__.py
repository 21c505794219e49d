"""The commit log: its files, the append, the walk over it, recovery, flushing and retention.

Everything else in a store can be derived from it. It uses the byte layouts of `store.format`, and
knows nothing of topics or of data derived from its records; callers that need those pass a
function.
"""

from store.log.acknowledgement import Acknowledgement
from store.log.batch_encoder import BatchEncoder
from store.log.commit_log import CommitLog, LogAppend
from store.log.disk import DiskGuard, free_bytes
from store.log.file_ranges import data_ranges
from store.log.flush import GATHER_S, FlushService, GroupCommitService, IntervalFlushService
from store.log.log_bytes import PreadWindow, look_at, pread
from store.log.log_walk import Blank, Damage, End, Poison, Run, walk
from store.log.page_ahead import PageAhead
from store.log.preallocate import Preallocator
from store.log.queue_offsets import QueueOffsets
from store.log.record_run import LogFiles
from store.log.recovery import Recovered, check_has_durable, holds_record, recover_log
from store.log.resync import first_time
from store.log.retention import (
    LogHold,
    RetentionService,
    read_kept_again,
    read_log_start,
    write_kept_again,
    write_log_start,
)
from store.log.segment import Segment, parse_segment_name, segment_name
from store.log.segment_set import SegmentSet, SegmentSource
from store.log.store_times import (
    Fall,
    FallFinder,
    Falls,
    StoreTimes,
    read_falls,
    read_left,
    write_falls,
    write_left,
)
from store.log.watermark import Watermark

__all__ = [
    "GATHER_S",
    "Acknowledgement",
    "BatchEncoder",
    "Blank",
    "CommitLog",
    "Damage",
    "DiskGuard",
    "End",
    "Fall",
    "FallFinder",
    "Falls",
    "FlushService",
    "GroupCommitService",
    "IntervalFlushService",
    "LogAppend",
    "LogFiles",
    "LogHold",
    "PageAhead",
    "Poison",
    "PreadWindow",
    "Preallocator",
    "QueueOffsets",
    "Recovered",
    "RetentionService",
    "Run",
    "Segment",
    "SegmentSet",
    "SegmentSource",
    "StoreTimes",
    "Watermark",
    "check_has_durable",
    "data_ranges",
    "first_time",
    "free_bytes",
    "holds_record",
    "look_at",
    "parse_segment_name",
    "pread",
    "read_falls",
    "read_kept_again",
    "read_left",
    "read_log_start",
    "recover_log",
    "segment_name",
    "walk",
    "write_falls",
    "write_kept_again",
    "write_left",
    "write_log_start",
]
