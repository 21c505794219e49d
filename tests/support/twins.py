"""The tests of a module once more, under a fixture of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def twins_of(module: ModuleType) -> dict[str, object]:
    """Its tests, named after it, and its fixtures: for `globals().update`."""
    name = module.__name__.rpartition(".")[2]
    return {
        key.replace("test", name, 1) if key.startswith("test_") else key: value
        for key, value in vars(module).items()
        if key.startswith("test_") or getattr(value, "_fixture_function", None) is not None
    }
