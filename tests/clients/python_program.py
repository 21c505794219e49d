"""A program that uses RocketMQ's own Python client, and nothing of ours: `python python_program.py
HOST:PORT [KEY SECRET [tls]]`. It takes a command a line, as JSON, and answers each with a line.

What the client is given is what its examples give it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

_lock = threading.Lock()
#: What a message may be given, by the name that the command has for it.
_FIELDS = {
    **{name: name for name in ("tag", "keys", "message_group", "delivery_timestamp", "priority")},
    "lite": "lite_topic",
}


def say(**answer: Any) -> None:  # noqa: ANN401 - as JSON
    with _lock:
        print("ANSWER", json.dumps(answer), flush=True)  # noqa: T201


def shown(message: Any) -> dict[str, Any]:  # noqa: ANN401 - the client is not typed
    return {
        "body": message.body.decode(),
        "id": message.message_id,
        "tag": message.tag,
        "keys": list(message.keys or ()),
        "group": message.message_group,
        "properties": dict(message.properties or {}),
        "attempt": message.delivery_attempt,
    }


class Listener(MessageListener):  # type: ignore[misc] # the client is not typed
    """Tells each message; those whose body begins with `fail` fail the first time, those with
    `poison` each time."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def consume(self, message: Any) -> ConsumeResult:  # noqa: ANN401 - as above
        is_new = message.message_id not in self._seen
        self._seen.add(message.message_id)
        fails = message.body.startswith(b"poison") or (message.body.startswith(b"fail") and is_new)
        say(pushed=shown(message), failed=fails)
        if message.body.startswith(b"slow"):
            time.sleep(1)
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc] # as above
    """Tells what it is asked; what begins with `bad` was not done."""

    def check(self, message: Any) -> Any:  # noqa: ANN401 - as above
        body = message.body.decode()
        say(pushed={"checked": body}, failed=False)
        rolls_back = body.startswith("bad")
        return TransactionResolution.ROLLBACK if rolls_back else TransactionResolution.COMMIT


class Program:
    """One producer, one simple consumer and one push consumer at most."""

    def __init__(self, endpoints: str, key: str, secret: str, kind: str) -> None:
        self._config = ClientConfiguration(endpoints, Credentials(key, secret))
        self._tls = {"tls_enable": kind == "tls"}
        self._producer: Any = None
        self._simple: Any = None
        self._push: Any = None
        self._held: dict[str, Any] = {}

    def producer(self, topic: str) -> dict[str, Any]:
        self._producer = Producer(self._config, (topic,), checker=Checker(), **self._tls)
        self._producer.startup()
        return {}

    def half(self, topic: str, body: str, resolution: str = "") -> dict[str, Any]:
        """Send a message of a transaction, and commit it, roll it back, or leave it."""
        message = Message()
        message.topic = topic
        message.body = body.encode()
        transaction = self._producer.begin_transaction()
        receipt = self._producer.send(message, transaction)
        if resolution:
            getattr(transaction, resolution)()
        return {"id": receipt.message_id, "transaction_id": receipt.transaction_id}

    def send(self, topic: str, bodies: list[str], **given: Any) -> dict[str, Any]:  # noqa: ANN401
        receipts = []
        for body in bodies:
            message = Message()
            message.topic = topic
            message.body = body.encode()
            for name, field in _FIELDS.items():
                if name in given:
                    setattr(message, field, given[name])
            for name, value in given.get("properties", {}).items():
                message.add_property(name, value)
            receipts.append(self._producer.send(message))
        answer = {"ids": [each.message_id for each in receipts]}
        if "delivery_timestamp" in given:
            answer["handles"] = [each.recall_handle for each in receipts]
        return answer

    def recall(self, topic: str, handle: str) -> dict[str, Any]:
        return {"id": self._producer.recall_message(topic, handle)}

    def simple(self, group: str, topic: str, tag: str = "*", wait_s: int = 5) -> dict[str, Any]:
        subscription = {topic: FilterExpression(tag)}
        self._simple = SimpleConsumer(self._config, group, subscription, wait_s, **self._tls)
        self._simple.startup()
        return {}

    def receive(self, count: int = 32, invisible_s: int = 30) -> dict[str, Any]:
        messages = self._simple.receive(count, invisible_s) or []
        self._held.update({message.message_id: message for message in messages})
        return {"messages": [shown(message) for message in messages]}

    def ack(self, ids: list[str]) -> dict[str, Any]:
        for each in ids:
            self._simple.ack(self._held[each])
        return {}

    def change(self, id: str, invisible_s: int) -> dict[str, Any]:  # noqa: A002 - of the command
        self._simple.change_invisible_duration(self._held[id], invisible_s)
        return {}

    def push(self, group: str, topic: str, threads: int = 4) -> dict[str, Any]:
        self._push = PushConsumer(
            self._config,
            group,
            Listener(),
            {topic: FilterExpression()},
            consumption_thread_count=threads,
            **self._tls,
        )
        self._push.startup()
        return {}

    def stop(self) -> dict[str, Any]:
        for each in (self._producer, self._simple, self._push):
            if each is not None:
                each.shutdown()
        self._producer = self._simple = self._push = None
        return {}


def main(kind: type[Program] = Program) -> None:
    program = kind(*(*sys.argv[1:], "", "", "")[:4])
    for line in sys.stdin:
        name, given = json.loads(line)
        try:
            say(done=name, **getattr(program, name)(**given))
        except Exception as error:  # noqa: BLE001 - the other side judges it
            say(done=name, error=f"{type(error).__name__}: {error}")
    # Threads of the client that do not end must not keep the process.
    sys.stdout.flush()


if __name__ == "__main__":
    main()
