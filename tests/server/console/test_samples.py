"""Lines of the charts: rates of counters, levels as they are, gaps where nothing is known."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from server.console import samples as module
from server.console.samples import KEPT_SAMPLES, LINES, Samples, keep_sampling

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_counters_become_rates() -> None:
    samples = Samples()
    samples.take(
        100,
        {
            "server.messages_put": 10,
            "server.calls.Put": 1,
            "store.log_appended_offset": 5000,
        },
    )
    assert samples.columns()["time"] == []  # one sample has no rate
    samples.take(
        102,
        {
            "server.messages_put": 30,
            "server.calls.Put": 5,
            "server.calls.Pull": 2,
            "server.refusals.Put.DISK_FULL": 1,
            "store.log_appended_offset": 9000,
            "store.flush_behind_bytes": 7,
        },
    )
    assert samples.columns() == {
        "time": [102],
        "put": [10.0],
        "pulled": [0.0],
        "appendedBytes": [2000.0],
        "calls": [3.0],
        "refusals": [0.5],
        "dispatchBehind": [None],
        "flushBehind": [7],
    }


def test_the_store_that_is_just_open_has_no_rate_yet() -> None:
    samples = Samples()
    samples.take(100, {})
    samples.take(102, {"store.log_appended_offset": 1 << 40})
    samples.take(104, {"store.log_appended_offset": (1 << 40) + 20})
    assert samples.columns()["appendedBytes"] == [None, 10.0]


def test_a_clock_that_goes_back_and_a_counter_that_falls_do_no_harm() -> None:
    samples = Samples()
    samples.take(100, {"server.messages_put": 10})
    samples.take(99, {"server.messages_put": 20})
    samples.take(101, {"server.messages_put": 4})
    assert samples.columns()["time"] == [101]
    assert samples.columns()["put"] == [0.0]


def test_ten_minutes_are_kept() -> None:
    samples = Samples()
    for number in range(KEPT_SAMPLES + 10):
        samples.take(number * 2, {})
    columns = samples.columns()
    assert set(columns) == {"time", *LINES}
    assert {len(column) for column in columns.values()} == {KEPT_SAMPLES}
    assert columns["time"][0] == 20.0


async def test_what_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_S", 0)
    samples, enough, asked = Samples(), asyncio.Event(), 0

    async def read() -> Mapping[str, float]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError("the store is gone")
        if asked > 3:
            enough.set()
        return {"server.messages_put": asked}

    task = asyncio.create_task(keep_sampling(samples, read, lambda: float(asked)))
    await enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert samples.columns()["time"][0] == 3
    assert samples.columns()["put"][0] == 1.0
