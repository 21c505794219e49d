"""The model by itself: whatever happens, an opening has what the log says, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.kvcq.ground.model import Model, State

if TYPE_CHECKING:
    from tests.kvcq.ground.model import Record

NAMES = ("A", "B", "%LMQ%x")
ENTRIES: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("made"), st.tuples(st.tuples(st.sampled_from(NAMES[:2]), st.integers(1, 3)))),
    st.tuples(st.just("ended"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("put"),
        st.tuples(
            st.tuples(
                st.sampled_from(NAMES[:2]),
                st.integers(0, 1),
                st.binary(max_size=2),
                st.sampled_from([(), NAMES[2:]]),
                st.just(0),
            )
        ),
    ),
    st.tuples(
        st.just("committed"),
        st.sampled_from("gh"),
        st.sampled_from(NAMES),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
)


class ModelMachine(RuleBasedStateMachine):
    """The log grows, is cut, grows again with other records; states are kept at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.dispatched = 0  # records: a database is never ahead of what was appended

    @rule(entry=ENTRIES)
    def append(self, entry: Record) -> None:
        end = self.model.end
        self.model.append((end, end + 10 + len(self.model.log) % 3, *entry))

    @rule()
    def flush(self) -> None:
        self.model.flushed = self.model.end

    @rule()
    def flush_database(self) -> None:
        """RocksDB writes when it likes, also what the log has not flushed."""
        self.model.database = tuple(self.model.log)

    @rule()
    def snapshot(self) -> None:
        self.flush()
        self.model.snapshots.append(tuple(self.model.log))

    @rule(part=st.integers(0, 9))
    def drop(self, part: int) -> None:
        ends = [state[-1][1] for state in self.model.snapshots if state]
        if ends and self.model.opened() is not None:
            self.model.start = max(self.model.start, max(ends) * part // 9)

    @rule(part=st.integers(0, 9))
    def lose_power(self, part: int) -> None:
        model = self.model
        model.cut(model.flushed + (model.end - model.flushed) * part // 9)

    @rule()
    def lose_database(self) -> None:
        self.model.database = ()

    @invariant()
    def an_opening_has_what_the_log_says(self) -> None:
        opened = self.model.opened()
        if opened is None:
            assert self.model.start, "of a log from 0 there is always one"
            assert not self.model.snapshots
        else:
            assert opened == State.of(self.model.log)


TestModel = ModelMachine.TestCase
TestModel.settings = settings(max_examples=50, stateful_step_count=40)
