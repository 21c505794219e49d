"""Converts delayed messages to API messages and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import timers_pb2 as pb
from server.wire.messages_in import message_in
from store.errors import InvalidArgumentError
from store.format import DELAY_LEVELS_MS
from store.held import MOST_AHEAD_MS, Recall, too_far

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.wire.messages_in import Choose
    from server.wire.put_limits import Budget
    from store.held import Waiting
    from store.message import Host, Message

_OUTCOMES = {
    Recall.RECALLED: pb.RECALL_OUTCOME_RECALLED,
    Recall.NOT_WAITING: pb.RECALL_OUTCOME_NOT_WAITING,
}


def delayed_in(
    request: pb.PutDelayedRequest, born_host: Host, choose: Choose, budget: Budget, now_ms: int
) -> tuple[list[Message], list[int]]:
    """The messages, and when each is due. Raises InvalidArgumentError, naming the field;
    TooMuchError if the budget is exceeded."""
    budget.messages(len(request.messages), "messages")
    messages: list[Message] = []
    due_ms: list[int] = []
    for index, one in enumerate(request.messages):
        messages.append(message_in(one.message, born_host, choose, budget, index))
        due_ms.append(_due_ms(one, f"messages[{index}]", now_ms))
    return messages, due_ms


def _due_ms(one: pb.DelayedMessage, where: str, now_ms: int) -> int:
    when = one.WhichOneof("when")
    if when is None:
        raise InvalidArgumentError(
            f"{where}.deliver_at_ms", "is missing, and so are delay_ms and delay_level: give one"
        )
    value: int = getattr(one, when)
    if when == "delay_level":
        if not 1 <= value <= len(DELAY_LEVELS_MS):
            raise InvalidArgumentError(
                f"{where}.delay_level", f"{value} is outside 1 to {len(DELAY_LEVELS_MS)}"
            )
        return now_ms + DELAY_LEVELS_MS[value - 1]
    if value < 0:
        raise InvalidArgumentError(f"{where}.{when}", f"{value} is below 0")
    if when == "deliver_at_ms":
        return value
    if value > MOST_AHEAD_MS:
        raise InvalidArgumentError(f"{where}.{when}", too_far(value))
    return now_ms + value


def recalls_out(outcomes: Sequence[Recall]) -> list[pb.RecallOutcome]:
    return [_OUTCOMES[each] for each in outcomes]


def waiting_out(waiting: Waiting) -> pb.Delayed:
    message = waiting.message
    return pb.Delayed(
        handle=waiting.handle,
        deliver_at_ms=waiting.due_ms,
        topic=message.topic,
        queue_id=message.queue_id,
        tag=message.tag,
        keys=message.keys,
        light_queues=message.light_queues,
        body_bytes=len(message.body),
    )
