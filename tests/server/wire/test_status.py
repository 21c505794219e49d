"""server/wire/status.py: every error of ours has a status, and a stranger tells nothing."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc import error_details_pb2

import kvcq
import migration
import server
import store
from server.wire.status import STATUS_BY_ERROR, refusal_of, rich_status, row_of
from store.errors import OffsetOutOfRangeError, StoreError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Spark, and what reads a log in columns, never run in the server's process, and errors that tests
# make are theirs.
_NOT_SERVED = ("tests", "migration.spark", "migration.columnar")


def _error_modules() -> Iterator[str]:
    for package in (store, kvcq, migration, server):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(".errors") and not module.name.startswith(_NOT_SERVED):
                yield module.name


def _leaves(kind: type[StoreError]) -> Iterator[type[StoreError]]:
    children = kind.__subclasses__()
    if not children:
        yield kind
    for child in children:
        yield from _leaves(child)


def test_every_leaf_of_the_error_tree_has_a_status() -> None:
    for name in _error_modules():
        importlib.import_module(name)
    ours = [leaf for leaf in _leaves(StoreError) if not leaf.__module__.startswith(_NOT_SERVED)]
    assert len(ours) > 20
    without = [leaf.__qualname__ for leaf in ours if row_of(_bare(leaf)) is None]
    assert without == []


def _bare(kind: type[StoreError]) -> StoreError:
    return kind.__new__(kind)


def test_a_leaf_without_a_row_is_noticed() -> None:
    class NewKindOfError(StoreError):
        pass

    assert row_of(NewKindOfError()) is None


@pytest.mark.parametrize("kind", STATUS_BY_ERROR, ids=lambda kind: kind.__name__)
def test_rows_name_attributes_that_exist(kind: type[StoreError]) -> None:
    row = STATUS_BY_ERROR[kind]
    assert re.fullmatch(r"[A-Z][A-Z_]+", row.reason)
    assert row.code is not grpc.StatusCode.DEADLINE_EXCEEDED, "that is the caller's own deadline"
    set_anywhere = {
        name
        for parent in kind.__mro__
        if "__init__" in vars(parent) and parent is not Exception
        for name in getattr(vars(parent)["__init__"], "__code__", _NO_CODE).co_names
    }
    assert set(row.attributes) <= set_anywhere


_NO_CODE = (lambda: None).__code__


def test_metadata_is_lower_camel_case() -> None:
    refusal = refusal_of(OffsetOutOfRangeError("orders", 3, 99, 5, 42), "request-1")
    assert refusal.code is grpc.StatusCode.OUT_OF_RANGE
    assert refusal.reason == "OFFSET_OUT_OF_RANGE"
    assert refusal.metadata == {
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "99",
        "minOffset": "5",
        "maxOffset": "42",
        "requestId": "request-1",
    }


def test_a_child_without_a_row_takes_its_parents() -> None:
    class OddTopicError(UnknownTopicError):
        pass

    assert row_of(OddTopicError("x")) == STATUS_BY_ERROR[UnknownTopicError]


def test_an_unexpected_exception_tells_its_request_id_alone() -> None:
    refusal = refusal_of(KeyError("the password is 123"), "request-2")
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "123" not in refusal.message
    assert refusal.metadata == {"requestId": "request-2"}


def test_the_rich_status_carries_one_error_info() -> None:
    status = rich_status(refusal_of(UnknownTopicError("orders"), "request-3"))
    assert status.code == 5
    [detail] = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert (info.reason, info.domain, info.metadata["topic"]) == ("UNKNOWN_TOPIC", "kvcq", "orders")
