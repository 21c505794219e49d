"""The filter's arithmetic by the fake clock, and its work on real files."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine, write_sst
from kvcq.engine.rocks.expiry_filter import (
    JUMP_TOLERANCE_S,
    LATEST_STAMP_S,
    MAX_TTL_S,
    Arming,
    ExpiryFilter,
    choose_ttl_s,
    must_rearm,
)
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineClosedError, EngineFailedError
from kvcq.tables.values import expiry_stamp
from store.base import SystemClock
from tests.support.fake_clock import FakeClock
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = (b"", b"\xff" * 8)
MARGIN_S = 600
NOW_MS = 1_700_000_000_000


def unit(stamp_s: int) -> bytes:
    return os.urandom(28) + struct.pack("<i", stamp_s)


def rocksdb_drops(stamp_s: int, ttl_s: int | None, now_ms: int) -> bool:
    """RocksDB, TtlCompactionFilter: seconds only, both cut off."""
    return ttl_s is not None and stamp_s + ttl_s < now_ms // 1000


# --- arithmetic -------------------------------------------------------------------------------


def test_before_anything_was_dropped_there_is_no_filter() -> None:
    assert choose_ttl_s(NOW_MS, None, MARGIN_S) is None
    clock = FakeClock()
    engine = MemoryEngine(filtered=("default",), clock=clock)
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    clock.advance(10_000)
    assert not rule.tick()
    assert rule.line_s is None


@given(
    now_ms=st.integers(1_000_000_000_000, 4_000_000_000_000),
    age_ms=st.integers(-(10**10), 10**12),
    margin_s=st.integers(2, 10**5),
    ahead_ms=st.integers(0, 10**9),
)
def test_the_line_starts_a_margin_before_the_drop(
    now_ms: int, age_ms: int, margin_s: int, ahead_ms: int
) -> None:
    dropped_ms = now_ms - age_ms
    ttl_s = choose_ttl_s(now_ms, dropped_ms, margin_s)
    live_s = min((dropped_ms + ahead_ms) // 1000, LATEST_STAMP_S)
    assert not rocksdb_drops(live_s, ttl_s, now_ms)
    # Nor within the margin, whatever time it is then.
    assert not rocksdb_drops(live_s, ttl_s, now_ms + margin_s * 1000 - 1)
    if ttl_s is not None:
        assert 0 < ttl_s <= MAX_TTL_S
        if ttl_s < MAX_TTL_S:
            # What is older than the margin, and the second of rounding, goes.
            stamp_s = min(dropped_ms // 1000, LATEST_STAMP_S)
            assert rocksdb_drops(stamp_s - margin_s - 2, ttl_s, now_ms)


def test_a_drop_beyond_the_clock_arms_nothing() -> None:
    """The store time ran ahead of a clock that was set back: nothing is old enough to say."""
    assert choose_ttl_s(NOW_MS, NOW_MS + MARGIN_S * 1000, MARGIN_S) is None
    assert choose_ttl_s(NOW_MS, NOW_MS + MARGIN_S * 1000 - 1000, MARGIN_S) == 1


def test_when_to_set_it_again() -> None:
    armed = Arming(NOW_MS, 50.0, 7200)
    half = MARGIN_S / 2
    assert not must_rearm(armed, NOW_MS, 50.0, MARGIN_S)
    assert not must_rearm(armed, NOW_MS + int(half * 1000) - 100, 50.0 + half - 0.1, MARGIN_S)
    assert must_rearm(armed, NOW_MS + int(half * 1000), 50.0 + half, MARGIN_S)
    for jump in (-3600, -2, 2, 3600):
        assert abs(jump) > JUMP_TOLERANCE_S
        assert must_rearm(armed, NOW_MS + (10 + jump) * 1000, 60.0, MARGIN_S)
    assert not must_rearm(armed, NOW_MS + 10_500, 60.0, MARGIN_S)  # slewed
    # With a small margin a small jump counts.
    assert must_rearm(armed, NOW_MS + 600, 50.0, 2)


# --- the rule ---------------------------------------------------------------------------------


def line_s(rule: ExpiryFilter) -> int | None:
    return rule.line_s


class Recorder:
    """An engine that only notes how it was armed, and fails on request."""

    def __init__(self) -> None:
        self.armed: list[int | None] = []
        self.fails = 0
        self.without_too = False  # no filter cannot be set either
        self.error: type[Exception] = EngineFailedError

    def arm(self, ttl_s: int | None) -> None:
        if (ttl_s is not None or self.without_too) and self.fails:
            self.fails -= 1
            raise self.error("no room")
        self.armed.append(ttl_s)


def test_it_is_set_after_drops_on_time_and_on_jumps() -> None:
    clock, engine = FakeClock(NOW_MS), Recorder()
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    rule.dropped_up_to(NOW_MS - 3_600_000)
    assert engine.armed == [3600 + MARGIN_S]
    assert line_s(rule) == NOW_MS // 1000 - 3600 - MARGIN_S
    rule.dropped_up_to(NOW_MS - 3_600_000)  # nothing new
    rule.dropped_up_to(NOW_MS - 7_200_000)  # older: D only rises
    clock.advance(MARGIN_S / 2 - 1)
    assert not rule.tick()
    assert len(engine.armed) == 1
    assert line_s(rule) == NOW_MS // 1000 - 3600 - MARGIN_S / 2 - 1  # crept
    clock.advance(1)
    assert rule.tick()
    assert engine.armed[1:] == [3600 + MARGIN_S + MARGIN_S / 2]
    clock.jump(5000)
    assert rule.tick()
    assert engine.armed[2:] == [3600 + MARGIN_S + MARGIN_S / 2 + 5000]
    assert not rule.tick()
    clock.jump(-86400)  # now before the drop: no filter can say that
    assert rule.tick()
    assert engine.armed[3:] == [None]
    assert line_s(rule) is None
    clock.jump(86400)
    assert rule.tick()
    assert engine.armed[4:] == [3600 + MARGIN_S + MARGIN_S / 2 + 5000]
    rule.dropped_up_to(NOW_MS)
    assert engine.armed[5:] == [MARGIN_S + MARGIN_S / 2 + 5000]


def test_a_jump_that_took_the_line_past_live_units_is_told_once() -> None:
    clock, engine = FakeClock(NOW_MS), Recorder()
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    rule.dropped_up_to(NOW_MS - 3_600_000)
    clock.jump(MARGIN_S - 1)
    assert rule.tick()
    assert rule.dropped_too_early_ms() == 0  # within the margin
    clock.jump(MARGIN_S + 60)
    assert rule.tick()
    assert rule.dropped_too_early_ms() == NOW_MS - 3_600_000 + 60_000
    assert rule.dropped_too_early_ms() == 0
    clock.jump(MARGIN_S + 60)
    rule.dropped_up_to(NOW_MS - 3_600_000 + 60_000)  # as far as the line went
    assert rule.dropped_too_early_ms() == 0


def test_a_filter_that_cannot_be_set_is_taken_out() -> None:
    clock, engine = FakeClock(NOW_MS), Recorder()
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    rule.dropped_up_to(NOW_MS - 3_600_000)
    engine.fails = 2
    clock.advance(MARGIN_S / 2)
    for _ in range(2):
        with pytest.raises(EngineFailedError, match="no room"):
            rule.tick()
        assert engine.armed[-1] is None  # the old line does not creep on
        assert line_s(rule) is None
    assert rule.tick()
    assert engine.armed[-1] == 3600 + MARGIN_S + MARGIN_S / 2
    assert not rule.tick()


def test_what_a_filter_took_that_no_room_could_be_found_to_exchange_is_told() -> None:
    clock, engine = FakeClock(NOW_MS), Recorder()
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    rule.dropped_up_to(NOW_MS - 3_600_000)
    engine.fails, engine.without_too = 6, True
    for _ in range(3):
        clock.advance(MARGIN_S)
        with pytest.raises(EngineFailedError):
            rule.tick()
    assert engine.armed == [3600 + MARGIN_S]
    # The line is a margin older than the drop at first.
    assert rule.dropped_too_early_ms() == NOW_MS - 3_600_000 + 2 * MARGIN_S * 1000
    engine.fails, engine.without_too = 0, False
    assert rule.tick()
    assert rule.dropped_too_early_ms() > 0  # until it was set
    clock.advance(MARGIN_S)
    rule.tick()
    assert rule.dropped_too_early_ms() == 0


def test_a_closed_engine_is_left_alone() -> None:
    clock, engine = FakeClock(NOW_MS), Recorder()
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    engine.fails, engine.error = 1, EngineClosedError
    with pytest.raises(EngineClosedError):
        rule.dropped_up_to(NOW_MS)
    assert engine.armed == []


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, float]]:
    passing = st.tuples(st.just("pass"), st.sampled_from((1.0, MARGIN_S / 8, MARGIN_S / 4)))
    step = st.one_of(
        passing,
        st.lists(passing, min_size=8, max_size=8),
        st.tuples(st.just("jump"), st.floats(-(10.0**6), MARGIN_S / 4)),
        st.tuples(st.just("far jump"), st.floats(-(10.0**7), 10.0**7)),
        st.tuples(st.just("append"), st.just(0.0)),
        st.tuples(st.just("drop"), st.floats(0, 1)),
    )
    drawn = draw(st.lists(step, max_size=30))
    return [one for some in drawn for one in (some if isinstance(some, list) else [some])]


@given(history=histories())
def test_no_live_unit_is_dropped_whatever_the_clock_does(
    history: list[tuple[str, float]],
) -> None:
    """The store as the filter sees it: store times that never fall, drops from the oldest on.

    A compaction runs after every step; a far jump is noticed by a tick before one runs.
    """
    clock = FakeClock(NOW_MS)
    engine = MemoryEngine(filtered=("default",), clock=clock)
    rule = ExpiryFilter(engine, clock, MARGIN_S)
    live: dict[bytes, bytes] = {}
    store_time_ms = appended = dropped_s = 0
    for what, amount in [("append", 0.0), ("append", 0.0), ("drop", 0.5), *history]:
        if what == "pass":
            clock.advance(amount)
        elif what == "jump":
            clock.jump(amount)
        elif what == "far jump":
            clock.jump(amount)
            rule.tick()
        elif what == "append":
            store_time_ms = max(store_time_ms, clock.now_ms())
            key, value = b"%06d" % appended, unit(store_time_ms // 1000)
            live[key] = value
            engine.write(KvBatch(puts={"default": [(key, value)]}))
            appended += 1
        elif live:
            last_ms = 0
            for key in sorted(live)[: round(amount * len(live))]:
                (stamp_s,) = struct.unpack("<i", live.pop(key)[-4:])
                last_ms = stamp_s * 1000
            if last_ms:
                rule.dropped_up_to(last_ms)
                dropped_s = last_ms // 1000
        line_s = rule.line_s
        assert line_s is None or line_s <= dropped_s
        engine.compact("default")
        found = dict(engine.scan("default", *ALL))
        assert {key: found.get(key) for key in live} == live
        # The owner ticks between steps; each takes at most a quarter of the margin.
        rule.tick()
    # Time passes: what was dropped is gone when it is older than the margin.
    if rule.line_s is not None:
        engine.compact("default")
        for _, value in engine.scan("default", *ALL):
            assert struct.unpack("<i", value[-4:])[0] >= rule.line_s


# --- on real files ----------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    yield opened
    opened.close()


def deletions(engine: RocksEngine) -> int:
    opened = engine._gate.enter()
    try:
        return sum(file["num_deletions"] for file in opened.db.live_files())
    finally:
        del opened
        engine._gate.leave()


def test_the_database_shrinks_and_not_one_delete_is_written(
    engine: RocksEngine, tmp_path: Path
) -> None:
    clock = SystemClock()
    now_s = clock.now_ms() // 1000
    dropped_s = now_s - 3600
    # Old ones, some at the very line, live ones; half written, half brought in as a file.
    stamps = [now_s - 90_000] * 4000 + [dropped_s - 60] * 10 + [dropped_s] * 10 + [now_s] * 1000
    rows = [(b"%06d" % number, unit(stamp)) for number, stamp in enumerate(stamps)]
    for family in DERIVED.names:
        engine.write(KvBatch(puts={family: rows[::2]}))
    file = write_sst(tmp_path / "a.sst", rows[1::2], DERIVED.families[0])
    assert file is not None
    engine.ingest("default", [file.path], move=True)
    engine.compact("default")
    before = engine.statistics()
    assert before["default.estimated_keys"] == len(rows)

    rule = ExpiryFilter(engine, clock, margin_s=60)
    rule.dropped_up_to(dropped_s * 1000)
    for family in DERIVED.names:
        engine.compact(family)

    live = dict(rows[4010:])  # at the line or above it
    for family in ("default", "index"):
        found = dict(engine.scan(family, *ALL))
        expected = live if family == "default" else dict(set(rows[::2]) & set(live.items()))
        assert {key: found.get(key) for key in expected} == expected
        assert not found.keys() & {key for key, _ in rows[:4000]}
    after = engine.statistics()
    assert after["default.sst_bytes"] < before["default.sst_bytes"] / 3
    assert deletions(engine) == 0
    assert engine.scan("offset", *ALL) == rows[::2]


def test_automatic_compactions_drop_too(engine: RocksEngine) -> None:
    now_s = int(time.time())
    engine.arm(1000)
    files = DERIVED.families[0].l0_compact  # as many in L0 as start a compaction
    for number in range(files):
        # Ranges that overlap: else the files are moved as they are, past the filter.
        rows = [(b"dead%d" % number, unit(now_s - 5000)), (b"live%d" % number, unit(now_s))]
        engine.write(KvBatch(puts={"default": rows}))
        engine.flush()
    end_s = time.monotonic() + 30
    while len(engine.scan("default", *ALL)) != files and time.monotonic() < end_s:
        engine.flush()
    assert [key for key, _ in engine.scan("default", *ALL)] == [
        b"live%d" % number for number in range(files)
    ]


def test_a_clock_that_is_wrong_all_the_time_cancels_out(engine: RocksEngine) -> None:
    """Store times from a clock a year ahead: the drop's store time is from the same clock."""
    clock = SystemClock()
    ahead_s = clock.now_ms() // 1000 + 365 * 86400
    rows = [(b"live", unit(ahead_s)), (b"next", unit(ahead_s + 5))]
    engine.write(KvBatch(puts={"default": rows}))
    rule = ExpiryFilter(engine, clock, margin_s=60)
    rule.dropped_up_to(ahead_s * 1000)
    engine.compact("default")
    assert engine.scan("default", *ALL) == rows


def test_the_longest_ttl_drops_nothing(engine: RocksEngine) -> None:
    """The sum of stamp and ttl does not overflow in RocksDB."""
    now_s = int(time.time())
    rows = [(b"%d" % number, unit(stamp)) for number, stamp in enumerate((0, now_s, 2**31 - 1))]
    engine.write(KvBatch(puts={"default": rows}))
    engine.arm(MAX_TTL_S)
    engine.compact("default")
    assert engine.scan("default", *ALL) == rows


def test_the_line_is_never_behind_the_latest_stamp() -> None:
    """Rows of records that are stored later have that stamp: they are not dropped for it."""
    assert expiry_stamp(1 << 60) == LATEST_STAMP_S.to_bytes(4, "little")
    for now_s in (LATEST_STAMP_S - 100, LATEST_STAMP_S + 100, LATEST_STAMP_S + 10_000_000):
        for dropped_s in (now_s - 1000, now_s):
            ttl_s = choose_ttl_s(now_s * 1000, dropped_s * 1000, 60)
            assert ttl_s is not None
            assert now_s - ttl_s == min(dropped_s, LATEST_STAMP_S) - 60
