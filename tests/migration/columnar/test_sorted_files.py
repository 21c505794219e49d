"""Rows made in columns are the rows of dispatch, byte for byte and in the order of their keys."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, INDEX, UNITS
from migration.columnar import sorted_files
from migration.columnar.decoder import ReadOptions, read_blocks
from migration.columnar.derived_rows import derive
from migration.columnar.liveness import ALL_LIVE
from migration.columnar.log_layout import read_layout, split
from migration.columnar.sorted_files import LastUnits
from store.errors import CorruptRecordError
from store.format.record import dispatch_request
from tests.support.log_writer import Entry, LogWriter
from tests.support.rows import index_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcq.engine import Pair

PIECES = (
    *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"\x01", b"\x02", b"x", b" ", b"4", b",", b"%LMQ%q"),
    *(b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET", b"TAGS\x01a\x02", "é".encode()),
    *(b"KEYS\x01one two  one\x02", b"UNIQ_KEY\x01two\x02", b"k" * 70),
)
ENTRIES = st.builds(
    Entry,
    topic=st.sampled_from(["t", "SCHEDULE_TOPIC_XXXX", "订单", "q" * 127]),
    body=st.binary(max_size=40),
    properties=st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join),
    sys_flag=st.sampled_from([0, 4, 8, 12, 1]),
    version=st.sampled_from([1, 2]),
    queue_id=st.integers(-1, 3),
    queue_offset=st.integers(0, 3),
    store_time_ms=st.sampled_from([1_700_000_000_456, 1_700_000_000_455, 1 << 45]),
    store_host=st.sampled_from([("4.3.2.1", 5), ("::2", 6)]),
)


def dispatched(records: Iterable[bytes]) -> dict[str, dict[bytes, bytes]]:
    """Rows of live dispatch: a later one takes the place of one with the same key."""
    requests = []
    for record in records:
        try:
            requests.append(dispatch_request(record, 0))
        except CorruptRecordError:
            continue  # poison
    rows = build_batch(requests, 0).puts
    found = {family: dict(pairs) for family, pairs in rows.items()}
    del found[BOUNDS][DISPATCHED_KEY]
    return found


@given(st.lists(ENTRIES, min_size=1, max_size=12), st.integers(1, 12), st.booleans())
def test_the_rows_are_those_of_dispatch(
    written: list[Entry], per_block: int, crc_item: bool
) -> None:
    files: dict[str, list[Pair]] = {}

    def keep(path: Path, rows: Iterable[Pair], _: object) -> object:
        files[path.name] = list(rows)
        return files[path.name] or None

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        directory = Path(name)
        writer = LogWriter(directory, 8192, crc_item=crc_item)
        for entry in written:
            row = writer._encode(entry, writer.end)
            writer.write_raw(row.record)
            writer.rows.append(row)
        writer.flush()
        layout = read_layout(directory)
        patched.setattr("migration.columnar.decoder.BATCH_RECORDS", per_block)
        patched.setattr(sorted_files, "write_sst", keep)
        (log_range,) = split(layout, 0, layout.end, 0)
        blocks = read_blocks(log_range, ReadOptions(verify_crc=True))
        derived = [derive(block, ALL_LIVE) for block in blocks]
        units = sorted_files.write_units(Path(UNITS), [rows.units for rows in derived])
        sorted_files.write_index(Path(INDEX), [rows.index_rows for rows in derived])
    ends = LastUnits()
    ends.join(units.ends if units is not None else [])
    wanted = dispatched(row.record for row in writer.rows)
    assert files[INDEX] == sorted(wanted[INDEX].items())
    # Where an offset is used twice the higher one in the log is dispatched last, and stays.
    assert files[UNITS] == sorted(wanted[UNITS].items())
    assert dict(ends.rows()) == wanted[BOUNDS]


KEYS = st.sampled_from(["a", "b", "key-0001", "key-00010", "k" * 64, "k" * 65, "k" * 64 + "l", "é"])


@given(st.lists(st.tuples(KEYS, KEYS, st.integers(0, 2), st.integers(0, 2)), unique=True))
def test_index_rows_stand_in_the_order_of_their_keys(
    rows: list[tuple[str, str, int, int]],
) -> None:
    from tests.migration.columnar.test_key_cuts import index_rows

    made = index_rows(rows)
    prefixes, rank = sorted_files._ranked(made.prefixes, made.topics)
    made = made._replace(prefixes=prefixes, topics=rank)
    order = sorted_files._key_order(made)
    assert sorted_files.row_keys(made.take(np.asarray(order))) == sorted(
        index_key(*row) for row in rows
    )
