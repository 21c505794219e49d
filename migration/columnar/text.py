"""Bytes as text, in bulk."""

from __future__ import annotations

import pyarrow as pa


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as strings; what is no UTF-8 gets replacement marks, as Java puts them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if raw is None else raw.decode("utf-8", "replace") for raw in values.to_pylist()
        ]
        return pa.array(texts, pa.string())


def is_text(values: pa.BinaryArray) -> bool:
    """Whether all of the values are UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
