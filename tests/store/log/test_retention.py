"""Which segments go, and which never do."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.config import StoreConfig
from store.errors import CorruptRecordError
from store.log.disk import DiskGuard, DiskLevel
from store.log.retention import DropPlan, RetentionService, plan_drop
from store.log.segment_set import SegmentSet
from store.log.store_times import StoreTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store.log.segment import Segment

SIZE = 8192
HOUR_MS = 3_600_000


@dataclass
class Fake:
    """A segment as the decision sees it. Its time may be an error."""

    start_offset: int
    stored_ms: int | Exception
    size: int = 100
    appended: int = 100
    flushed: int = 100


def fakes(*times: int | Exception) -> list[Fake]:
    return [Fake(number * 100, stored_ms) for number, stored_ms in enumerate(times)]


def stored_ms(segment: Fake) -> int:
    if isinstance(segment.stored_ms, Exception):
        raise segment.stored_ms
    return segment.stored_ms


def plan(
    segments: list[Fake],
    *,
    now_ms: int = 1000,
    level: DiskLevel = DiskLevel.NORMAL,
    time_up: bool = True,
    batch_max: int = 10,
    safe_end: int = 1 << 60,
    reclaim_unexpired: bool = False,
) -> DropPlan[Fake]:
    return plan_drop(
        segments,
        stored_ms,
        now_ms=now_ms,
        reserved_ms=100,
        level=level,
        time_up=time_up,
        batch_max=batch_max,
        safe_end=safe_end,
        reclaim_unexpired=reclaim_unexpired,
    )


def count(found: DropPlan[Fake]) -> int:
    return len(found.drop)


def test_expired_ones_go_up_to_the_first_that_is_not() -> None:
    segments = fakes(800, 900, 901, 850, 950)
    assert list(plan(segments).drop) == segments[:2]


def test_nothing_goes_outside_the_hour_while_the_disk_has_space() -> None:
    assert count(plan(fakes(1, 2, 3), time_up=False)) == 0


def test_above_the_first_level_expired_ones_go_at_any_hour() -> None:
    assert count(plan(fakes(1, 2, 950, 960), time_up=False, level=DiskLevel.CLEAN)) == 2


@pytest.mark.parametrize("level", list(DiskLevel))
def test_what_has_not_expired_stays_however_full_the_disk_is(level: DiskLevel) -> None:
    assert count(plan(fakes(901, 995, 999), level=level)) == 0
    assert count(plan(fakes(1, 2, 995, 999), level=level)) == 2


@pytest.mark.parametrize("level", [DiskLevel.CLEAN_FORCIBLY, DiskLevel.FULL])
def test_above_the_second_level_age_does_not_matter_where_the_operator_said_so(
    level: DiskLevel,
) -> None:
    found = plan(fakes(990, 995, 999), time_up=False, level=level, reclaim_unexpired=True)
    assert count(found) == 2


def test_below_the_second_level_what_the_operator_said_changes_nothing() -> None:
    assert count(plan(fakes(990, 995, 999), level=DiskLevel.CLEAN, reclaim_unexpired=True)) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_the_last_segment_never_goes(number: int) -> None:
    assert count(plan(fakes(*range(number)), level=DiskLevel.FULL)) == 0


def test_no_more_than_a_batch_goes() -> None:
    assert count(plan(fakes(*range(20)), batch_max=3)) == 3


@pytest.mark.parametrize("level", list(DiskLevel))
@pytest.mark.parametrize("error", [OSError(errno.EIO, "planted"), CorruptRecordError(0, "planted")])
def test_a_read_error_is_never_taken_for_expiry(level: DiskLevel, error: Exception) -> None:
    found = plan(fakes(1, error, 3, 4), level=level)
    assert count(found) == 1
    assert found.read_error is error


def test_what_is_not_flushed_or_not_dispatched_stays() -> None:
    segments = fakes(1, 2, 3, 4)
    full = DiskLevel.FULL
    assert count(plan(segments, level=full, safe_end=199, reclaim_unexpired=True)) == 1
    segments[0].flushed = 99
    assert count(plan(segments, level=full, reclaim_unexpired=True)) == 0


@given(
    times=st.lists(st.one_of(st.integers(0, 1000), st.just(OSError("planted"))), max_size=8),
    level=st.sampled_from(list(DiskLevel)),
    time_up=st.booleans(),
    batch_max=st.integers(1, 9),
    safe_end=st.integers(0, 900),
    reclaim_unexpired=st.booleans(),
)
def test_what_goes_is_a_run_of_segments_that_may_go(
    times: list[int | Exception],
    level: DiskLevel,
    time_up: bool,
    batch_max: int,
    safe_end: int,
    reclaim_unexpired: bool,
) -> None:
    segments = fakes(*times)
    found = plan(
        segments,
        level=level,
        time_up=time_up,
        batch_max=batch_max,
        safe_end=safe_end,
        reclaim_unexpired=reclaim_unexpired,
    )
    number = count(found)
    assert list(found.drop) == segments[:number]
    assert number <= max(0, min(batch_max, len(segments) - 1))
    for segment in found.drop:
        assert not isinstance(segment.stored_ms, Exception)
        assert segment.start_offset + segment.size <= safe_end
        if level < DiskLevel.CLEAN_FORCIBLY or not reclaim_unexpired:
            assert time_up or level >= DiskLevel.CLEAN
            assert segment.stored_ms <= 900


# --- the service, on real files --------------------------------------------------------------


class FakeClock:
    """Stands where the test puts it."""

    milliseconds = 1_000 * HOUR_MS

    def now_ms(self) -> int:
        return self.milliseconds

    def monotonic_s(self) -> float:
        return self.milliseconds / 1000


class Setting:
    """Five segments; segment k was last stored in hour 900 + k."""

    def __init__(self, root: Path, *, reclaim_unexpired: bool | None = None) -> None:
        self.clock = FakeClock()
        self.ratio = 0.5
        self.hour = 4
        self.safe_end = 1 << 60
        self.reported: list[int] = []
        config = StoreConfig(root=root, segment_bytes=SIZE, reclaim_unexpired=reclaim_unexpired)
        self.segments = SegmentSet.load(root / "commitlog", SIZE)
        for _ in range(5):
            self.segments.roll().append(b"x")
        self.segments.flush()
        self.guard = DiskGuard(root, config, lambda _: self.ratio)
        self.service = RetentionService(
            self.segments,
            self.guard,
            config,
            StoreTimes(self.clock),
            newest_time_ms=lambda segment: self.newest(segment),
            safe_end=lambda: self.safe_end,
            on_dropped=self.reported.append,
            hour=lambda _: self.hour,
        )
        self.newest: Callable[[Segment], int] = self.hour_of

    @staticmethod
    def hour_of(segment: Segment) -> int:
        return (900 + segment.start_offset // SIZE) * HOUR_MS

    def files(self) -> int:
        return len(list(self.segments.directory.iterdir()))


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    made.segments.close()


def test_after_72_hours_at_04_segments_go_and_that_is_reported(setting: Setting) -> None:
    setting.clock.milliseconds = (901 + 72) * HOUR_MS
    assert setting.service.run_once() == 2
    assert setting.segments.first_offset == 2 * SIZE
    assert setting.reported == [2 * SIZE]
    assert setting.files() == 3
    assert setting.service.run_once() == 0
    assert len(setting.reported) == 1


def test_at_another_hour_they_stay_unless_told_otherwise(setting: Setting) -> None:
    setting.hour = 5
    assert setting.service.run_once() == 0
    assert setting.service.run_once(now=True) == 4


@pytest.mark.parametrize("ratio", [0.86, 0.95, 1.0])
def test_a_full_disk_keeps_young_segments_and_refuses_puts_until_there_is_room(
    setting: Setting, ratio: float
) -> None:
    setting.clock.milliseconds = (901 + 72) * HOUR_MS
    setting.hour = 12
    setting.ratio = ratio
    assert setting.service.run_once() == 2, "expired ones go at any hour"
    assert setting.service.run_once() == 0
    assert setting.files() == 3
    assert setting.guard.refuses_puts is (ratio > 0.9)
    setting.ratio = 0.85
    setting.service.run_once()
    assert not setting.guard.refuses_puts


def test_a_full_disk_drops_young_segments_where_the_operator_said_so(tmp_path: Path) -> None:
    setting = Setting(tmp_path, reclaim_unexpired=True)
    setting.clock.milliseconds = 904 * HOUR_MS
    setting.hour = 12
    setting.ratio = 0.95

    def emptier(_start: int) -> None:
        setting.ratio = 0.5

    setting.service._on_dropped = emptier
    assert setting.service.run_once() == 4
    assert len(setting.segments) == 1
    assert not setting.guard.refuses_puts
    setting.segments.close()


def test_read_error_is_counted_and_reported(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(segment: Segment) -> NoReturn:
        raise CorruptRecordError(segment.start_offset, "planted")

    setting.newest = broken
    setting.ratio = 0.99
    assert setting.service.run_once() == 0
    assert setting.service.read_errors == 1
    assert "planted" in caplog.text
    assert setting.files() == 5


def test_a_file_that_cannot_be_removed_stays_in_the_log(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = type(setting.segments).drop_first
    drops: list[int] = []

    def second_fails(segments: SegmentSet) -> Segment:
        drops.append(1)
        if len(drops) == 2:
            raise OSError(errno.EROFS, "planted")
        return unlink(segments)

    monkeypatch.setattr(SegmentSet, "drop_first", second_fails)
    with pytest.raises(OSError, match="planted"):
        setting.service.run_once()
    assert setting.reported == [SIZE]
    assert setting.files() == 4


def test_nothing_that_is_not_dispatched_goes(setting: Setting) -> None:
    setting.safe_end = SIZE + 1
    setting.ratio = 0.99
    assert setting.service.run_once() == 1
