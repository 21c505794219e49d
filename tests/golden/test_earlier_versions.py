"""Stores that earlier versions wrote: opened by this one, they answer what they answered then."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.opening import open_store
from migration.check import check_store
from store.format import unpack_record
from store.light_queue import is_light
from store.message import Message
from tests.golden.make_stores import ANSWERED_MS, answers, config_of, make_million
from tests.support.fake_clock import FakeClock
from tests.support.unpacking import unpack

if TYPE_CHECKING:
    from store.message_store import MessageStore

_KEPT = Path(__file__).parent / "kvcq"


@pytest.fixture(params=["stopped", "killed"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    unpack(_KEPT / f"{name}.tar.xz", tmp_path)
    return tmp_path / name / "store"


@pytest.fixture
def answered(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        lzma.decompress((_KEPT / f"{name}.expected.json.xz").read_bytes())
    )
    return found


def open_then(root: Path) -> MessageStore:
    return open_store(config_of(root), clock=FakeClock(ANSWERED_MS))


def answers_now(store: MessageStore, root: Path) -> dict[str, Any]:
    """As JSON has them."""
    found: dict[str, Any] = json.loads(json.dumps(answers(store, root.with_name("store.key"))))
    return found


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Part by part: a failure names the call."""
    for queue, then in expected["queues"].items():
        for call, answer in then.items():
            assert found["queues"][queue][call] == answer, (queue, call)
    for call, answer in expected.items():
        assert found[call] == answer, call


def test_every_call_answers_as_the_version_that_wrote_the_store(
    root: Path, answered: dict[str, Any]
) -> None:
    with open_then(root) as store:
        assert_same(answers_now(store, root), answered)
    assert check_store(root) == []
    with open_then(root) as store:
        assert_same(answers_now(store, root), answered)


def test_each_queue_goes_on_where_it_ended(root: Path, answered: dict[str, Any]) -> None:
    with open_then(root) as store:
        for queue, then in answered["queues"].items():
            topic, number = queue.rsplit(":", 1)
            end = then["bounds"][1]
            if is_light(topic):
                store.put([Message("again", b"behind", light_queues=(topic,))])
            else:
                store.put([Message(topic, b"behind", int(number))])
            last = store.pull(topic, int(number), end)
            assert [unpack_record(record).body for record in last.records][-1] == b"behind", queue
            assert last.queue_offsets[0] == end, queue
    assert check_store(root) == []


def test_the_script_for_many_topics_makes_a_sound_store(tmp_path: Path) -> None:
    make_million(tmp_path / "store", 2000)
    assert check_store(tmp_path / "store") == []
    with open_then(tmp_path / "store") as store:
        assert len(store.list_topics("topic-", None, 3000)) == 2000
