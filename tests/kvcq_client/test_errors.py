"""kvcq_client/errors.py: the tree that its docstring draws, and what may be sent again."""

from __future__ import annotations

import re

import pytest

import kvcq_client
from kvcq_client import (
    BufferFullError,
    BusyError,
    DeadlineError,
    HandshakeError,
    KvcqError,
    RetryableError,
    UnavailableError,
    errors,
)
from kvcq_client.transport.statuses import is_retried, make_error
from server.wire.status import STATUS_BY_ERROR


def _below(kind: type[KvcqError], depth: int = 0) -> set[tuple[int, str, str]]:
    found: set[tuple[int, str, str]] = set()
    for child in kind.__subclasses__():
        found |= {(depth + 1, child.__name__, kind.__name__), *_below(child, depth + 1)}
    return found


def test_the_tree_that_is_drawn_is_the_one_there_is() -> None:
    drawn: set[tuple[int, str, str]] = set()
    path = ["KvcqError"]
    for bars, name in re.findall(r"^    ([ |]*)\+- (\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(bars) // 4 + 1
        del path[depth:]
        drawn.add((depth, name, path[-1]))
        path.append(name)
    assert drawn == _below(KvcqError)
    assert all(hasattr(kvcq_client, name) for _, name, _ in drawn)


@pytest.mark.parametrize("row", STATUS_BY_ERROR.values(), ids=lambda row: row.reason)
def test_what_the_client_sends_again_is_what_a_caller_may_send_again(row: object) -> None:
    error = make_error(row.code.name, "", row.reason, {})  # type: ignore[attr-defined]
    assert is_retried(error) == isinstance(error, RetryableError)


@pytest.mark.parametrize(
    ("error", "may_be_done"),
    [
        (UnavailableError("lost"), True),
        (UnavailableError("x", "NOT_SENT"), False),
        (UnavailableError("x", "DRAINING"), False),
        (UnavailableError("x", "FLUSH_DISK_TIMEOUT"), True),
        (DeadlineError("late"), True),
        (BusyError("x", "TOO_MANY_CALLS"), False),
        (BufferFullError("full"), False),
    ],
)
def test_whether_it_may_be_done(error: RetryableError, may_be_done: bool) -> None:
    assert error.may_be_done is may_be_done


def test_nothing_but_another_setting_helps_a_handshake() -> None:
    assert not issubclass(HandshakeError, RetryableError)
