"""Keys of numbered batches: Spark derives the rows that a live store has, also of dead topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.tables.keys import INDEX, unpack_index_key
from migration.check import check_store
from migration.columnar.derived_rows import derive_index
from migration.columnar.liveness import liveness_of
from migration.columnar.log_layout import open_segment
from migration.columnar.sorted_files import row_keys
from migration.columnar.walk import walk
from store.format.batch_mark import BatchMark, key_of
from store.message import Message
from tests.support.rebuild import differences, live_engine
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from pathlib import Path


def test_index_rows_of_batches_are_those_of_the_store(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        body = b"x" * (SEGMENT_BYTES // 3)
        store.append([Message("A", b"a", keys=("k",))], mark=BatchMark("p", 0, 1, 5, 1))
        store.append([Message("B", b"b", properties={"UNIQ_KEY": "u"})])
        store.append([Message("A", body)] * 4, mark=BatchMark("p", 1, 4, 6, 5))
        store.append(
            [Message("A", b"c", light_queues=("%LMQ%l",))], mark=BatchMark("q", 7, 1, 7, 8)
        )
        store.delete_topic("A")
        live = {row for row, _ in live_engine(store).scan(INDEX, b"", b"\xff" * 8)}
        assert [unpack_index_key(row)[:2] for row in sorted(live)] == [
            ("", key_of("p", 0)),
            *[("", key_of("p", 1))] * 2,
            ("", key_of("q", 7)),
            ("B", "u"),
        ]
        assert differences(store) == []
        liveness = liveness_of(store.tables, store.applier.endings())
    found: set[bytes] = set()
    for path in sorted((tmp_path / "commitlog").iterdir()):
        block = walk(open_segment(path), int(path.name), 0, SEGMENT_BYTES, 1000).block
        found.update(row_keys(derive_index(block, liveness)))
        assert (block.prepared_transaction_offset == 0).all()
    assert found == live
    assert check_store(tmp_path) == []
