"""store/base/changes.py: who waits is woken, and Ctrl-C at any instruction leaves the lock free."""

from __future__ import annotations

import signal
import threading

import pytest

from store.base import Changes, Lock
from tests.support.interrupts import interrupt


class Counted:
    """A number under a lock, and those who wait for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.changes = Changes(self.lock)
        self.value = 0

    def add(self) -> None:
        with self.lock:
            self.value += 1
            self.changes.tell()

    def wait(self, value: int, timeout_s: float | None = 30.0) -> bool:
        return self.changes.until(lambda: self.value >= value, timeout_s)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_all_who_wait_are_woken_when_it_is_true(timeout_s: float | None) -> None:
    counted = Counted()
    waiting = [
        threading.Thread(target=counted.wait, args=(value, timeout_s)) for value in (1, 2, 2, 3)
    ]
    for each in waiting:
        each.start()
    for _ in range(3):
        counted.add()
    for each in waiting:
        each.join(30)
        assert not each.is_alive()
    assert counted.changes._waiting == []


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_signal_that_another_thread_takes_is_answered(timeout_s: float | None) -> None:
    """Its handler runs in the main thread, which does not hear of it while it sleeps."""
    counted = Counted()
    looked, answered = threading.Event(), threading.Event()
    by_hand: list[bool] = []

    def look() -> bool:
        looked.set()
        return counted.value > 0

    def handler(*_: object) -> None:
        answered.set()
        counted.add()

    def send_to_itself() -> None:
        looked.wait()
        with counted.lock:  # the other one waits
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not answered.wait(20):
            by_hand.append(True)
            counted.add()

    before = signal.signal(signal.SIGUSR1, handler)
    sending = threading.Thread(target=send_to_itself)
    try:
        sending.start()
        assert counted.changes.until(look, timeout_s)
        sending.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert by_hand == []


def test_when_the_time_is_up_the_last_answer_counts_and_nothing_is_left() -> None:
    counted = Counted()
    assert not counted.wait(1, 0.001)
    assert counted.changes._waiting == []
    counted.add()
    assert counted.wait(1, 0.0)


def test_what_the_look_raises_comes_out_and_the_lock_is_free() -> None:
    counted = Counted()
    with pytest.raises(ZeroDivisionError):
        counted.changes.until(lambda: 1 // counted.value)
    assert not counted.lock.locked()


def test_an_interrupt_at_any_instruction_leaves_the_lock_free_and_others_waiting() -> None:
    """Of who waits and of who tells, while another thread takes the lock all the time."""
    counted = Counted()
    ended = threading.Event()

    def disturb() -> None:
        while not ended.is_set():
            counted.wait(counted.value + 1, 0.0001)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        for work in (lambda: counted.wait(counted.value + 1, 0.0001), counted.add):
            at = 1
            while interrupt(work, at, packages=("store", "tests/store/base")):
                with counted.lock:  # whoever holds it lets it go
                    pass
                counted.add()
                at += 1
            assert at > 30
    finally:
        ended.set()
        disturbing.join(30)
    assert not disturbing.is_alive()
    counted.add()
    with counted.lock:
        assert counted.changes._waiting == []
