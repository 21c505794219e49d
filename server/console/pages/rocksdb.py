"""The state of RocksDB: tables and memtables of each column family, write stalls, and the snapshots
from which the state could be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.page import Page

if TYPE_CHECKING:
    from aiohttp import web

    from server.console.visit import Visit

_PREFIX = "kvcq."
_SNAPSHOTS = "store.snapshots."


async def _show(visit: Visit) -> web.StreamResponse:
    answer = await visit.ask("GetStatistics", pb.GetStatisticsRequest(), pb.GetStatisticsResponse)
    numbers: dict[str, float] = {}
    families: dict[str, dict[str, float]] = {}
    for name, value in sorted(answer.values.items()):
        if not name.startswith(_PREFIX):
            continue
        family, dot, what = name.removeprefix(_PREFIX).rpartition(".")
        if dot:
            families.setdefault(family, {})[what] = value
        else:
            numbers[what] = value
    columns = sorted({what for family in families.values() for what in family})
    return visit.html(
        "rocksdb.html",
        families=families,
        columns=columns,
        numbers=numbers,
        snapshots={
            name.removeprefix(_SNAPSHOTS): value
            for name, value in answer.values.items()
            if name.startswith(_SNAPSHOTS)
        },
        has_stopped=bool(numbers.get("write_stopped")),
        is_slowed=bool(numbers.get("delayed_write_bytes_per_s")),
        errors=numbers.get("background_errors", 0),
    )


PAGE = Page("rocksdb", "/rocksdb", {"/rocksdb": _show})
