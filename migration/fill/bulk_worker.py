"""A process that turns pieces of the log into sorted files, beside the one that serves the store.

Python runs one thread at a time: a backfill in the serving process takes from its producers what
it uses. This process has an interpreter of its own. It reads the segment files, and writes files
that the serving process takes into its database as they are.

    python -m migration.fill.bulk_worker

First the plan comes in on standard input, pickled: it is our own parent that writes it. Then one
line for each piece, with the offset up to which the log may be read by now; the answer is one line
of JSON, with the end of the piece. The process ends when its input does.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
from itertools import count
from typing import TYPE_CHECKING

from kvcq.engine.rocks import DERIVED, write_sst
from kvcq.tables import BOUNDS, DISPATCHED_KEY, INDEX, UNITS, DispatchBatchBuilder
from migration.state import Routes, SideName
from store.errors import CorruptRecordError
from store.format import FastParser
from store.log import Damage, Run, Segment, segment_name, walk

if TYPE_CHECKING:
    from pathlib import Path

    from migration.fill.bulk_plan import BulkPlan
    from store.consume_queue import DispatchRequest

_RUN = 8192
_FAMILIES = {family.name: family for family in DERIVED.families}


class LogFiles:
    """The segments of a log that another process has open, for reading; one is held at a time."""

    #: Of what may be asked for: the other process keeps the log from there on.
    first_offset = 0

    def __init__(self, commitlog: Path, segment_bytes: int) -> None:
        self._commitlog = commitlog
        self._segment_bytes = segment_bytes
        self._held: Segment | None = None

    def find(self, physical_offset: int) -> Segment:
        start = physical_offset - physical_offset % self._segment_bytes
        if self._held is None or self._held.start_offset != start:
            if self._held is not None:
                self._held.close()
            path = self._commitlog / segment_name(start)
            self._held = Segment.open(path, self._segment_bytes)
        return self._held


class BulkWorker:
    """Makes the files of one piece after another."""

    def __init__(self, plan: BulkPlan) -> None:
        self._plan = plan
        self._routes = Routes(plan.phase, plan.routing)
        self._builder = DispatchBatchBuilder()
        self._parser = FastParser()
        self._numbers = count(1)
        self._log = LogFiles(plan.commitlog, plan.segment_bytes)
        self._at = plan.start

    def make(self, log_end: int) -> dict[str, object]:
        """Files of the next piece, which ends at `log_end` at the latest: none if there is none."""
        number = next(self._numbers)
        rows: dict[str, dict[bytes, bytes]] = {UNITS: {}, BOUNDS: {}, INDEX: {}}
        records = 0
        at = self._at
        enough = min(log_end, at + self._plan.piece_bytes)
        for step in walk(self._log, at, end=log_end, parser=self._parser, count=_RUN):
            at = step.next_offset
            match step:
                case Run():
                    admitted = self._plan.admission.admit_all(step.requests)
                    records += len(admitted)
                    self._add(admitted, rows)
                case Damage() if not self._plan.skip_damaged:
                    raise CorruptRecordError(step.physical_offset, step.reason)
            if at >= enough:
                break
        self._at = at
        files = {}
        for family, found in rows.items():
            path = self._plan.output / f"{family}-{number:06d}.sst"
            ordered = sorted(found.items())
            if write_sst(path, ordered, _FAMILIES[family]) is not None:
                files[family] = [str(path)]
        return {"end": at, "records": records, "files": files}

    def _add(self, requests: list[DispatchRequest], rows: dict[str, dict[bytes, bytes]]) -> None:
        batch = self._builder.build(self._routes.split(requests, SideName.ROCKSDB), 0)
        for family, pairs in batch.puts.items():
            rows[family].update(pairs)
        del rows[BOUNDS][DISPATCHED_KEY]


def main() -> None:
    # Nothing here makes cycles; to look for them among so many tuples is a sixth of the time.
    gc.disable()
    source = sys.stdin.buffer
    plan: BulkPlan = pickle.load(source)
    worker = BulkWorker(plan)
    for line in source:
        sys.stdout.write(json.dumps(worker.make(int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
