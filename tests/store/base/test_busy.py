"""Waiting for a database that stalls: half a minute, or for ever; for a full disk not at all."""

from __future__ import annotations

import pytest

from store.base import busy, retry_while_busy
from store.errors import DiskFullError, StoreBusyError


class Stalled:
    """Raises these errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_WAIT_S", 0)
    monkeypatch.setattr(busy, "_TRIES", 3)


def test_a_stall_is_waited_for_until_it_is_given_up() -> None:
    call = Stalled(*[StoreBusyError("planted")] * 3)
    retry_while_busy(call)
    assert call.calls == 4
    call = Stalled(*[StoreBusyError("planted")] * 9)
    with pytest.raises(StoreBusyError):
        retry_while_busy(call)
    assert call.calls == 4


def test_what_must_succeed_is_not_given_up() -> None:
    call = Stalled(*[StoreBusyError("planted")] * 50)
    retry_while_busy(call, give_up=False)
    assert call.calls == 51


def test_a_full_disk_is_not_waited_for() -> None:
    call = Stalled(StoreBusyError("later"), DiskFullError("planted"))
    with pytest.raises(DiskFullError):
        retry_while_busy(call, give_up=False)
    assert call.calls == 1
