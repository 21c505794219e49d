"""A directory whose broker was stopped while messages waited in topics of its own."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from tests.support.log_writer import DELAY_SECONDS
from tests.support.written_broker import BrokerStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.log_writer import Row

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMERS = "rmq_sys_wheel_timer"
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
ENDED = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class WaitingBroker(BrokerStore):
    """Puts as the broker does, in its own topics; what was delivered is put in the real topic."""

    def __init__(self, root: Path, now_ms: int) -> None:
        super().__init__(root)
        self.now_ms = now_ms
        self.create("orders", 2)
        self.create(SCHEDULE, 18)
        for topic in (TIMERS, HALVES, ENDED):
            self.create(topic)
        self.delivered_levels: dict[int, int] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        self.groups: dict[str, dict[str, object]] = {}
        #: Physical offset of a timer, slot, magic.
        self.wheel: list[tuple[int, int, int]] = []

    def _own(self, name: str, topic: str, more: dict[str, str]) -> dict[str, str]:
        return {"UNIQ_KEY": name, "REAL_TOPIC": topic, "REAL_QID": "1", "own": name, **more}

    def delay(self, name: str, level: int, topic: str = "orders") -> Row:
        more = self._own(name, topic, {"DELAY": str(level)})
        (row,) = self.put(
            SCHEDULE,
            queue_id=level - 1,
            properties=more,
            body=name.encode(),
            store_time_ms=self.now_ms,
        )
        return row

    def due_ms(self, level: int) -> int:
        return self.now_ms + DELAY_SECONDS[level - 1] * 1000

    def timer(self, name: str, due_ms: int, topic: str = "orders", **more: str) -> Row:
        times = {"TIMER_OUT_MS": str(due_ms), "TIMER_DELIVER_MS": str(due_ms)}
        (row,) = self.put(
            TIMERS, properties=self._own(name, topic, {**times, **more}), body=name.encode()
        )
        return row

    def enqueue(self, row: Row, slot_ms: int, magic: int = 1) -> None:
        """It is in the wheel."""
        self.wheel.append((row.physical_offset, slot_ms, magic))

    def half(self, name: str, topic: str = "orders", **more: str) -> Row:
        properties = self._own(name, topic, {"PGROUP": "producers", "TRAN_MSG": "true", **more})
        (row,) = self.put(HALVES, properties=properties, body=name.encode())
        return row

    def end(self, *rows: Row) -> None:
        """These halves are decided."""
        body = "".join(f"{row.queue_offset}," for row in rows).encode()
        self.put(ENDED, properties={"TAGS": "d"}, body=body)

    def deliver(self, name: str, topic: str = "orders") -> None:
        """It is in the topic that it was for."""
        self.put(topic, properties={"UNIQ_KEY": name, "own": name}, body=name.encode())

    def stop(self, *, read_ms: int | None = None, next_timer: int | None = None) -> Path:  # type: ignore[override]
        """`read_ms`, `next_timer`: what `timercheck` says; without them there is none."""
        root = super().stop()
        self.write_config(root, read_ms, next_timer)
        return root

    def write_config(self, root: Path, read_ms: int | None, next_timer: int | None) -> None:
        config = root / "config"
        table = ",".join(f"{level}:{at}" for level, at in self.delivered_levels.items())
        (config / "delayOffset.json").write_text(f'{{"offsetTable":{{{table}}}}}')
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": self.offsets}))
        (config / "subscriptionGroup.json").write_text(
            json.dumps({"subscriptionGroupTable": self.groups})
        )
        if read_ms is None or next_timer is None:
            return
        head = struct.pack(">qqqqqqq", read_ms, 0, next_timer, next_timer, 0, 0, 0)
        (config / "timercheck").write_bytes(head.ljust(4096, b"\0"))
        (root / "timerlog").mkdir()
        data = b"".join(
            struct.pack(">iqiqiqiiq", 52, -1, magic, slot - 1000, 1000, physical, 100, 0, 0)
            for physical, slot, magic in self.wheel
        )
        (root / "timerlog" / f"{0:020d}").write_bytes(data.ljust(5200, b"\0"))
