"""store/format/system_topics.py: nobody writes what a broker, or this store, would act upon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError
from store.format import check_all_may_write, is_system_topic
from store.held import Begin
from store.message import Message
from store.topics import table
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "rmq_sys_kvcq_state",
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "TBW102",
    "SELF_TEST_TOPIC",
]
OTHERS = [
    "orders",
    "%RETR%g",
    "a%DLQ%g",
    "rmq_system",
    "SCHEDULE_TOPIC_YYYY",
    "RMQ_SYS_TRACE_TOPIC",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_system_topic_is_neither_made_nor_put_to(tmp_path: Path, name: str) -> None:
    with open_small(tmp_path) as store:
        with pytest.raises(InvalidArgumentError, match="is a system topic") as refused:
            store.put([Message("T", b"a"), Message(name, b"b")])
        assert refused.value.field == "messages[1].topic"
        with pytest.raises(InvalidArgumentError, match="is a system topic") as refused:
            store.create_topics([("T", 1), (name, 1)])
        assert refused.value.field == "topics[1].name"
        assert store.list_topics("", None, 10) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_taken(tmp_path: Path, name: str) -> None:
    assert not is_system_topic(name)
    with open_small(tmp_path) as store:
        store.put([Message(name, b"a")])


@pytest.mark.parametrize("name", ["%RETRY%g", "%DLQ%g"])
def test_what_is_a_groups_own_is_made_and_read_but_not_put_to(tmp_path: Path, name: str) -> None:
    with open_small(tmp_path) as store:
        store.create_topics([("T", 1), (name, 1)])
        bad = Message(name, b"b")
        many = [Message("T", b"a")] * 63
        beginning = Begin(bad, "g")
        end = store.log.appended_offset
        for put, at in (
            (lambda: store.put([Message("T", b"a"), bad]), 1),
            (lambda: store.put([*many, bad]), 63),
            (lambda: store.append([Message("T", b"a", keys=("k",)), bad], separate=True), 1),
            (lambda: store.timers.put([bad], [1]), 0),
        ):
            with pytest.raises(InvalidArgumentError, match="group 'g'") as refused:
                put()
            assert refused.value.field == f"messages[{at}].topic"
        (answer,) = store.halves.decide([beginning]).answers
        assert isinstance(answer, InvalidArgumentError)
        assert store.log.appended_offset == end
        assert store.pull(name, 0, 0).records == []
        store.delete_topic(name)


def test_the_store_itself_still_writes_dead_letters(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for text in (b"a", b"b"):
            store.put([Message("T", text)])
            (given,) = store.groups.receive("g", "T").deliveries
            store.groups.bury("g", given.handle)
            with pytest.raises(InvalidArgumentError, match="only the store writes"):
                store.put([Message("%DLQ%g", b"forged")])  # also while its queue is a hot one
        store.wait_visible()
        assert bodies(store.pull("%DLQ%g", 0, 0).records) == [b"a", b"b"]
        assert store.groups.dead_letters("g") == 2


@pytest.mark.parametrize("name", NAMES)
def test_one_among_many_others_is_found(name: str) -> None:
    check_all_may_write(OTHERS * 20)
    with pytest.raises(InvalidArgumentError, match=name):
        check_all_may_write([*OTHERS, name, *OTHERS])


@pytest.mark.parametrize("name", ["rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_one_that_a_store_has_already_stays_readable_and_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As of an adopted store, or one of version 0.1; also right behind the last write to it."""
    monkeypatch.setattr(table, "check_all_may_write", lambda *_: None)
    with open_small(tmp_path) as store:
        store.put([Message(name, b"before", 0)])
    monkeypatch.undo()
    for _ in range(2):
        with open_small(tmp_path) as store:
            with pytest.raises(InvalidArgumentError, match="is a system topic"):
                store.put([Message(name, b"after", 0)])
            store.put([Message("T", b"other")])
            store.wait_visible()
            assert bodies(store.pull(name, 0, 0).records) == [b"before"]
            assert name in [topic.name for topic in store.list_topics("", None, 10)]
