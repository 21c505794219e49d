"""A put that is refused leaves nothing behind: no record, and no topic that it would have made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError, UnknownQueueError
from store.held import Begin
from store.message import Message
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.message_store import MessageStore

GOOD, BAD = Message("T", b"a", 0), Message("T", b"b", 99)


def _open_transaction(store: MessageStore, message: Message) -> None:
    (answer,) = store.halves.decide([Begin(message, "g")]).answers
    if isinstance(answer, Exception):
        raise answer


PUTS: list[Callable[[MessageStore, Message], object]] = [
    lambda store, bad: store.put([bad]),
    lambda store, bad: store.append([bad], separate=True, wait=False),
    lambda store, bad: store.put([Message("other", b"a"), GOOD, bad]),
    lambda store, bad: store.put([*[GOOD] * 100, bad]),
    lambda store, bad: store.timers.put([bad], [0]),
    lambda store, bad: store.timers.put([Message("other", b"a"), bad], [0, 0]),
    _open_transaction,
]


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (BAD, UnknownQueueError),
        (BAD._replace(queue_id=-1), InvalidArgumentError),
        (Message("a b", b"x"), InvalidArgumentError),
        (Message("new", b"x" * (1 << 23)), InvalidArgumentError),
        (Message("new", b"x", properties={"TAGS": "x"}), InvalidArgumentError),
    ],
    ids=["queue", "below", "name", "body", "property"],
)
def test_a_put_that_is_refused_makes_no_topic(
    store: MessageStore,
    put: Callable[[MessageStore, Message], object],
    bad: Message,
    error: type[Exception],
) -> None:
    end = store.log.appended_offset
    with pytest.raises(error):
        put(store, bad)
    assert store.log.appended_offset == end
    assert store.list_topics("", None, 10) == []
    store.put([GOOD])  # what was refused is not remembered either
    with pytest.raises(UnknownQueueError, match=r"topic 'T' has queues 0 to \d, not 99"):
        store.put([BAD])


def test_the_error_says_that_the_topic_would_have_been_made(store: MessageStore) -> None:
    with pytest.raises(UnknownQueueError, match="does not exist, and would be created") as refused:
        store.put([BAD])
    assert refused.value.is_new


@pytest.mark.parametrize("put", PUTS)
def test_what_fits_no_segment_makes_no_topic(
    tmp_path: Path, put: Callable[[MessageStore, Message], object]
) -> None:
    with open_small(tmp_path) as store:
        room = store.log.segment_bytes
        end = store.log.appended_offset
        with pytest.raises(InvalidArgumentError, match="does not fit a segment") as refused:
            put(store, Message("new", b"x" * room))
        assert refused.value.field.endswith("].body")
        assert store.log.appended_offset == end
        assert store.list_topics("", None, 10) == []
