"""One rule says what of a record lives: the same for one record, a run, and in another process."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from store.consume_queue import DispatchRequest
from store.derive.endings import DeadOrEnded
from store.format.batch_mark import key_of
from store.topics.admission import Admission

TOPICS = ("A", "B", "gone")
LIGHT = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
MARK = key_of("producer", 7)

admissions = st.builds(
    Admission,
    st.dictionaries(st.sampled_from(TOPICS[:2]), st.integers(0, 2000)),
    st.dictionaries(st.sampled_from(LIGHT), st.integers(0, 2000)),
)
drawn = st.tuples(
    st.sampled_from(TOPICS),
    st.lists(st.sampled_from(("k", MARK)), unique=True),
    st.lists(st.sampled_from(LIGHT), unique=True),
)


def run_of(records: list[tuple[str, list[str], list[str]]]) -> list[DispatchRequest]:
    """Records of 100 bytes that follow each other."""
    return [
        DispatchRequest(
            topic,
            1,
            at,
            100 * at,
            100,
            5,
            9,
            tuple(keys),
            tuple((name, at) for name in light),
            True,
        )
        for at, (topic, keys, light) in enumerate(records)
    ]


def rows_of(request: DispatchRequest) -> tuple[set[tuple[str, int, int]], set[tuple[str, str]]]:
    """Where the record stands, and its keys; those of batches are of no topic."""
    places = (
        {(request.topic, request.queue_id, request.queue_offset)} if request.in_queue else set()
    )
    places |= {(name, 0, offset) for name, offset in request.light_queues}
    return places, {("" if key == MARK else request.topic, key) for key in request.keys}


@given(admissions, st.lists(drawn, max_size=30))
def test_a_record_stands_wherever_it_lives_and_nowhere_else(
    admission: Admission, records: list[tuple[str, list[str], list[str]]]
) -> None:
    topics, dead = admission
    for request in run_of(records):
        at, start = request.physical_offset, topics.get(request.topic)
        lives = start is not None and at >= start
        places = {
            (name, 0, offset) for name, offset in request.light_queues if at >= dead.get(name, 0)
        }
        places |= {(request.topic, 1, request.queue_offset)} if lives else set()
        keys = {("" if key == MARK else request.topic, key) for key in request.keys}
        keys = {(topic, key) for topic, key in keys if lives or not topic}
        admitted = admission.admit(request)
        assert (rows_of(admitted) if admitted is not None else (set(), set())) == (places, keys)
        assert admission.is_live(request.topic, at) == lives


@given(admissions, st.lists(drawn, max_size=30))
def test_a_run_is_admitted_as_its_records_are_here_and_elsewhere(
    admission: Admission, records: list[tuple[str, list[str], list[str]]]
) -> None:
    run = run_of(records)
    one_by_one = [each for each in map(admission.admit, run) if each is not None]
    assert admission.admit_all(run) == one_by_one
    assert pickle.loads(pickle.dumps(admission)).admit_all(run) == one_by_one


def test_of_two_deletions_of_a_light_queue_the_later_one_counts() -> None:
    dead = DeadOrEnded({"%LMQ%a": 9, "%LMQ%b": 3}, {"%LMQ%a": 5, "%LMQ%b": 7})
    admission = Admission({}, dead)
    for name, below in (("%LMQ%a", 9), ("%LMQ%b", 7), ("%LMQ%c", 0)):
        assert not admission.is_live(name, below - 1)
        assert admission.is_live(name, below)
