"""store/base/lock.py: no interrupt leaves a lock held, or released twice."""

from __future__ import annotations

from store.base import Lock
from tests.support.interrupts import interrupt

PACKAGES = ("store", "tests")


def test_an_interrupt_at_any_instruction_leaves_the_lock_free() -> None:
    lock = Lock()
    entered = left = 0

    def use() -> None:
        nonlocal entered, left
        with lock:
            entered += 1
        left += 1

    at, reached = 0, True
    while reached:
        # Python 3.13 and newer miss the instructions of what was not traced just before.
        interrupt(use, 1000, packages=PACKAGES)
        at += 1
        reached = interrupt(use, at, packages=PACKAGES)
        assert not lock.locked(), f"held since the interrupt at instruction {at}"
    assert at > 10
    assert 0 < left < entered


def test_it_is_taken_and_released_by_hand_too() -> None:
    lock = Lock()
    with lock:
        assert lock.locked()
        assert not lock.acquire(blocking=False)
    assert lock.acquire(timeout=1)
    lock.release()
    assert not lock.locked()
