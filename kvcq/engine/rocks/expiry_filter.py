"""Expired units are removed by compaction, without writing deletes.

RocksDB has a compaction filter of its own for time-to-live databases: it drops an entry if the last
four bytes of its value, a little-endian u32 of seconds since 1970, plus `ttl_s`, is less than the
wall clock. `build_filter_options` borrows that filter; `ExpiryFilter` decides the right `ttl_s`,
and when the filter must be set again.

The rule. A unit has expired if its record is below the start of the log. Let D be a lower bound of
the store times of the log's records (see store/log/store_times.py), so every live unit has a stamp
of at least D. Before a record with an earlier time is appended, `keep_from` lowers D. The filter's
threshold follows the wall clock: armed at `a`, it drops at time `t` stamps below `t - ttl_s`. With
`ttl_s = a - D + margin` the threshold starts at `D - margin` and rises by a second a second; it is
set back before it has used half of the margin.

A wrong clock cancels out, since `a` and `t` are read from the same clock. A clock that jumps while
armed moves the threshold: less than half the margin is harmless, and each `tick` sets it back.
Every value of the family must end with the stamp. RocketMQ's 28-byte units do not, so they must not
be in an armed family.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rocksdict import AccessType, Cache, Options, Rdict

from kvcq.engine.rocks.options import build_family_options, build_table_options
from kvcq.errors import EngineClosedError, KvcqError
from store.base import Lock

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.engine.rocks.options import FamilyProfile
    from store.base import Clock

logger = logging.getLogger(__name__)

MAX_TTL_S = 2**31 - 1
#: The latest time that a row says, in seconds: later ones have this one.
LATEST_STAMP_S = 2**31 - 1

#: The wall clock may differ by this much from the monotonic one before it counts as a jump.
#: Slewing by NTP makes 0.15 s in five minutes.
JUMP_TOLERANCE_S = 1.0


def build_filter_options(family: FamilyProfile, ttl_s: int, cache: Cache, scratch: Path) -> Options:
    """The family's options with the time-to-live filter.

    The binding has no setter for a filter, but RocksDB writes it to the options file of a
    time-to-live database, and creates it again when that file is loaded. `scratch` must not exist;
    it is removed on return, and may be removed after a crash.
    """
    options = build_family_options(family, cache)
    options.create_if_missing(create_if_missing=True)
    try:
        Rdict(str(scratch), options, access_type=AccessType.with_ttl(ttl_s)).close()
        _, families = Options.load_latest(str(scratch), cache=cache)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    options = families["default"]
    # The file names the Bloom filter without its bits, and loading it leaves the filter out.
    options.set_block_based_table_factory(build_table_options(family, cache))
    return options


class Arming(NamedTuple):
    """When the filter was set, by both clocks, and with what `ttl_s`."""

    wall_ms: int
    monotonic_s: float
    ttl_s: int | None  # None: no filter


def choose_ttl_s(now_ms: int, dropped_ms: int | None, margin_s: int) -> int | None:
    """The `ttl_s` whose threshold is now `margin_s` before the store time dropped last.

    None (no filter) before anything was dropped, and if the clock is too far behind the store times
    for a filter. Rounded so that the threshold is never late.
    """
    if dropped_ms is None:
        return None
    now_s = -(-now_ms // 1000)
    ttl_s = now_s - min(dropped_ms // 1000, LATEST_STAMP_S) + margin_s  # as the rows have it
    return min(ttl_s, MAX_TTL_S) if ttl_s > 0 else None


def must_rearm(armed: Arming, now_ms: int, monotonic_s: float, margin_s: int) -> bool:
    """Whether the threshold has risen too far, or the wall clock jumped since it was set."""
    elapsed_s = monotonic_s - armed.monotonic_s
    jumped_s = (now_ms - armed.wall_ms) / 1000 - elapsed_s
    return elapsed_s >= margin_s / 2 or abs(jumped_s) > min(JUMP_TOLERANCE_S, margin_s / 4)


class Armable(Protocol):
    """The part of an engine that the filter needs."""

    def arm(self, ttl_s: int | None) -> None: ...


class ExpiryFilter:
    """Keeps the filter between "drops nothing live" and "drops everything expired".

    Call `dropped_up_to` after each drop of segments, and on opening; call `tick` about once a
    second. Nothing is stored on disk: a new process starts without a filter.

    Thread: any. Locks: `_lock`, held while the engine is armed. Failure: if the engine cannot be
    armed, the filter is removed before the error is raised, because the old one would rise further.
    `tick` then retries. If it cannot be removed either, as on a full disk, `dropped_too_early_ms`
    returns what it may have dropped too early.
    """

    def __init__(self, engine: Armable, clock: Clock, margin_s: int) -> None:
        # Constant after construction.
        self._engine = engine
        self._clock = clock
        self._margin_s = margin_s
        self._lock = Lock()
        # Guarded by _lock.
        self._dropped_ms: int | None = None
        self._armed: Arming | None = None  # None: not set as it should be
        # The filter that the engine has, even if it should have been set again; None: no filter.
        self._in_place_ttl_s: int | None = None
        self._too_far_ms = 0
        self._is_told = False  # in the log

    @property
    def line_s(self) -> int | None:
        """Compactions now drop stamps (seconds since 1970) below this; None for none."""
        with self._lock:
            if self._armed is None or self._armed.ttl_s is None:
                return None
            return self._clock.now_ms() // 1000 - self._armed.ttl_s

    def dropped_up_to(self, store_time_ms: int) -> None:
        """Let units stored before `store_time_ms` expire.

        No record of the log may be older; a time below the current one changes nothing. Raises
        KvcqError; see the class for the state after that.
        """
        with self._lock:
            if self._dropped_ms is not None and store_time_ms <= self._dropped_ms:
                return
            self._dropped_ms = store_time_ms
            self._look_at_line(self._clock.now_ms())
            self._arm()

    def keep_from(self, store_time_ms: int) -> None:
        """Protect a unit with that store time, before it is written.

        Used when store times fell below that of the last dropped record. Raises like
        `dropped_up_to`.
        """
        with self._lock:
            if self._dropped_ms is not None and store_time_ms < self._dropped_ms:
                self._dropped_ms = store_time_ms
                self._arm()

    def tick(self) -> bool:
        """Set the filter again if it is due. Returns whether it was. Cheap if not."""
        with self._lock:
            if self._dropped_ms is None:
                return False
            now_ms, monotonic_s = self._clock.now_ms(), self._clock.monotonic_s()
            if self._armed is not None and not must_rearm(
                self._armed, now_ms, monotonic_s, self._margin_s
            ):
                return False
            self._look_at_line(now_ms)
            self._arm()
            return True

    def dropped_too_early_ms(self) -> int:
        """Store time in ms before which units may have been dropped too early; 0 if none. Each loss
        is returned once."""
        with self._lock:
            found, self._too_far_ms = self._too_far_ms, 0
            return found

    def _look_at_line(self, now_ms: int) -> None:
        """Check the threshold: the wall clock may have jumped, as after a suspend, or a full disk
        may have prevented setting the filter, so a compaction since then may have dropped live
        units."""
        if self._in_place_ttl_s is None or self._dropped_ms is None:
            return
        line_ms = now_ms - self._in_place_ttl_s * 1000
        if line_ms > self._dropped_ms:
            if not self._is_told:
                logger.error(
                    "the wall clock jumped, or the expiry filter could not be set for long: units "
                    "stored in the %d s behind the last expired one may have been dropped too early"
                    ", and are written again from the log",
                    (line_ms - self._dropped_ms) // 1000,
                )
                self._is_told = True
            self._too_far_ms = max(self._too_far_ms, line_ms)

    def _arm(self) -> None:
        # Read before the engine is touched: while it reopens the line only gets older.
        now_ms, monotonic_s = self._clock.now_ms(), self._clock.monotonic_s()
        ttl_s = choose_ttl_s(now_ms, self._dropped_ms, self._margin_s)
        self._armed = None
        try:
            self._engine.arm(ttl_s)
        except EngineClosedError:
            raise
        except KvcqError:
            # No room for the scratch database, say. The old line must not creep on.
            self._engine.arm(None)
            self._in_place_ttl_s = None
            raise
        self._in_place_ttl_s = ttl_s
        self._is_told = False
        self._armed = Arming(now_ms, monotonic_s, ttl_s)
