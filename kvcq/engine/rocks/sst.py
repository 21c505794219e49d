"""Sorted files that the engine ingests as a whole: far cheaper than writing rows one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocksdict import Cache, SstFileWriter

from kvcq.engine.rocks.failures import failure
from kvcq.engine.rocks.options import build_family_options
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kvcq.engine.protocol import Pair
    from kvcq.engine.rocks.options import FamilyProfile


class SstFile(NamedTuple):
    """A sorted file, ready for `ingest`."""

    path: Path
    rows: int
    first_key: bytes
    last_key: bytes


def write_sst(path: Path, rows: Iterable[Pair], family: FamilyProfile) -> SstFile | None:
    """Write rows with strictly ascending keys as a sorted file for `ingest`; None without rows.

    Durable on return, except for its directory entry. On an error no file is left. Raises
    InvalidArgumentError if keys are not ascending, EngineFailedError.
    """
    rest = iter(rows)
    first = next(rest, None)
    if first is None:
        return None
    written = 1
    key, value = first
    try:
        writer = SstFileWriter(build_family_options(family, Cache(0)))
        writer.open(str(path))
        writer[key] = value
        for written, (key, value) in enumerate(rest, 2):  # noqa: B007
            writer[key] = value
        writer.finish()
    except BaseException as error:
        path.unlink(missing_ok=True)
        if "strict ascending order" in str(error):
            raise InvalidArgumentError(
                "rows", f"key {key.hex()} is not above the one before"
            ) from error
        if type(error) is Exception:
            raise failure(f"file {path}", error) from error
        raise
    return SstFile(path, written, first[0], key)
