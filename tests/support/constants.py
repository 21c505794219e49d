"""Constants of the program with other values, for tests in which rare things happen often."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def set_constants(values: Mapping[str, object]) -> None:
    """For the rest of this process, by their whole names.

    `store.config.StoreConfig.kv_flush_bytes` is what a field of StoreConfig has that nobody sets.
    """
    for name, value in values.items():
        owner, _, constant = name.rpartition(".")
        module, _, kind = owner.rpartition(".")
        if kind[:1].isupper():
            getattr(import_module(module), kind).__init__.__kwdefaults__[constant] = value
        else:
            setattr(import_module(owner), constant, value)
