"""Runs the Java program beside this file: the released RocketMQ store writes and reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.maven import build

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT = Path(__file__).parent
STORE_TYPES = {"files": "default", "rocksdb": "defaultRocksDB"}

#: A run takes about ten seconds; three of them are a fixed sleep in RocketMQ's shutdown.
TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the files in a store, which RocketMQ must be told: it keeps them nowhere."""

    segment_bytes: int
    units_per_file: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    crc_item: bool = False

    def flags(self) -> list[str]:
        return [
            f"-DsegmentBytes={self.segment_bytes}",
            f"-DunitsPerFile={self.units_per_file}",
            f"-DindexSlots={self.index_slots}",
            f"-DindexEntries={self.index_entries}",
            f"-DcrcItem={str(self.crc_item).lower()}",
        ]


class Judge:
    """The compiled program. Building it needs a JDK, Maven and the network, the first time."""

    def __init__(self) -> None:
        self._classpath = build(PROJECT)

    def write(self, scenario: str, root: Path, *, seed: int, count: int) -> None:
        """A new store in `root`, of about `count` messages; same seed, same messages."""
        self._run([], "write", scenario, str(root), str(seed), str(count))

    def read(self, root: Path, view: str, shape: Shape) -> dict[str, Any]:
        """What RocketMQ reads in `root`; `view` is files or rocksdb. Works on a copy."""
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "store"
            shutil.copytree(root, copy)
            answer = Path(scratch) / "answer.json"
            self._run(shape.flags(), "read", STORE_TYPES[view], str(copy), str(answer))
            document: dict[str, Any] = json.loads(answer.read_bytes())
            return document

    def _run(self, flags: list[str], *arguments: str) -> None:
        with tempfile.TemporaryDirectory() as home:
            command = ["java", "-Xmx1g", f"-Duser.home={home}", *flags]  # RocksDB logs go home
            command += ["-cp", self._classpath, "kvcq.interop.Main", *arguments]
            done = subprocess.run(
                command, check=False, timeout=TIMEOUT_S, capture_output=True, text=True
            )
        if done.returncode != 0:
            complaint = done.stderr[-4000:]
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{complaint}")


def merge_views(views: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One document of what RocketMQ read through each view; log and keys must be the same."""
    first = next(iter(views.values()))
    for name, view in views.items():
        for part in ("log_start", "log_end", "records", "blanks", "key_queries"):
            if view[part] != first[part]:
                raise AssertionError(f"RocketMQ reads another {part} through {name}")
    return {
        "log": {
            "start": first["log_start"],
            "end": first["log_end"],
            "records": first["records"],
            "blanks": first["blanks"],
        },
        "queues": {name: view["queues"] for name, view in views.items()},
        "key_queries": first["key_queries"],
    }
