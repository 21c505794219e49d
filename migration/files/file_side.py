"""The files of a stopped kvcq store as a side of its check; see kvcq.inspect.Side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcq.inspect import Kind, Lookup, Remedy, size_text
from migration.files.checkpoint import CHECKPOINT_FILE, FileQueueCheckpoint, read_checkpoint
from migration.files.file_check import FileCheck
from migration.files.queue_check import NOWHERE
from migration.formats import QUEUE_DIRECTORY
from store.errors import StoreFormatError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq.inspect import LogCheck, OpenedStore, WalkAgain
    from migration.files.options import FileQueueOptions
    from migration.files.record_lookup import RecordLookup
    from store.consume_queue import DispatchRequest

FILES = "files"


class FileSide:
    """Queue files and index files: see Side.

    They must have all records below the dispatched offset of their checkpoint. If they were not
    closed cleanly, the next opening removes everything after its durable offset.
    """

    def __init__(
        self,
        opened: OpenedStore,
        options: FileQueueOptions,
        records: RecordLookup,
        *,
        may_lag: bool,
    ) -> None:
        """`may_lag`: the files are being filled, so they may lag even after a clean stop."""
        self._opened = opened
        self._records = records
        self._tags_from = options.index_tags_from
        self._all_dispatched = opened.was_closed and not may_lag
        self._tell = partial(opened.findings.add, side=FILES, remedy=Remedy.REBUILD_FILES)
        found = self._read_checkpoint()
        checkpoint = found or FileQueueCheckpoint()
        #: Records below must have units. Without a checkpoint none must: the next opening then
        #: compares the files with the log.
        self._required_end = checkpoint.dispatched_offset
        self._known_end = max(checkpoint.dispatched_offset, checkpoint.durable_offset)
        self._ending = opened.ends_behind(self._required_end)
        self._cut = NOWHERE if checkpoint.clean else checkpoint.durable_offset
        self._lookup: Lookup | None = None
        self._check = FileCheck(
            opened.directory.root,
            options,
            self._tell_of_files,
            log_start=opened.segments.first_offset,
            admit=self._admit,
            is_required=self._is_required,
            lacks_tag=None if self._tags_from is None else self._lack_tags,
            cut_offset=self._cut,
            progress=opened.progress,
        )

    def _read_checkpoint(self) -> FileQueueCheckpoint | None:
        try:
            return read_checkpoint(self._opened.directory.root)
        except StoreFormatError as error:
            self._tell(Kind.CHECKPOINT_FILE, CHECKPOINT_FILE, "a whole checkpoint", error.reason)
            return None

    def _tell_of_files(self, kind: Kind, *what: Any, **where: Any) -> None:  # noqa: ANN401 - see Tell
        if kind is not Kind.FOREIGN:  # RocketMQ's own database is among its queue files
            self._tell(kind, *what, **where)

    # --- what should be there --------------------------------------------------------------

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        self._check.take(requests)

    def _admit(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        if requests[-1].physical_offset >= self._cut:
            requests = [each for each in requests if each.physical_offset < self._cut]
        return self._opened.admission.admit_all(requests)

    def _is_required(self, topic: str, physical_offset: int) -> bool:
        """Whether unit and keys of a record there must be in the files."""
        return physical_offset < self._required_end and self._is_live(topic, physical_offset)

    def _is_live(self, topic: str, physical_offset: int) -> bool:
        return self._opened.admission.is_live(topic, physical_offset)

    def _lack_tags(self, requests: Sequence[DispatchRequest]) -> list[DispatchRequest]:
        wanted = [
            request
            for request in requests
            if request.physical_offset >= (self._tags_from or 0)
            and not is_light(request.topic)
            and self._is_required(request.topic, request.physical_offset)
        ]
        tags = self._records.tags(wanted)
        return [request for request, tag in zip(wanted, tags, strict=True) if tag]

    # --- what is there ---------------------------------------------------------------------

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        lookup = Lookup(self._opened.segments, log, self._known_end)
        self._look_at_checkpoint(log)
        try:
            self._check.compare(
                _CheckedLog(lookup, self._cut),
                walk_again,
                is_required=self._is_required,
                is_live=lambda topic, at: topic in self._ending or self._is_live(topic, at),
            )
            self._lookup = lookup
        except OSError as error:
            self._tell(Kind.UNREADABLE, QUEUE_DIRECTORY, "files that can be read", error)

    def is_left_out(self, number: int) -> bool:
        return self._lookup is not None and self._lookup.is_left_out(number)

    @property
    def counts(self) -> tuple[int, int]:
        return self._check.counts

    def _look_at_checkpoint(self, log: LogCheck) -> None:
        end, place = log.end_offset, CHECKPOINT_FILE
        ahead, behind = self._known_end - end, end - self._required_end
        if ahead > 0:
            is_missing = self._opened.was_closed or self._known_end > log.files_end
            lost = ": the log was longer, and its end is missing" if is_missing else ""
            self._tell(
                Kind.AHEAD_OF_LOG,
                place,
                f"queue files up to the log's end, {end}",
                f"{self._known_end}{lost}",
                physical_offset=self._known_end,
                is_fault=is_missing,
                note=f"The queue files reach beyond the end of the log by {size_text(ahead)} (a "
                "power loss does that); the next start cuts them back.",
            )
        elif behind > 0 and self._all_dispatched and self._known_end > 0:
            self._tell(
                Kind.OLD_DATABASE,
                place,
                f"all records dispatched, up to {end}, as when the store was closed",
                f"{self._required_end}: the files are older copies. Opening brings them up to "
                "date, but queues of topics deleted since stay",
                physical_offset=self._required_end,
            )
        elif behind > 0:
            self._opened.findings.add(
                Kind.UNDISPATCHED,
                place,
                f"all records dispatched, up to {end}",
                f"{self._required_end}: opening dispatches the rest",
                side=FILES,
                physical_offset=self._required_end,
                note=f"The last {size_text(behind)} of the log are not in the queue files yet; "
                "the next start puts them in.",
            )


class _CheckedLog:
    """The log of a check, for the comparison with files."""

    def __init__(self, lookup: Lookup, cut_offset: int) -> None:
        self.start_offset = lookup.log.start_offset
        # Units between the log's end and the files' end are reported with the checkpoint.
        self.end_offset = max(lookup.log.end_offset, lookup.checkpoint)
        self.walked_end = NOWHERE
        self.cut_offset = cut_offset
        self.in_question = lookup.in_question
        self.record_at = lookup.record_at

    def is_damaged(self, physical_offset: int) -> bool:
        return not self.in_question(np.array([physical_offset]))[0]
