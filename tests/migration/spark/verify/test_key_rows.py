"""A digest of index rows does not depend on their order, and shows every change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.rows import index_key

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from migration.columnar.strings import Strings
from migration.spark.verify.digest import Digest, buckets_of_keys
from migration.spark.verify.key_rows import KeyRows

if TYPE_CHECKING:
    from kvcq.inspect import BucketSums

NAMES = st.text(min_size=1, max_size=12)
KEYS = st.builds(index_key, NAMES, NAMES, st.integers(0, 1 << 40), st.integers(0, 1 << 40))


def rows_of(keys: list[bytes]) -> KeyRows:
    return KeyRows(Strings.of(keys))


def digest_of(*parts: KeyRows) -> BucketSums:
    digest = Digest()
    for part in parts:
        digest.add_keys(part)
    return digest.keys


@given(st.lists(KEYS, max_size=20), st.randoms())
def test_order_and_cuts_make_no_difference(keys: list[bytes], chance: object) -> None:
    shuffled = list(keys)
    chance.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis types it as object
    half = len(keys) // 2
    cut = digest_of(rows_of(shuffled[:half]))
    cut.merge(digest_of(rows_of(shuffled[half:])))
    assert not len(digest_of(rows_of(keys)).differing(cut))
    assert cut.count == len(keys)


@given(KEYS, st.integers(0, 200), st.integers(1, 255))
def test_every_byte_of_a_key_counts(key: bytes, at: int, flip: int) -> None:
    other = bytearray(key)
    other[at % len(key)] ^= flip
    one, changed = rows_of([key, bytes(other)]).key_hashes()
    assert one != changed


@given(st.lists(KEYS, min_size=1, max_size=8))
def test_a_hash_does_not_depend_on_what_lies_beside(keys: list[bytes]) -> None:
    together = rows_of(keys).key_hashes().tolist()
    alone = [rows_of([key]).key_hashes()[0] for key in keys]
    assert together == alone
    rows = rows_of(keys)
    assert rows.keys.tolist() == keys
    last = rows.where(np.arange(len(keys)) == len(keys) - 1)
    assert last.key_hashes().tolist() == together[-1:]


def test_a_wrong_stamp_shows_in_the_bucket_of_its_key() -> None:
    keys = [index_key("t", f"k{number}", 5_000 * number, number) for number in range(50)]
    rows = rows_of(keys)
    stamps = rows.proper_stamps
    assert stamps.tolist() == [5 * number for number in range(50)]
    right = digest_of(rows._replace(stamps=stamps))
    assert not len(right.differing(digest_of(rows)))
    wrong = stamps.copy()
    wrong[7] += 1
    found = right.differing(digest_of(rows._replace(stamps=wrong)))
    assert found.tolist() == [buckets_of_keys(rows)[7]]


def test_a_row_that_stands_twice_shows() -> None:
    rows = rows_of([index_key("t", "k", 1, 2)])
    assert len(digest_of(rows).differing(digest_of(rows, rows, rows))) == 1
