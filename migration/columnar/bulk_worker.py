"""A process that turns pieces of the log into sorted files, for the process that serves the store.

Python runs one thread at a time, so a backfill in the serving process would slow producers down.
This process reads segment files, and writes files that the serving process ingests.

python -m migration.columnar.bulk_worker

Standard input has the plan, pickled by the parent process, and then a line for each piece: the
offset up to which the log may be read. The answer is a line of JSON with the end of the piece. The
process exits when its input ends.
"""

from __future__ import annotations

import json
import pickle
import sys
from itertools import count
from typing import TYPE_CHECKING

from kvcq.engine.rocks import write_sst
from kvcq.tables import BOUNDS, INDEX, UNITS
from migration.columnar.decoder import ReadOptions, read_blocks
from migration.columnar.derived_rows import derive
from migration.columnar.log_layout import LogRange, Segment, Start
from migration.columnar.sorted_files import FAMILIES, LastUnits, write_index, write_units
from store.log import segment_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.columnar.block import RecordBlock
    from migration.columnar.bulk_plan import BulkPlan


class BulkWorker:
    """Writes the files of one piece after another."""

    def __init__(self, plan: BulkPlan) -> None:
        self._plan = plan
        self._options = ReadOptions(verify_crc=True, fail_on_corrupt=not plan.skip_damaged)
        self._numbers = count(1)
        self._at = plan.start

    def make(self, log_end: int) -> dict[str, object]:
        """Write the files of the next piece, which ends at or before `log_end`. Returns the line
        for the parent process."""
        number = next(self._numbers)
        enough = min(log_end, self._at + self._plan.piece_bytes)
        plan = self._plan
        derived = [derive(block, plan.liveness) for block in self._blocks(enough)]
        paths = {
            family: plan.output / f"{family}-{number:06d}.sst" for family in (UNITS, BOUNDS, INDEX)
        }
        ends = LastUnits()
        units = write_units(paths[UNITS], [rows.units for rows in derived])
        if units is not None:
            ends.join(units.ends)
        written = {
            UNITS: units,
            BOUNDS: write_sst(paths[BOUNDS], sorted(ends.rows()), FAMILIES[BOUNDS]),
            INDEX: write_index(paths[INDEX], [rows.index_rows for rows in derived]),
        }
        files = {family: [str(paths[family])] for family, file in written.items() if file}
        return {"end": self._at, "records": sum(rows.records for rows in derived), "files": files}

    def _blocks(self, end: int) -> Iterator[RecordBlock]:
        """Yield records that begin below `end`; afterwards `_at` is the end of the last one."""
        size = self._plan.segment_bytes
        while self._at < end:
            start = self._at - self._at % size
            segment = Segment(str(self._plan.commitlog / segment_name(start)), start)
            stop = min(end, start + size)
            log_range = LogRange(segment, self._at, stop, Start.EXACT, last=True)
            self._at = yield from read_blocks(log_range, self._options)


def main() -> None:
    source = sys.stdin.buffer
    plan: BulkPlan = pickle.load(source)
    worker = BulkWorker(plan)
    for line in source:
        sys.stdout.write(json.dumps(worker.make(int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
