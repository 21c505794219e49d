"""Light queues of many messages, in columns.

A message may be in hundreds of light queues, and the work per name limits how fast it is stored. So
the names of a batch are one text, whose bytes are treated as numbers and sorted once. That gives
equal names, their offsets, and the order of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]

_COMMA = ord(",")
_WORD_BYTES = 8
#: Masks for a word with this many bytes of the name.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD_BYTES + 1)], np.uint64)
#: Upper bound on memory for the table of names as numbers: this much, or this many times their
#: text. One long name widens every row.
_ROOM_BYTES, _WIDEST = 64 << 10, 4

#: The light queues of a message: names, with its offset in each.
Places = tuple[tuple[str, int], ...]


class LightNames:
    """The light-queue names of some messages, in order. Not validated.

    A name's place is its index among the names of all messages.
    """

    def __init__(self, text: str, counts: Sequence[int]) -> None:
        """`text`: all names, separated by commas; `counts`: the number of names of each message.
        Raises ValueError if they do not match, or if columns do not pay: a name is empty, or much
        longer than the others."""
        data = np.frombuffer(b"".join((bytes(256), text.encode(), b",")), np.uint8)
        ends = np.flatnonzero(data == _COMMA)
        lengths = np.diff(ends, prepend=255) - 1
        if len(ends) != sum(counts) or not lengths.all():
            raise ValueError("names and counts differ, or a name is empty")
        longest = int(lengths.max())
        room_bytes = (-longest % _WORD_BYTES + longest) * len(ends)
        if longest > 255 or room_bytes > max(_ROOM_BYTES, _WIDEST * len(data)):
            raise ValueError(f"one of {longest} bytes")
        self.text = text
        self.counts = counts
        #: Bytes of each name.
        self.lengths: _Ints = lengths
        #: Where the names of each message begin, and where the last ones end.
        self.starts: _Ints = np.concatenate(([0], np.cumsum(counts)))
        #: The message of each name.
        self.messages: _Ints = np.repeat(np.arange(len(counts)), counts)
        self._words = _words(data, ends, lengths, longest)
        varying = [word for word in self._words if (word != word[0]).any()]
        # Numbers with nothing before them: shorter names come first, and those of one length rise.
        # The same ones stay as they are.
        if len(varying) == 1:
            self.order: _Ints = np.argsort(varying[0], kind="stable")
        elif varying:
            self.order = np.lexsort(varying)
        else:
            self.order = np.arange(len(ends))
        is_new = np.zeros(len(ends), np.bool_)
        is_new[0] = True
        for word in varying:
            rising = word[self.order]
            is_new[1:] |= rising[1:] != rising[:-1]
        #: For each place of `order`, which of the distinct names it has, counted from 0.
        self.groups: _Ints = np.cumsum(is_new) - 1
        self._are_different = bool(is_new.all())
        self._first_of_groups: _Ints = np.flatnonzero(is_new)

    def __len__(self) -> int:
        """Number of names, repeats included."""
        return len(self.lengths)

    @cached_property
    def flat(self) -> list[str]:
        """All names, in order."""
        return self.text.split(",")

    @cached_property
    def different(self) -> list[str]:
        """The distinct names."""
        if self._are_different:
            return self.flat
        flat = self.flat
        return [flat[at] for at in self.order[self._first_of_groups].tolist()]

    @property
    def repeat_in_a_message(self) -> bool:
        """Whether a message has a name twice."""
        if self._are_different:
            return False
        messages = self.messages[self.order]
        same = self.groups[1:] == self.groups[:-1]
        return bool((same & (messages[1:] == messages[:-1])).any())

    def of(self, message: int) -> tuple[str, ...]:
        start, end = self.starts[message : message + 2].tolist()
        return tuple(self.flat[start:end])

    def bytes_of(self, places: _Ints, length: int) -> npt.NDArray[np.uint8]:
        """The bytes of the names at these places, which all have `length` bytes; one row each."""
        count = -(-length // _WORD_BYTES)
        block = np.empty((len(places), count), ">u8")
        for at, word in enumerate(reversed(self._words[:count])):
            block[:, at] = word[places]
        return block.view(np.uint8)[:, count * _WORD_BYTES - length :]

    def take(self, offsets: _Ints) -> tuple[LightUnits, _Ints]:
        """Assign offsets from these next offsets of `different`. Returns the units, and the new
        next offsets."""
        if self._are_different:
            return LightUnits(self, offsets), offsets + 1
        firsts = self._first_of_groups
        taken = np.empty(len(self), np.int64)
        taken[self.order] = offsets[self.groups] + np.arange(len(self)) - firsts[self.groups]
        return LightUnits(self, taken), offsets + np.diff(firsts, append=len(self))


class LightUnits(Sequence[Places]):
    """The light queues of each message of a run. Built on demand; callers that use the columns
    never build them."""

    def __init__(self, names: LightNames, offsets: _Ints, messages: range | None = None) -> None:
        """`offsets`: of all names. `messages`: the range of messages covered; None for all."""
        self.names = names
        self._offsets = offsets
        self.messages = range(len(names.counts)) if messages is None else messages
        places = names.starts[[self.messages.start, self.messages.stop]]
        #: Places of their names.
        self.places = range(*places.tolist())

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, at: int) -> Places: ...
    @overload
    def __getitem__(self, at: slice) -> LightUnits: ...
    def __getitem__(self, at: int | slice) -> Places | LightUnits:
        """Slices must not have a step."""
        if isinstance(at, slice):
            return LightUnits(self.names, self._offsets, self.messages[at])
        message = self.messages[at]
        start, end = self.names.starts[message : message + 2].tolist()
        offsets = self._offsets[start:end].tolist()
        return tuple(zip(self.names.flat[start:end], offsets, strict=True))

    @property
    def counts(self) -> Sequence[int]:
        """Number of light queues of each message."""
        return self.names.counts[self.messages.start : self.messages.stop]

    @property
    def flat_names(self) -> list[str]:
        return self.names.flat[self.places.start : self.places.stop]

    @property
    def flat_offsets(self) -> _Ints:
        return self._offsets[self.places.start : self.places.stop]

    def offsets_at(self, places: _Ints) -> _Ints:
        return self._offsets[places]

    @property
    def order(self) -> tuple[_Ints, npt.NDArray[np.bool_]]:
        """Places in ascending order of names, equal names in message order; and whether each is the
        last of its name."""
        names = self.names
        order, groups = names.order, names.groups
        if len(self.places) < len(names):
            chosen = (order >= self.places.start) & (order < self.places.stop)
            order, groups = order[chosen], groups[chosen]
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = groups[1:] != groups[:-1]
        return order, is_last


def _words(
    data: npt.NDArray[np.uint8], ends: _Ints, lengths: _Ints, longest: int
) -> list[npt.NDArray[np.uint64]]:
    """Each name as numbers: eight bytes a word, from its end. At least one word of bytes must
    precede the first name."""
    unaligned = np.ndarray((len(data) - _WORD_BYTES + 1,), ">u8", data, strides=(1,))
    words = []
    for end in range(0, longest, _WORD_BYTES):
        word = unaligned[ends - (end + _WORD_BYTES)].astype(np.uint64)
        left = np.clip(lengths - end, 0, _WORD_BYTES)
        words.append(word & _MASKS[left])
    return words
