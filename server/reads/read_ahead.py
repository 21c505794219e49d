"""What is likely to be pulled next is read while its reader is busy with the answer before.

One who pulls a queue step by step asks for the next step when the last one is decoded: until then
the server has nothing to do, and afterwards the reader. So the records of the next step are read,
verified, and made an answer once the one before is on its way. That is all: bounds, rights, and
whether the queue still has those records are looked up when the pull is there. Where that is not
certain they are dropped, and read as without all this.

A pull that begins where an answer ended is the next step, whoever asks: what is read ahead is of a
queue, not of a connection. The second step is read when it is asked for, those behind it ahead. But
not while others make calls: the server has something to do then, and they would wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.reads.answer import Answer, answer_of
from server.reads.reader import is_laborious

if TYPE_CHECKING:
    import asyncio

    from server.edge import CallGate, RequestMemory
    from server.reads.reader import Place
    from server.stage import Stage
    from store.message_store import MessageStore
    from store.reads import PullPlan

#: Of records that are read ahead, for all readers.
MOST_BYTES = 8 << 20
#: Who takes longer from an answer to the next step gains nothing.
STEP_S = 0.05
#: Ends of answers that are remembered.
MOST_STEPS = 64
#: So often everything is dropped: most of what is left then nobody asks for. Who reads on loses one
#: step by it.
DROP_EVERY_S = 1.0


class Ahead(NamedTuple):
    """A pull that was read ahead."""

    plan: PullPlan
    answer: Answer  # its response is encoded


class ReadAhead:
    """For pulls that are answered at once. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        memory: RequestMemory,
        gate: CallGate,
        stage: Stage,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._memory = memory
        self._gate = gate
        self._stage = stage
        self._loop = loop
        # Where answers ended, oldest first: when, and how many calls had come.
        self._ends: dict[Place, tuple[float, int]] = {}
        self._read: dict[Place, Ahead] = {}
        self._bytes = 0  # of it
        self._timer: asyncio.TimerHandle | None = None
        stage.on_change(self._changed)

    def take(self, place: Place) -> Ahead | None:
        """What a pull from there gives now. None: it has to be read."""
        read = self._read.pop(place, None)
        if read is None:
            return None
        self._let_go(read)
        try:
            plan = self._store.plan_again(read.plan)
        except Exception:  # noqa: BLE001 - the pull meets it too, and says so
            return None
        return None if plan is None else _with_bounds(read, plan)

    def answered(self, place: Place, next_offset: int, max_offset: int) -> None:
        """A pull from there got messages up to `next_offset`, of a queue up to `max_offset`, both
        exclusive; the answer goes out in this turn of the loop."""
        if next_offset >= max_offset:
            return
        key, _, max_bytes, wanted = place
        if wanted.tag_filter is not None:
            return
        now_s, came = self._loop.time(), self._gate.came
        before_s, before = self._ends.pop(place, (-STEP_S, 0))
        step: Place = key, next_offset, max_bytes, wanted
        self._ends[step] = now_s, came
        if len(self._ends) > MOST_STEPS:
            del self._ends[next(iter(self._ends))]
        is_alone = came - before == 1
        if is_alone and now_s - before_s < STEP_S:
            # Not in the next turn, but in that behind it: who has asked by then goes first.
            self._loop.call_soon(self._loop.call_soon, self._go_on, step, came)

    def _go_on(self, step: Place, came: int) -> None:
        is_busy = self._gate.came != came or self._memory.is_crowded
        if is_busy or self._stage.is_draining or step in self._read:
            return
        try:
            read = self._read_from(step)
        except Exception:  # noqa: BLE001 - the pull meets it too, and says so
            return
        if read is None:
            return
        self._read[step] = read
        size = read.plan.size_bytes
        self._bytes += size
        self._memory.sends(size)
        if self._memory.is_crowded:
            self._drop()
        elif self._timer is None:
            self._timer = self._loop.call_later(DROP_EVERY_S, self._drop)

    def _read_from(self, step: Place) -> Ahead | None:
        """None: not that much, or not as easily."""
        (topic, queue_id), offset, max_bytes, wanted = step
        store = self._store
        if not store.may_plan_again(topic, queue_id) or store.is_cold(topic, queue_id, offset):
            return None
        plan = store.plan_pull(
            topic,
            queue_id,
            offset,
            max_messages=wanted.max_messages,
            max_bytes=max_bytes,
            tag_filter=None,
        )
        is_last = plan.next_offset >= plan.max_offset  # there may be more when it is asked for
        if is_last or self._bytes + plan.size_bytes > MOST_BYTES:
            return None
        pulled = store.read_planned(plan)
        if len(pulled.records) < len(plan.places) or is_laborious(pulled, wanted.form):
            return None
        return Ahead(plan, answer_of(pulled, wanted.form, encode=True))

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for read in self._read.values():
            self._let_go(read)
        self._read.clear()

    def _let_go(self, read: Ahead) -> None:
        size = read.plan.size_bytes
        self._bytes -= size
        self._memory.sent(size)

    def _changed(self) -> None:
        if self._stage.is_draining:
            self._drop()


def _with_bounds(read: Ahead, plan: PullPlan) -> Ahead | None:
    """The same with the bounds of `plan`. None: that takes more than to say them."""
    before, answer = read
    if (plan.min_offset, plan.max_offset) == (before.min_offset, before.max_offset):
        return read
    if plan.min_offset == 0 < before.min_offset:  # a 0 is not sent
        return None
    # Of a field that comes twice the last one counts.
    bounds = pb.PullResponse(min_offset=plan.min_offset, max_offset=plan.max_offset)
    assert isinstance(answer.response, bytes)
    response = answer.response + bounds.SerializeToString()
    return Ahead(plan, answer._replace(response=response))
