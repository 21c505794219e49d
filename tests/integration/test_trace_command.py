"""kvcq trace against a server of its own."""

from __future__ import annotations

from kvcq_client import Client, Message
from tests.support.command_line import answer_of, kvcq


def test_a_message_is_traced_from_put_to_acknowledgement(target: str) -> None:
    put = answer_of("put", "traced", "x", server=target)
    message_id = put["messageId"]
    none = kvcq("trace", message_id, server=target)
    assert "no group has received" in none.stderr
    assert kvcq("group", "create", "tracers", server=target).exit_code == 0
    consumed = kvcq("consume", "traced", "--group", "tracers", "--limit", "1", server=target)
    assert consumed.exit_code == 0, consumed.stderr
    trace = answer_of("trace", message_id, server=target)
    assert [each["what"] for each in trace["events"]] == ["delivered", "acknowledged"]
    assert [(one["outcome"], one["deliveries"]) for one in trace["groups"]] == [("acknowledged", 1)]
    shown = kvcq("trace", message_id, server=target)
    assert "tracers" in shown.stdout
    assert "acknowledged" in shown.stdout


def test_a_delayed_message_is_traced_by_its_handle(target: str) -> None:
    put = answer_of("put", "later", "x", "--delay", "2h", server=target)
    trace = answer_of("trace", put["handle"], "--delayed", "later", server=target)
    assert trace["state"] == "pending"
    assert trace["dueMs"] == put["deliverAtMs"]
    shown = kvcq("trace", put["handle"], "--delayed", "later", server=target)
    assert "waits for its time" in shown.stdout
    assert trace["outcome"] is None
    assert kvcq("timers", "recall", "later", put["handle"], server=target).exit_code == 0
    trace = answer_of("trace", put["handle"], "--delayed", "later", server=target)
    assert (trace["state"], trace["outcome"]) == ("ended", "recalled")
    shown = kvcq("trace", put["handle"], "--delayed", "later", server=target)
    assert any(line.split() == ["state", "recalled"] for line in shown.stdout.splitlines())


def test_a_transaction_is_traced_by_its_id(target: str) -> None:
    with Client(target) as client:
        begun = client.begin_transaction(Message("sold", b"x"), group="shop")
        assert client.trace(transaction_id=begun).end is None
        client.commit_transaction(begun)
        trace = client.trace(transaction_id=begun)
    assert trace.end == trace.events[-1]
    assert answer_of("trace", begun, "--transaction", server=target)["outcome"] == "committed"


def test_a_dead_letter_is_traced_by_the_id_in_its_list_and_back(target: str) -> None:
    with Client(target) as client:
        client.create_group("fails", max_deliveries=1)
        client.put("poisoned", b"x")
        client.give_back("fails", client.receive("poisoned", group="fails"))
        assert not client.receive("poisoned", group="fails")  # it moves
        [letter] = answer_of("dlq", "list", "fails", server=target)
        trace = answer_of("trace", letter["messageId"], server=target)
        assert trace["events"][-1]["what"] == "dead letter"
        letter_id = trace["events"][-1]["messageId"]
        client.redrive("fails")
        [redriven] = client.receive("poisoned", group="fails")
    became = kvcq("trace", letter_id, server=target).stdout
    assert f"was {letter['messageId']}" in became
    assert f"was {redriven.message.message_id}" not in became
    first = kvcq("trace", letter["messageId"], server=target).stdout
    assert "redriven" in first
    assert f"message        {redriven.message.message_id}" in first.replace("│", " ")
    (again,) = answer_of("trace", letter["messageId"], server=target)["redriven"]
    assert [one["outcome"] for one in again["groups"]] == ["in flight"]
    was = kvcq("trace", redriven.message.message_id, server=target).stdout
    assert f"was {letter_id}" in was


def test_what_is_no_message_id_is_refused_with_what_to_do(target: str) -> None:
    refused = kvcq("trace", "x", server=target)
    assert refused.exit_code == 2
    assert "--delayed TOPIC" in refused.stderr
    missing = kvcq("trace", "7F00000100001FA30000000000000123", server=target)
    assert missing.exit_code == 1
    assert "no message" in missing.stderr
    given = kvcq("trace", "0102FC" + "0" * 28, server=target)
    assert given.exit_code == 2
    assert "is the id that a RocketMQ client shows" in given.stderr
    assert "next:  kvcq query TOPIC KEY --json" in given.stderr
