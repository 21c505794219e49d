"""Offsets that reader groups commit: each commit is a record of the log, decided under the append
lock."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from store.errors import GroupKindError, OffsetBehindError, OffsetOutOfRangeError
from store.format import check_group, check_may_delete
from store.state import Committed, GroupEnded, GroupMade, unpack_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from store.puts.append_path import AppendPath
    from store.reads import Reader
    from store.state import Entry, Tables
    from store.topics import End, Topics


class _EndedMeanwhileError(Exception):
    """A queue was deleted after it was looked up."""


class CommittedOffsets:
    """Commits and looks up offsets of groups.

    Its methods are those of MessageStore, where they are documented. Thread: any.
    """

    def __init__(self, appends: AppendPath, topics: Topics, reader: Reader, tables: Tables) -> None:
        self._appends = appends
        self._topics = topics
        self._reader = reader
        self._tables = tables

    def commit(
        self,
        group: str,
        offsets: Iterable[tuple[str, int, int]],
        given_at: Iterable[int | None],
        *,
        allow_back: bool,
    ) -> None:
        check_group(group)
        wanted, given = list(offsets), list(given_at)
        end: int | None = None
        while end is None:  # again when a queue ended between the look and the record
            self._appends.check_open()
            ends = {topic: self._topics.ends.get(topic) for topic, _, _ in wanted}
            for place, at in zip(wanted, given, strict=False):
                self._reader.check_given(*place, at)
            for topic, queue_id, offset in wanted:
                low, high = self._reader.bounds(topic, queue_id)
                if not 0 <= offset <= high:
                    raise OffsetOutOfRangeError(topic, queue_id, offset, low, high)
            with suppress(_EndedMeanwhileError):
                end = self._appends.decide(
                    partial(self._commit, group, wanted, ends, allow_back=allow_back)
                )
        self._appends.wait_acknowledged(end)

    def _commit(
        self,
        group: str,
        wanted: Sequence[tuple[str, int, int]],
        ends: Mapping[str, End],
        *,
        allow_back: bool,
    ) -> Sequence[Entry]:
        """Must hold the append lock."""
        if self._topics.have_ended(ends):
            raise _EndedMeanwhileError
        found = self._topics.view.tables.group(group)
        if found is not None and unpack_group(found) is not None:
            raise GroupKindError(group, is_shared=True)
        if not allow_back:
            self._check_not_behind(group, wanted)
        entries: list[Entry] = [Committed(group, *each) for each in wanted]
        if wanted and found is None:
            entries.insert(0, GroupMade(group, b""))
        return entries

    def _check_not_behind(self, group: str, wanted: Sequence[tuple[str, int, int]]) -> None:
        """Must hold the append lock."""
        committed = self._topics.view.tables.committed_offsets(group, [one[:2] for one in wanted])
        for (topic, queue_id, offset), before in zip(wanted, committed, strict=True):
            if before is not None and offset < before:
                raise OffsetBehindError(group, topic, queue_id, offset, before)

    def of(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        check_group(group)
        self._appends.check_open()
        if self._tables.shared_group(group) is not None:
            raise GroupKindError(group, is_shared=True)
        return self._tables.committed_offsets(group, queues)

    def delete_group(self, group: str) -> None:
        check_group(group)
        check_may_delete(group)
        self._appends.check_open()

        def end() -> Sequence[Entry]:
            return [GroupEnded(group)] if self._topics.view.tables.group(group) is not None else []

        self._appends.wait_durable(self._appends.decide(end))
