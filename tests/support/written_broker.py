"""Directories as a RocketMQ broker leaves them, written plainly, with topics deleted on the way.

Log by `LogWriter`, queue files packed unit by unit: no code of ours makes what is tested.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from migration.state.state import FileLayout
from tests.support.log_writer import Entry, LogWriter, Row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SEGMENT_BYTES = 1 << 16
UNITS_PER_FILE = 16
LAYOUT = FileLayout(UNITS_PER_FILE, 1009, 5000)
_FILE_BYTES = UNITS_PER_FILE * 20

QueueKey = tuple[str, int]


class BrokerStore:
    """Puts and deletes as a broker does them; `stop` or `kill` leaves the directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = LogWriter(root / "commitlog", SEGMENT_BYTES, crc_item=False)
        self.units: dict[QueueKey, list[Row]] = {}  # what a reader of the broker sees
        self.topics: dict[str, int] = {}
        self.attributes: dict[str, dict[str, str]] = {}  # of topics

    def create(self, topic: str, queue_count: int = 1) -> None:
        self.topics[topic] = queue_count

    def put(
        self,
        topic: str,
        count: int = 1,
        *,
        queue_id: int = 0,
        light: tuple[str, ...] = (),
        keys: str = "",
        offset: int | None = None,
        properties: Mapping[str, str] | None = None,
        body: bytes | None = None,
        store_time_ms: int = 1_700_000_000_456,
        reconsume_times: int = 0,
    ) -> list[Row]:
        """Messages whose bodies tell them apart. `offset`: of the first, where the broker erred.

        As the original does it: a record at an offset that its queue has is passed over, one beyond
        the queue's end gets the next unit all the same.
        """
        assert 0 <= queue_id < self.topics[topic]
        rows = []
        for _ in range(count):
            row = self.log.append(
                Entry(
                    topic=topic,
                    body=b"message %06d" % len(self.log.rows) if body is None else body,
                    queue_id=queue_id,
                    properties={**({"KEYS": keys} if keys else {}), **(properties or {})},
                    store_time_ms=store_time_ms,
                    reconsume_times=reconsume_times,
                    light_queues=light,
                    queue_offset=offset,
                )
            )
            offset = None
            mine = self.units.setdefault((topic, queue_id), [])
            if not mine or row.queue_offset > mine[-1].queue_offset:
                mine.append(row)
            for name, _ in row.light:
                self.units.setdefault((name, 0), []).append(row)
            rows.append(row)
        return rows

    def delete(self, name: str) -> None:
        """A topic or light queue: its queues are gone, and count from 0 when they come back."""
        self.topics.pop(name, None)
        for key in [key for key in self.units if key[0] == name]:
            del self.units[key]
            self.log.forget(key)

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """What a consumer of the broker reads."""
        return [row.entry.body for row in self.units.get((topic, queue_id), [])]

    def stop(self, *, without: tuple[QueueKey, ...] = ()) -> Path:
        """A clean stop. `without`: queues whose files are lost."""
        self._write(self.log.end, without)
        return self.root

    def kill(self, dispatched: int, *, without: tuple[QueueKey, ...] = ()) -> Path:
        """Killed when the queues had what lies below the physical offset `dispatched`."""
        self._write(dispatched, without)
        (self.root / "abort").write_bytes(b"")
        return self.root

    def _write(self, dispatched: int, without: tuple[QueueKey, ...]) -> None:
        self.log.flush()
        (self.root / "config").mkdir(exist_ok=True)
        table = {
            name: {
                "attributes": self.attributes.get(name, {}),
                "readQueueNums": count,
                "writeQueueNums": count,
            }
            for name, count in self.topics.items()
        }
        document = json.dumps({"topicConfigTable": table})
        (self.root / "config" / "topics.json").write_text(document)
        (self.root / "consumequeue").mkdir()
        for key, rows in self.units.items():
            mine = [row for row in rows if row.physical_offset < dispatched]
            if mine and key not in without:
                self._write_queue(key, mine)

    def _write_queue(self, key: QueueKey, rows: list[Row]) -> None:
        directory = self.root / "consumequeue" / key[0] / str(key[1])
        directory.mkdir(parents=True)
        files: dict[int, bytearray] = {}
        first = rows[0]
        begin = first.queue_offset if key[0] == first.entry.topic else dict(first.light)[key[0]]
        for offset, row in enumerate(rows, begin):
            start, position = divmod(offset * 20, _FILE_BYTES)
            file = files.setdefault(start, bytearray(_FILE_BYTES))
            unit = struct.pack(">qiq", row.physical_offset, len(row.record), row.tag_code)
            file[position : position + 20] = unit
        for number, data in files.items():
            (directory / f"{number * _FILE_BYTES:020d}").write_bytes(data)
