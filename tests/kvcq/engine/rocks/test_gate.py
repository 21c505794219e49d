"""A gate lets many in, one alone, and ends for all."""

from __future__ import annotations

import threading

import pytest

from kvcq.engine.rocks.gate import Gate


def test_callers_wait_while_the_content_is_out() -> None:
    gate: Gate[str] = Gate()
    gate.put("first")
    got: list[str] = []
    taken = gate.take()
    caller = threading.Thread(target=lambda: got.append(gate.enter()))
    caller.start()
    assert taken == "first"
    assert got == []
    gate.put("second")
    caller.join()
    assert got == ["second"]
    gate.leave()


def test_taking_waits_for_those_inside() -> None:
    gate: Gate[str] = Gate()
    gate.put("content")
    gate.enter()
    gate.enter()
    steps: list[str] = []
    begun = threading.Event()

    def take() -> None:
        begun.set()
        gate.take()
        steps.append("taken")

    taker = threading.Thread(target=take)
    taker.start()
    begun.wait()
    gate.leave()
    steps.append("one left")
    gate.leave()
    taker.join()
    assert steps == ["one left", "taken"]


def test_takers_follow_one_another() -> None:
    gate: Gate[list[int]] = Gate()
    gate.put([])

    def work(number: int) -> None:
        content = gate.take()
        content.append(number)
        gate.put(content)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(gate.enter()) == list(range(8))


def test_the_end_reaches_those_who_wait_and_those_who_come() -> None:
    gate: Gate[str] = Gate()
    gate.put("content")
    gate.take()
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            gate.enter()
        except ValueError as error:
            errors.append(error)

    waiting = threading.Thread(target=enter)
    waiting.start()
    gate.end(ValueError, "over")
    gate.end(KeyError, "too late to say otherwise")
    waiting.join()
    enter()
    with pytest.raises(ValueError, match="over"):
        gate.take()
    assert [str(error) for error in errors] == ["over", "over"]


def test_a_thread_that_never_said_it_left_is_out_with_its_next_call() -> None:
    """An interrupt may come right behind `enter`."""
    gate: Gate[str] = Gate()
    gate.put("content")
    gate.enter()
    assert gate.enter() == "content"
    gate.leave()
    assert gate.take() == "content"
    gate.put("content")
    gate.enter()
    taken: list[str] = []
    taker = threading.Thread(target=lambda: taken.append(gate.take()))
    taker.start()
    while gate._content is not None:  # taken out: now it waits for those inside
        taker.join(0.001)

    def put_back() -> None:
        taker.join()
        gate.put(taken[0])

    putter = threading.Thread(target=put_back)
    putter.start()
    assert gate.enter() == "content"
    putter.join()
    gate.leave()
