"""server/edge/call_errors.py: what the log says of calls that fail."""

from __future__ import annotations

import logging

import grpc
import pytest

from server.edge.call_errors import tell
from server.metrics import CallMetrics
from server.wire.status import STATUS_BY_ERROR
from store.errors import (
    LiteGroupError,
    StoreError,
    StoreFailedError,
    TransactionEndedError,
    UnknownLiteClientError,
    UnknownTransactionError,
)

CALLERS_OWN: list[StoreError] = [
    TransactionEndedError("x", "COMMITTED", "was committed"),
    UnknownTransactionError("x"),
    LiteGroupError("g", None),
    UnknownLiteClientError("g", "c"),
]


@pytest.mark.parametrize("error", CALLERS_OWN, ids=lambda error: type(error).__name__)
def test_what_a_caller_did_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture, error: StoreError
) -> None:
    caplog.set_level(logging.DEBUG)
    tell(CallMetrics(10), "DecideTransaction", error, "1")
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_what_the_server_cannot_do_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    tell(CallMetrics(10), "Put", StoreFailedError("the disk is gone"), "1")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_each_failed_precondition_is_the_callers_or_the_servers() -> None:
    """One that is new is to be sorted."""
    from server.edge.call_errors import _CALLERS_OWN

    reasons = {
        row.reason
        for row in STATUS_BY_ERROR.values()
        if row.code is grpc.StatusCode.FAILED_PRECONDITION
    }
    assert reasons - set(_CALLERS_OWN) == {
        "BACKUP_REFUSED",
        "FLUSH_FAILED",
        "KEY_FILE_REFUSED",
        "STORE_DIRECTORY_REFUSED",
        "STORE_FAILED",
        "STORE_FORMAT_REFUSED",
        "STORE_LOCKED",
        "STORE_NEWER",
        "VERIFICATION_BROKE_OFF",
    }
