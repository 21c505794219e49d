"""kvcq_client/producing/batch.py: how long callers wait for outcomes."""

from __future__ import annotations

import pytest

from kvcq_client import ClosedError, DeadlineError
from kvcq_client.producing import Sending, SendingMany
from kvcq_client.producing import batch as module
from kvcq_client.producing.batch import Batch


def test_a_time_that_is_up_leaves_the_outcome_to_be_asked_for_again() -> None:
    batch = Batch(0.0)
    sending = Sending(batch, 0)
    with pytest.raises(DeadlineError, match="still delivers it"):
        sending.result(0.0)
    assert not sending.done()
    batch.finish(None, ClosedError("over"))
    assert isinstance(sending.exception(0.0), ClosedError)


def test_many_are_waited_for_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    waited: list[float | None] = []

    def wait(_batch: Batch, timeout_s: float | None) -> None:
        nonlocal now_s
        waited.append(timeout_s)
        now_s += 3.0

    monkeypatch.setattr(module, "monotonic", lambda: now_s)
    monkeypatch.setattr(Batch, "wait", wait)
    many = SendingMany([(Batch(0.0), 0, 0) for _ in range(3)])
    assert many.result(5.0) == []
    assert many.errors() == {}
    assert waited == [5.0, 2.0, 0.0, None, None, None, None, None, None]
