"""kvcq topic: what a topic keeps, against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import Client, Message, MessageType, QueueState, Retention, Start
from tests.support.command_line import answer_of, kvcq

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.integration


def run(target: str, *arguments: str) -> Result:
    return kvcq("topic", *arguments, server=target)


def answer(target: str, *arguments: str) -> Any:  # noqa: ANN401 - any JSON
    return answer_of("topic", *arguments, server=target)


def test_the_type_of_a_topic_is_set_and_shown(target: str) -> None:
    [made] = answer(target, "create", "payments", "--type", "fifo")
    assert made["messageType"] == "fifo"
    assert "for messages of type fifo" in run(target, "describe", "payments").stdout
    [changed] = answer(target, "update", "payments", "--type", "any")
    assert changed["messageType"] == "any"
    assert "type" not in run(target, "describe", "payments").stdout
    with Client(target) as client:
        assert client.describe_topic("payments").message_type is MessageType.ANY
        made_so = client.create_topic("late", message_type=MessageType.DELAY)
        assert made_so.message_type is MessageType.DELAY
        changed_so = client.update_topic("late", message_type=MessageType.NORMAL)
        assert changed_so.message_type is MessageType.NORMAL


def test_what_a_topic_keeps_is_set_and_shown(target: str) -> None:
    [made] = answer(target, "create", "orders", "--queues", "1", "--keep", "36h")
    nothing = {"timeMs": 0, "bytes": 0, "messages": 0, "latest": False}
    assert made["retention"] == {**nothing, "timeMs": 129_600_000}
    [changed] = answer(
        target, "update", "orders", "--keep", "0", "--keep-messages", "3", "--keep-bytes", "1GiB"
    )
    assert changed["retention"] == {**nothing, "bytes": 1 << 30, "messages": 3}
    [changed] = answer(target, "update", "orders", "--latest")
    assert changed["retention"] == {**nothing, "bytes": 1 << 30, "messages": 3, "latest": True}
    assert "the latest of each key" in run(target, "update", "orders", "--latest").stdout
    [changed] = answer(target, "update", "orders", "--no-latest")
    assert changed["retention"]["latest"] is False
    with Client(target) as client:
        with client.producer() as producer:
            producer.send_many([Message("orders", b"x", 0) for _ in range(10)])
        topic, queues = client.topic_queues("orders")
    assert topic.retention == Retention(bytes=1 << 30, messages=3)
    assert queues == [QueueState(0, 7, 10, 0)]
    [queue] = answer(target, "describe", "orders")["queues"]
    assert queue == {
        "queueId": 0,
        "minOffset": 7,
        "maxOffset": 10,
        "logMinOffset": 0,
        "supersededMessages": 0,
    }
    shown = run(target, "describe", "orders").stdout
    assert "keeps 1.0 GiB, 3 messages" in shown
    assert "hidden, still in the log" in shown
    assert "1 d 12 h" in run(target, "create", "later", "--keep", "1.5d").stdout
    assert "30 s" in run(target, "create", "soon", "--keep", "30s").stdout
    refused = run(target, "create", "never", "--keep", "100d")
    assert "8640000000 ms is longer than the log keeps any message" in refused.stderr


def test_a_topic_that_keeps_all_is_shown_as_before(target: str) -> None:
    answer(target, "create", "plain", "--queues", "2")
    assert "hidden" not in run(target, "describe", "plain").stdout
    queues = answer(target, "describe", "plain")["queues"]
    assert [each["logMinOffset"] for each in queues] == [0, 0]


def test_what_later_messages_supersede_is_hidden_and_counted(target: str) -> None:
    answer(target, "create", "state", "--queues", "1", "--latest")
    with Client(target) as client:
        for number in range(6):
            client.put(Message("state", b"%d" % number, 0, keys=(f"k{number % 2}",)))
        job = client.jobs.keep_latest()
        assert list(client.jobs.watch(job.job_id))[-1].numbers["hidden_messages"] == 4
        pulled = client.pull("state", 0, 0)
        assert [message.body for message in pulled.messages] == [b"4", b"5"]
        assert [message.queue_offset for message in pulled.messages] == [4, 5]
        with client.consumer("state", start=Start.EARLIEST) as consumer:
            assert [message.body for message in consumer.to_end()] == [b"4", b"5"]
    [queue] = answer(target, "describe", "state")["queues"]
    assert (queue["maxOffset"], queue["supersededMessages"]) == (6, 4)
    assert "superseded" in run(target, "describe", "state").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        (["update", "plain"], 2, None),
        (["update", "plain", "--keep", "7"], 2, "keep"),
        (["update", "plain", "--keep", "7y"], 2, "keep"),
        (["update", "plain", "--keep-bytes", "1XB"], 2, "keep_bytes"),
        (["update", "plain", "--keep-bytes", "999999999999TiB"], 2, "keep_bytes"),
        (["update", "plain", "--keep-messages", "-1"], 2, "keep_messages"),
        (["update", "plain", "--keep", "400d"], 2, "retention_time_ms"),
        (["update", "none", "--keep", "1h"], 1, None),
    ],
)
def test_what_cannot_be_kept_is_refused(
    target: str, arguments: list[str], code: int, field: str | None
) -> None:
    answer(target, "create", "plain", "--queues", "2")
    refused = run(target, *arguments, "--json")
    assert refused.exit_code == code, refused.output
    assert json.loads(refused.stderr)["error"]["field"] == field


def test_a_refusal_names_the_option(target: str) -> None:
    answer(target, "create", "plain", "--queues", "2")
    for command, name in (("update", "plain"), ("create", "other")):
        refused = run(target, command, name, "--keep", "400d")
        assert "--keep: 34560000000 ms is longer" in refused.stderr
        assert "store.reserved_hours is 72, 259200000 ms" in refused.stderr
