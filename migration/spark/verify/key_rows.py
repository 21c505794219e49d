"""Many rows of the key index, and their hashes.

A row is identified by its complete key: topic, message key, store time, position in the log. Its
value, the expiry stamp, follows from the time. A wrong stamp changes the row's hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.tables import INDEX_KEY_BYTES, OFFSET_BYTES, TIME_AND_OFFSET_BYTES, expiry_stamps, mixed
from migration.columnar import gather, gather_ints

if TYPE_CHECKING:
    from kvcq.tables import Hashes
    from migration.columnar import Bools, Ints, Strings

_WORD = 8


class KeyRows(NamedTuple):
    """Keys of index rows; `stamps` None: all correct."""

    keys: Strings
    stamps: Ints | None = None

    @property
    def places(self) -> Ints:
        """The physical offset in each key."""
        return gather_ints(self.keys.data, ">i8", self.keys.ends - OFFSET_BYTES)

    @property
    def proper_stamps(self) -> Ints:
        """The stamps that follow from the times in the keys."""
        return expiry_stamps(
            gather_ints(self.keys.data, ">i8", self.keys.ends - TIME_AND_OFFSET_BYTES)
        )

    def where(self, mask: Bools) -> KeyRows:
        return KeyRows(self.keys[mask], None if self.stamps is None else self.stamps[mask])

    def key_hashes(self) -> Hashes:
        """A hash of each complete key; the same in every process."""
        keys = self.keys
        lengths = keys.lengths
        if not len(lengths):
            return np.empty(0, dtype=np.uint64)
        words = -(-lengths // _WORD)
        firsts = np.cumsum(words) - words
        number = np.arange(int(words.sum())) - np.repeat(firsts, words)
        # The last word of a key may overlap the previous one; the hash includes the length.
        at = np.minimum(
            np.repeat(keys.starts, words) + _WORD * number, np.repeat(keys.ends - _WORD, words)
        )
        values = gather(keys.data, "V8", at).view(np.uint64)
        hashes = np.add.reduceat(mixed(values ^ mixed(number.astype(np.uint64))), firsts)
        return mixed(hashes ^ mixed(lengths.astype(np.uint64)))

    def hashes(self) -> Hashes:
        """A hash of each key with its stamp."""
        keys = self.key_hashes()
        if self.stamps is None:
            return keys
        wrong = (self.stamps - self.proper_stamps).view(np.uint64)
        return np.where(wrong == 0, keys, keys ^ mixed(wrong))


#: Every key has at least a word.
assert INDEX_KEY_BYTES > _WORD
