"""Data sources and sinks for `spark.read.format` and `writeStream.format`: `kvcq`, `commitlog`,
`consumequeue`.

Only `kvcq` uses the service's client; a task on files does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.spark.source.registration import register_sources

if TYPE_CHECKING:
    from migration.spark.source.kvcq_source import KvcqSource

__all__ = ["KvcqSource", "register_sources"]


def __getattr__(name: str) -> object:
    """Imports `KvcqSource` on first use."""
    if name != "KvcqSource":
        raise AttributeError(name)
    from migration.spark.source.kvcq_source import KvcqSource

    return KvcqSource
