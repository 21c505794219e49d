"""server/puts/settlements.py: acknowledgements that arrive together are one turn of the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from server.metrics import CallMetrics
from server.puts.durability import Durability
from server.puts.settlements import MOST_TOGETHER, Settlements
from server.workers import Workers
from store.errors import AppendWouldWaitError, InvalidArgumentError, UnknownGroupError
from store.groups import Answered, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.groups import SharedGroups
    from store.message_store import MessageStore


class RecordingGroups:
    """Acknowledges each handle once; handles that begin with "bad" are none."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, list[str]]] = []
        self.would_wait = False

    def acknowledge(
        self, group: str, handles: Sequence[str], *, wait: bool, at_once: bool = False
    ) -> Answered:
        if at_once and self.would_wait:
            raise AppendWouldWaitError("another turn is in progress")
        if group == "missing":
            raise UnknownGroupError(group)
        for at, handle in enumerate(handles):
            if handle.startswith("bad"):
                raise InvalidArgumentError(f"handles[{at}]", "is no handle")
        seen = [handle for _, before in self.turns for handle in before]
        self.turns.append((group, list(handles)))
        outcomes = [Outcome.NOT_IN_FLIGHT if handle in seen else Outcome.DONE for handle in handles]
        return Answered(outcomes, 0)

    def is_durable(self, end_offset: int) -> bool:
        return True


def _settlements(groups: RecordingGroups) -> Settlements:
    durability = Durability(cast("MessageStore", groups), asyncio.get_running_loop(), 5.0)
    return Settlements(cast("SharedGroups", groups), Workers(1), durability, CallMetrics())


async def test_acknowledgements_that_arrive_together_are_one_turn_for_each_group() -> None:
    groups = RecordingGroups()
    settlements = _settlements(groups)
    await settlements.acknowledge("g", ["before"])
    done = await asyncio.gather(
        settlements.acknowledge("g", ["a", "before"]),
        settlements.acknowledge("other", ["c"]),
        settlements.acknowledge("g", ["d"]),
    )
    assert groups.turns[1:] == [("g", ["a", "before", "d"]), ("other", ["c"])]
    assert [*done] == [[Outcome.DONE, Outcome.NOT_IN_FLIGHT], [Outcome.DONE], [Outcome.DONE]]


@pytest.mark.parametrize("would_wait", [False, True])
async def test_a_bad_handle_fails_its_own_caller_alone(*, would_wait: bool) -> None:
    groups = RecordingGroups()
    groups.would_wait = would_wait
    settlements = _settlements(groups)
    first, bad, last = await asyncio.gather(
        *(settlements.acknowledge("g", [handle]) for handle in ("a", "bad", "c")),
        return_exceptions=True,
    )
    assert first == last == [Outcome.DONE]
    assert isinstance(bad, InvalidArgumentError)
    assert bad.field == "handles[0]"
    assert groups.turns == [("g", ["a"]), ("g", ["c"])]


async def test_an_error_of_the_group_reaches_all_its_callers_and_no_others() -> None:
    settlements = _settlements(RecordingGroups())
    *failed, done = await asyncio.gather(
        *(settlements.acknowledge(group, ["a"]) for group in ("missing", "missing", "g")),
        return_exceptions=True,
    )
    assert all(isinstance(each, UnknownGroupError) for each in failed)
    assert done == [Outcome.DONE]


async def test_an_acknowledgement_that_is_cancelled_before_its_turn_is_done() -> None:
    groups = RecordingGroups()
    settlements = _settlements(groups)
    gone = asyncio.create_task(settlements.acknowledge("g", ["gone"]))
    kept = asyncio.create_task(settlements.acknowledge("g", ["kept"]))
    await asyncio.sleep(0)
    gone.cancel()
    assert await kept == [Outcome.DONE]
    assert groups.turns == [("g", ["gone", "kept"])]


async def test_a_turn_has_few_handles() -> None:
    groups = RecordingGroups()
    settlements = _settlements(groups)
    half = [str(number) for number in range(MOST_TOGETHER // 2)]
    many = [str(number) for number in range(MOST_TOGETHER * 2)]
    await asyncio.gather(*(settlements.acknowledge("g", each) for each in (half, half, many, half)))
    assert [len(handles) for _, handles in groups.turns] == [
        MOST_TOGETHER,
        2 * MOST_TOGETHER,
        MOST_TOGETHER // 2,
    ]
