"""Expired units leave with compaction, without a delete being written.

RocksDB brings a compaction filter of its own, used by its time-to-live databases: an entry is
dropped when the last four bytes of its value, a little-endian u32 of seconds since 1970, plus
`ttl_s`, is less than the wall clock. `build_filter_options` borrows that filter; `ExpiryFilter`
decides which `ttl_s` is right, and when the filter must be set again.

The rule. A unit is expired when its record is below the start of the log. With D a store time that
none of the log's records is below (see store/log/store_times.py), every live unit carries a
stamp of at least D. Before a record with an earlier time is appended, `keep_from` lowers D. The
filter's line is tied to the wall clock: armed at `a` it drops, at time
`t`, stamps below `t - ttl_s`. With `ttl_s = a - D + margin` the line starts at `D - margin` and
creeps up a second a second; it is set back before it has used up half of the margin.

A clock that is wrong cancels out, since `a` and `t` are read from the same clock. A clock that
jumps while armed moves the line: by less than half the margin it is harmless, and each `tick`
sets the line back. Every value of the family must end with the stamp: 28-byte units of RocketMQ
do not, and must not be in a family that is armed.
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
    """The family's options with the time-to-live filter in them.

    The binding has no setter for a filter, but RocksDB writes one down in the options file of a
    time-to-live database, and makes it again when that file is loaded. `scratch` must not exist;
    it is gone on return, and rubbish that may be removed after a crash.
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
    """When the filter was set, by both clocks, and with what."""

    wall_ms: int
    monotonic_s: float
    ttl_s: int | None  # None: no filter


def choose_ttl_s(now_ms: int, dropped_ms: int | None, margin_s: int) -> int | None:
    """The `ttl_s` whose line, now, lies `margin_s` before the store time dropped last.

    None (no filter) before anything was dropped, and when the clock is so far behind the store
    times that a filter could not say it. Rounded so that the line is never late.
    """
    if dropped_ms is None:
        return None
    now_s = -(-now_ms // 1000)
    ttl_s = now_s - min(dropped_ms // 1000, LATEST_STAMP_S) + margin_s  # as the rows have it
    return min(ttl_s, MAX_TTL_S) if ttl_s > 0 else None


def must_rearm(armed: Arming, now_ms: int, monotonic_s: float, margin_s: int) -> bool:
    """Whether the line has crept too far, or the wall clock jumped since it was set."""
    elapsed_s = monotonic_s - armed.monotonic_s
    jumped_s = (now_ms - armed.wall_ms) / 1000 - elapsed_s
    return elapsed_s >= margin_s / 2 or abs(jumped_s) > min(JUMP_TOLERANCE_S, margin_s / 4)


class Armable(Protocol):
    """What the filter asks of an engine."""

    def arm(self, ttl_s: int | None) -> None: ...


class ExpiryFilter:
    """Keeps the engine's filter between "drops nothing live" and "drops what is dead".

    Call `dropped_up_to` after each drop of segments, and on opening; `tick` about once a second.
    Nothing is kept on disk: a new process starts without a filter.

    Thread: any. Locks: `_lock`, held while the engine is armed.
    Failure: if the engine cannot be armed, the filter is taken out before the error is raised,
    because the one in place would creep on. `tick` then tries again. Where it cannot be taken out
    either, as on a full disk, what it may have dropped too early is told by `taken_too_far_ms`.
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
        # What the engine has, also where it should have been set again; None: no filter.
        self._in_place_ttl_s: int | None = None
        self._too_far_ms = 0
        self._is_told = False  # in the log

    @property
    def line_s(self) -> int | None:
        """Stamps (seconds since 1970) below this are dropped by compactions now; None: none."""
        with self._lock:
            if self._armed is None or self._armed.ttl_s is None:
                return None
            return self._clock.now_ms() // 1000 - self._armed.ttl_s

    def dropped_up_to(self, store_time_ms: int) -> None:
        """Every unit stored before `store_time_ms` is expired, and the filter knows it.

        A time that no record of the log is below; an older one than the one known changes nothing.
        Raises KvcqError; what happened then is in the class.
        """
        with self._lock:
            if self._dropped_ms is not None and store_time_ms <= self._dropped_ms:
                return
            self._dropped_ms = store_time_ms
            self._look_at_line(self._clock.now_ms())
            self._arm()

    def keep_from(self, store_time_ms: int) -> None:
        """A unit with that store time is live from now on, and the filter knows it.

        Before it is written. Store times fell below that of the last record dropped. Raises as
        `dropped_up_to`.
        """
        with self._lock:
            if self._dropped_ms is not None and store_time_ms < self._dropped_ms:
                self._dropped_ms = store_time_ms
                self._arm()

    def tick(self) -> bool:
        """Whether it was time to set the filter again, and that was done. Cheap when not."""
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

    def taken_too_far_ms(self) -> int:
        """Units stored before then may have been dropped too early, ms; 0: none. Told once."""
        with self._lock:
            found, self._too_far_ms = self._too_far_ms, 0
            return found

    def _look_at_line(self, now_ms: int) -> None:
        """The wall clock may have jumped, as it does when a machine was suspended, or a full disk
        kept the filter from being set: a compaction since then may have dropped what is alive."""
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
