"""kvcq group against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import Client, Message, Queue
from tests.support.command_line import answer_of, kvcq

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _jobs(target: str) -> None:
    """Ten messages in each of two queues."""
    with Client(target) as client:
        client.create_topic("jobs", 2)
        messages = [Message("jobs", b"%d" % number, number % 2) for number in range(20)]
        with client.producer() as producer:
            producer.send_many(messages)


def run(target: str, *arguments: str) -> Result:
    return kvcq("group", *arguments, server=target)


def answer(target: str, *arguments: str) -> Any:  # noqa: ANN401 - any JSON
    return answer_of("group", *arguments, server=target)


def commit(target: str, group: str, offset: int) -> None:
    with Client(target) as client:
        places = {Queue("jobs", 0): offset, Queue("jobs", 1): 10}
        client.commit_offsets(group, places, allow_back=True)


def test_groups_are_listed_with_what_is_before_them(target: str) -> None:
    commit(target, "billing", 4)
    row = {"kind": "reader", "queues": 2, "lag": 6, "inFlight": 0, "deadLetters": 0}
    assert {"group": "billing", **row} in answer(target, "list")
    assert "billing" in run(target, "list").stdout


def test_a_group_is_shown_queue_by_queue(target: str) -> None:
    commit(target, "shown", 7)
    queues = answer(target, "describe", "shown")["queues"]
    assert [(one["queueId"], one["offset"], one["lag"]) for one in queues] == [
        (0, 7, 3),
        (1, 10, 0),
    ]
    assert "3 messages behind" in run(target, "describe", "shown").stdout
    commit(target, "last", 9)
    assert "1 message behind" in run(target, "describe", "last").stdout


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (("--to", "earliest"), {0: 0, 1: 0}),
        (("--to", "latest"), {0: 10, 1: 10}),
        (("--to", "3", "--queue", "1"), {1: 3}),
        (("--to", "2000-01-01"), {0: 0, 1: 0}),
        (("--to", "-1h"), {0: 0, 1: 0}),
        (("--to", "now"), {0: 10, 1: 10}),
    ],
)
def test_a_group_is_moved(target: str, where: tuple[str, ...], offsets: dict[int, int]) -> None:
    commit(target, "moved", 5)
    moved = answer(target, "reset", "moved", "jobs", *where)["queues"]
    assert {one["queueId"]: one["offset"] for one in moved} == offsets
    now = answer(target, "describe", "moved", "--topic", "jobs")["queues"]
    assert {one["queueId"]: one["offset"] for one in now} == {0: 5, 1: 10} | offsets


def test_a_group_is_deleted_once_somebody_says_so(target: str) -> None:
    commit(target, "gone", 1)
    refused = run(target, "delete", "gone")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert answer(target, "delete", "gone", "--yes") == {"deleted": "gone"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "none"),
        ("delete", "none", "--yes"),
        ("reset", "none", "jobs", "--to", "latest"),
    ],
)
def test_a_group_that_is_not_there_is_told(target: str, arguments: tuple[str, ...]) -> None:
    done = run(target, *arguments)
    assert done.exit_code == 1
    assert "no group 'none'" in done.stderr
    assert "kvcq group list" in done.stderr
    assert json.loads(run(target, *arguments, "--json").stderr)["error"]["code"] == "UNKNOWN_GROUP"
    assert "none" not in [one["group"] for one in answer(target, "list")]


def test_a_group_without_offsets_in_a_topic_is_told(target: str) -> None:
    commit(target, "elsewhere", 1)
    done = run(target, "describe", "elsewhere", "--topic", "other")
    assert done.exit_code == 1
    assert "no committed offsets in other" in done.stderr


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ((), "--to"),
        (("--to", "soon"), "not earliest"),
        (("--to", "-3"), "a time such as -1h"),
    ],
)
def test_wrong_usage_is_told(target: str, where: tuple[str, ...], words: str) -> None:
    done = run(target, "reset", "billing", "jobs", *where)
    assert done.exit_code == 2
    assert words in done.stderr
