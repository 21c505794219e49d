"""Bulk reads at unaligned positions of a buffer, which make the decoder fast.

Copying headers through an overlapping view takes some ten nanoseconds a record; a loop with
`struct.unpack_from` takes over ten times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def gather(data: Bytes, dtype: np.dtype[np.void] | str, at: Ints) -> npt.NDArray[np.void]:
    """Items of `dtype` that begin at each of `at`; all must be completely in `data`."""
    wanted = np.dtype(dtype)
    if not len(at):
        return np.empty(0, dtype=wanted)
    return overlapping(data, wanted.itemsize)[at].view(wanted)


def overlapping(data: Bytes, size: int) -> npt.NDArray[np.void]:
    """A view with an item of `size` bytes at each position of `data`. The items are raw, because
    numpy would byte-swap each integer of a typed view separately."""
    shape = (len(data) - size + 1,)
    return np.ndarray(shape=shape, dtype=f"V{size}", buffer=data.data, strides=(1,))


def gather_ints(data: Bytes, dtype: str, at: Ints) -> Ints:
    """Big-endian integers of `dtype` at each of `at`, as int64."""
    return gather(data, dtype, at).astype(np.int64)
