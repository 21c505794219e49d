"""Reader processes begin when they are needed, answer, die, and end: real ones."""

from __future__ import annotations

from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.readers.orders import LogPlace
from server.readers.readers import LEAST_BYTES, Readers
from store.message import Message
from tests.support.checked import checked
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.wire import Encoded
    from store.message_store import MessageStore
    from store.reads import PullPlan

WAIT_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store")) as opened:
        for number in range(200):
            opened.put([Message("T", b"%04d" % number * 250)])
        yield opened


def plan_of(store: MessageStore, max_messages: int = 200) -> PullPlan:
    return store.reads.plan_pull(
        "T", 0, 0, max_messages=max_messages, max_bytes=1 << 20, tag_filter=None
    )


def log_of(store: MessageStore) -> LogPlace:
    return LogPlace(str(store.config.root / "commitlog"), SEGMENT_BYTES)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def readers_of(store: MessageStore, clock: Clock, *, idle_s: float = 60.0) -> Iterator[Readers]:
    readers = Readers(1, log_of(store), now_s=clock, idle_s=idle_s)
    try:
        yield readers
    finally:
        readers.close()
        assert readers.running == 0


def ask(readers: Readers, plan: PullPlan) -> Encoded | None:
    return readers.read(plan, pb.RECORD_FORM_WHOLE, in_stream=False)


def begin(readers: Readers, plan: PullPlan) -> None:
    """Two reads follow each other: a process begins. Returns when it takes orders."""
    assert ask(readers, plan) is None
    assert ask(readers, plan) is None
    [reader] = readers._all
    assert reader._link is not None
    assert wait([reader._link], WAIT_S)


def is_whole(store: MessageStore, found: Encoded | None) -> bool:
    assert found is not None
    assert isinstance(found.data, bytes)
    records = b"".join(store.pull("T", 0, 0, max_messages=200).records)
    return pb.PullResponse.FromString(found.data).records == records


def test_one_read_begins_nothing_and_neither_do_short_ones(store: MessageStore) -> None:
    clock = Clock()
    with readers_of(store, clock) as readers:
        short = plan_of(store, 10)
        assert sum(size for _, size in short.places) < LEAST_BYTES
        for _ in range(5):
            assert ask(readers, short) is None
        for _ in range(5):
            assert ask(readers, plan_of(store)) is None
            clock.now_s += 10.0
        assert readers.running == 0


def test_none_is_begun_where_none_is_wanted(store: MessageStore) -> None:
    readers = Readers(0, log_of(store))
    assert ask(readers, plan_of(store)) is None
    assert ask(readers, plan_of(store)) is None
    readers.close()


def test_reads_that_follow_each_other_begin_a_process_which_answers(store: MessageStore) -> None:
    with readers_of(store, Clock()) as readers:
        plan = plan_of(store)
        begin(readers, plan)
        for _ in range(3):
            assert is_whole(store, ask(readers, plan))
        assert (readers.running, readers.answered) == (1, 3)
        # Refused, and asked again.
        assert ask(readers, plan._replace(queue_id=1)) is None
        assert is_whole(store, ask(readers, plan))


def test_one_that_dies_is_begun_again_after_a_while(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with readers_of(store, clock) as readers:
        plan = plan_of(store)
        begin(readers, plan)
        [reader] = readers._all
        assert reader._process is not None
        reader._process.kill()
        assert ask(readers, plan) is None
        assert "a reader process ended with -9" in caplog.text
        assert ask(readers, plan) is None
        assert readers.running == 0, "not at once: it may die each time"
        clock.now_s += 10.0
        begin(readers, plan)
        assert is_whole(store, ask(readers, plan))


def test_one_that_is_not_needed_ends(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with readers_of(store, clock, idle_s=0.05) as readers:
        plan = plan_of(store)
        begin(readers, plan)
        [reader] = readers._all
        assert reader._process is not None
        assert reader._process.wait(WAIT_S) == 0
        assert readers.running == 0
        clock.now_s += 10.0
        assert ask(readers, plan) is None
        begin(readers, plan)
    assert caplog.text == ""


def test_one_that_is_silent_is_given_up(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("server.readers.readers._PATIENCE_S", 0.05)
    monkeypatch.setattr("server.readers.readers._ENDS_S", 0.05)
    with readers_of(store, Clock()) as readers:
        plan = plan_of(store)
        begin(readers, plan)
        [reader] = readers._all
        assert reader._process is not None
        reader._process.send_signal(19)  # SIGSTOP
        assert ask(readers, plan) is None
        assert "does not respond" in caplog.text
        assert readers.running == 0


def test_an_answer_that_was_not_taken_is_nobody_elses(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_link: object) -> None:
        raise MemoryError

    with readers_of(store, Clock()) as readers:
        plan = plan_of(store)
        begin(readers, plan)
        assert is_whole(store, ask(readers, plan))
        with monkeypatch.context() as patch:
            patch.setattr("server.readers.readers.receive_answer", no_memory)
            with pytest.raises(MemoryError):
                ask(readers, plan_of(store, 100))
        assert readers.running == 0
        assert ask(readers, plan) is None


def test_it_ends_with_the_server(store: MessageStore) -> None:
    with readers_of(store, Clock()) as readers:
        begin(readers, plan_of(store))
        [reader] = readers._all
        assert reader._process is not None
        assert reader._link is not None
        reader._link.close()
        assert reader._process.wait(WAIT_S) == 0
        reader._link = None
