"""The same program with consumers of lite topics: see python_program.

`subscribe_lite` of this client, 5.1.2, sends the characters of the name as names. It says all that
it is subscribed to right when it is told to, and every 30 seconds.
"""

from __future__ import annotations

from typing import Any

from rocketmq import ConsumeResult, LitePushConsumer, LiteSimpleConsumer, MessageListener

from tests.clients import python_program


def shown(message: Any) -> dict[str, Any]:  # noqa: ANN401 - the client is not typed
    return {**python_program.shown(message), "lite": message.lite_topic}


class Listener(MessageListener):  # type: ignore[misc] # the client is not typed
    """As that of ordinary messages, with the lite topic of each."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def consume(self, message: Any) -> ConsumeResult:  # noqa: ANN401 - as above
        fails = message.body.startswith(b"fail") and message.message_id not in self._seen
        self._seen.add(message.message_id)
        python_program.say(pushed=shown(message), failed=fails)
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class LiteProgram(python_program.Program):
    """One producer and one consumer of either kind at most."""

    def lite_simple(self, group: str, parent: str, wait_s: int = 5) -> dict[str, Any]:
        self._simple = LiteSimpleConsumer(parent, self._config, group, wait_s, **self._tls)
        self._simple.startup()
        return {}

    def lite_push(self, group: str, parent: str) -> dict[str, Any]:
        self._push = LitePushConsumer(self._config, group, parent, Listener(), **self._tls)
        self._push.startup()
        return {}

    def subscribe(self, names: list[str]) -> dict[str, Any]:
        consumer = self._simple or self._push
        for name in names:
            consumer.subscribe_lite(name)
        consumer.subscribe_lite_all()
        return {}

    def unsubscribe(self, lite: str) -> dict[str, Any]:
        (self._simple or self._push).unsubscribe_lite(lite)
        return {}

    def receive(self, count: int = 32, invisible_s: int = 30) -> dict[str, Any]:
        messages = self._simple.receive(count, invisible_s) or []
        self._held.update({message.message_id: message for message in messages})
        return {"messages": [shown(message) for message in messages]}


if __name__ == "__main__":
    python_program.main(LiteProgram)
