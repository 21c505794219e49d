"""kvcq group and kvcq dlq of shared groups, against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import Client, Message
from tests.support.command_line import answer_of, kvcq
from tests.support.until import wait_until

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.integration


def run(target: str, *arguments: str) -> Result:
    return kvcq(*arguments, server=target)


def answer(target: str, *arguments: str) -> Any:  # noqa: ANN401 - any JSON
    return answer_of(*arguments, server=target)


def put(target: str, topic: str, count: int) -> None:
    with Client(target) as client, client.producer() as producer:
        producer.send_many([Message(topic, b"%d" % number, 0) for number in range(count)])


def bury(target: str, group: str, topic: str, count: int) -> None:
    """So many dead letters of a group that is made."""
    answer(target, "group", "create", group, "--max-deliveries", "1")
    put(target, topic, count)
    with Client(target) as client:
        found = client.receive(topic, group=group, max_messages=count)
        client.give_back(group, found, 0)
        assert client.receive(topic, group=group) == []


def test_a_group_that_exists_otherwise_is_shown_and_can_be_changed(target: str) -> None:
    run(target, "group", "create", "g")
    refused = run(target, "group", "create", "g", "--max-deliveries", "3")
    assert refused.exit_code == 1
    assert "next:  kvcq group describe g" in refused.stderr
    assert "`kvcq group update`" in refused.stderr
    late = run(target, "group", "create", "h", "--backoff", "50d")
    assert "error: --backoff: 50 d is outside 0 to 30 d" in late.stderr


def test_a_group_is_made_shown_changed_and_deleted(target: str) -> None:
    arguments = (
        "--max-deliveries",
        "3",
        "--invisible",
        "30s",
        "--backoff",
        "1s",
        "--backoff",
        "1m",
    )
    made = answer(target, "group", "create", "made", *arguments)
    assert made["settings"]["maxDeliveries"] == 3
    assert made["settings"]["invisibleMs"] == 30_000
    assert made["settings"]["backoffMs"] == [1000, 60_000]
    changed = answer(target, "group", "update", "made", "--invisible", "2m", "--no-backoff")
    assert changed["settings"]["backoffMs"] == []
    assert changed["settings"]["maxDeliveries"] == 3, "as it was"
    shown = run(target, "group", "describe", "made").stdout
    assert "2 min" in shown
    assert "delivers" in shown
    assert answer(target, "group", "delete", "made", "--yes") == {"deleted": "made"}
    gone = run(target, "group", "describe", "made")
    assert gone.exit_code == 1
    assert "kvcq group list" in gone.stderr


def test_a_group_in_order_is_made_so_and_stays_so(target: str) -> None:
    made = answer(target, "group", "create", "ordered", "--in-order")
    assert made["settings"]["inOrder"]
    assert made["settings"]["maxDeliveries"] is None
    assert "no limit" in run(target, "group", "describe", "ordered").stdout


def test_both_kinds_are_listed(target: str) -> None:
    put(target, "listed", 5)
    with Client(target) as client:
        client.receive("listed", group="shared-one", max_messages=2)
    rows = {one["group"]: one for one in answer(target, "group", "list")}
    assert rows["shared-one"] == {
        "group": "shared-one",
        "kind": "shared",
        "queues": 8,
        "lag": 5,
        "inFlight": 2,
        "deadLetters": 0,
    }
    assert "shared-one" in run(target, "group", "list").stdout


def test_a_group_that_is_deleted_while_all_are_listed_is_left_out(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(target, "group", "create", "stays")
    groups = Client.groups
    monkeypatch.setattr(Client, "groups", lambda client: iter(["deleted", *groups(client)]))
    listed = [one["group"] for one in answer(target, "group", "list")]
    assert "stays" in listed
    assert "deleted" not in listed


def test_where_a_group_is_is_shown_queue_by_queue(target: str) -> None:
    put(target, "places", 4)
    with Client(target) as client:
        found = client.receive("places", group="placed", max_messages=3)
        client.acknowledge("placed", found[:1])
        client.give_back("placed", found[1:2], 60)
        queue, *others = answer(target, "group", "describe", "placed")["queues"]
        assert [(one["queueId"], one["lag"]) for one in others] == [(at, 0) for at in range(1, 8)]
        assert (queue["nextOffset"], queue["doneBelow"], queue["lag"]) == (3, 1, 3)
        assert (queue["inFlight"], queue["waitingAgain"]) == (1, 1)
        [member] = answer(target, "group", "describe", "placed")["members"]
        assert (member["user"], member["waiting"], member["inFlight"]) == ("", 0, 1)
        assert member["address"] in run(target, "group", "describe", "placed").stdout
    assert "3 messages not done" in run(target, "group", "describe", "placed").stdout
    assert answer(target, "group", "describe", "placed", "--topic", "other")["queues"] == []


def test_members_that_ended_are_shown_no_longer_than_they_have_messages(target: str) -> None:
    put(target, "leaving", 2)

    def members() -> list[int]:
        return [one["inFlight"] for one in answer(target, "group", "describe", "left")["members"]]

    with Client(target) as client:
        both = client.receive("leaving", group="left")
        client.acknowledge("left", both[:1])
    with Client(target) as client:
        client.receive("leaving", group="left")
        client.acknowledge("left", both[1:])
        assert 0 in members()
    wait_until(lambda: members() == [])


def test_a_paused_group_is_given_nothing(target: str) -> None:
    put(target, "pausing", 1)
    answer(target, "group", "create", "pauses")
    assert answer(target, "group", "pause", "pauses") == {"paused": "pauses"}
    with Client(target) as client:
        assert client.receive("pausing", group="pauses") == []
        assert answer(target, "group", "resume", "pauses") == {"resumed": "pauses"}
        assert len(client.receive("pausing", group="pauses")) == 1


def test_a_reset_says_what_it_ended(target: str) -> None:
    put(target, "resetting", 4)
    with Client(target) as client:
        client.receive("resetting", group="resets")
    done = run(target, "group", "reset", "resets", "resetting", "--to", "1", "--queue", "0")
    assert "4 messages in flight can no longer be acknowledged" in done.stderr
    queue, *_ = answer(target, "group", "describe", "resets")["queues"]
    assert (queue["nextOffset"], queue["inFlight"]) == (1, 0)


def test_a_delete_says_what_is_in_flight_and_asks(target: str) -> None:
    put(target, "deleting", 2)
    with Client(target) as client:
        client.receive("deleting", group="deletes")
    asked = run(target, "group", "delete", "deletes")
    assert asked.exit_code == 1
    assert "2 messages in flight" in asked.stderr
    assert "--yes" in asked.stderr
    assert answer(target, "group", "describe", "deletes")["kind"] == "shared"


def test_a_setting_that_is_wrong_is_named_as_its_option(target: str) -> None:
    answer(target, "group", "create", "wrong")
    refused = run(target, "group", "update", "wrong", "--invisible", "13h", "--json")
    error = json.loads(refused.stderr)["error"]
    assert refused.exit_code == 2
    assert error["code"] == "INVALID_ARGUMENT"
    assert "--invisible" in error["field"] or "invisible" in error["field"]
    nothing = run(target, "group", "update", "wrong")
    assert nothing.exit_code == 2
    assert "at least one" in nothing.stderr


def test_dead_letters_are_listed_shown_and_put_back(target: str) -> None:
    bury(target, "buries", "buried", 3)
    letters = answer(target, "dlq", "list", "buries")
    assert [(one["topic"], one["queueOffset"], one["deliveries"]) for one in letters] == [
        ("buried", 0, 1),
        ("buried", 1, 1),
        ("buried", 2, 1),
    ]
    assert "buried" in run(target, "dlq", "list", "buries").stdout
    assert "there are more" in run(target, "dlq", "list", "buries", "--limit", "2").stderr
    offset = str(letters[1]["offset"])
    assert json.loads(run(target, "dlq", "show", "buries", offset, "--json").stdout)["body"] == "1"
    assert "body" in run(target, "dlq", "show", "buries", offset).stdout
    assert answer(target, "dlq", "redrive", "buries", offset) == {"redriven": 1, "left": 0}
    again = run(target, "dlq", "redrive", "buries", offset)
    assert "1 offset skipped: group 'buries' has no dead letter" in again.stderr
    assert again.exit_code == 1
    with Client(target) as client:
        [found] = client.receive("buried", group="buries")
        assert found.message.body == b"1"
    assert "put back 2 messages" in run(target, "dlq", "redrive", "buries").stderr
    assert answer(target, "dlq", "list", "buries") == []
    none = run(target, "dlq", "redrive", "buries")
    assert none.exit_code == 1
    assert "group 'buries' has no dead letters: nothing was put back" in none.stderr


def test_offsets_beyond_the_limit_of_a_redrive_are_not_missing(target: str) -> None:
    bury(target, "limits", "limited", 3)
    offsets = [str(one["offset"]) for one in answer(target, "dlq", "list", "limits")]
    done = run(target, "dlq", "redrive", "limits", *offsets, "--limit", "2")
    assert done.exit_code == 0, done.output
    assert "put back 2 messages" in done.stderr
    left = answer(target, "dlq", "list", "limits")
    assert [str(one["offset"]) for one in left] == offsets[2:]


def test_a_dead_letter_is_deleted_once_somebody_says_so(target: str) -> None:
    bury(target, "drops", "dropped", 2)
    first = str(answer(target, "dlq", "list", "drops")[0]["offset"])
    assert run(target, "dlq", "delete", "drops", first).exit_code == 1
    assert answer(target, "dlq", "delete", "drops", first, "--yes") == {"deleted": 1}
    again = run(target, "dlq", "delete", "drops", first, "--yes")
    assert again.exit_code == 1
    assert "no dead letter there" in again.stderr
    missing = run(target, "dlq", "show", "drops", first)
    assert missing.exit_code == 1
    assert "kvcq dlq list" in missing.stderr


def test_dead_letters_of_a_group_that_is_not_there(target: str) -> None:
    refused = run(target, "dlq", "list", "nobody", "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stderr)["error"]["code"] == "UNKNOWN_GROUP"
