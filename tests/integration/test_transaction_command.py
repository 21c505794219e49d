"""kvcq tran, against a real server."""

from __future__ import annotations

import json

from kvcq_client import Client, Message
from tests.integration.test_shared_group_command import answer, run


def test_open_transactions_are_listed_and_decided_by_hand(target: str) -> None:
    assert "no open transactions" in run(target, "tran", "list").stderr
    with Client(target) as client:
        ids = [
            client.begin_transaction(Message("paid", b"%d" % n, queue_id=0), group="shop")
            for n in range(3)
        ]
        listed = answer(target, "tran", "list")
        assert [one["transactionId"] for one in listed] == ids
        assert {(one["group"], one["topic"], one["checks"]) for one in listed} == {
            ("shop", "paid", 0)
        }
        assert ids[0] in run(target, "tran", "list", "--group", "shop").stdout
        assert "there are more" in run(target, "tran", "list", "--limit", "2").stderr
        assert answer(target, "tran", "list", "--given-up") == []
        given_up = run(target, "tran", "list", "--given-up").stderr
        assert "no transaction was given up" in given_up
        assert "open" not in given_up
        no_group = run(target, "tran", "list", "--group", "nosuch").stderr
        assert "no open transactions of group 'nosuch'" in no_group
        assert "committed 2 transactions" in run(target, "tran", "commit", *ids[:2]).stderr
        assert "rolled back 1 transaction" in run(target, "tran", "rollback", ids[2]).stderr
        assert answer(target, "tran", "list") == []
        refused = run(target, "tran", "commit", ids[2])
        assert refused.exit_code == 1
        assert "was rolled back" in refused.stderr
        assert f"next:  kvcq trace {ids[2]} --transaction" in refused.stderr
        forged = run(target, "tran", "commit", "forged")
        assert "error: TRANSACTION: 'forged' is not the id of a transaction" in forged.stderr
        assert "next:  kvcq tran list" in forged.stderr
        forged = run(target, "trace", "forged", "--transaction")
        assert "error: MESSAGE_ID: 'forged' is not the id of a transaction" in forged.stderr
        forged = run(target, "trace", "forged", "--delayed", "paid")
        assert "error: MESSAGE_ID: " in forged.stderr
        forged = run(target, "trace", ids[0], "--transaction", "--after", "forged")
        assert "error: --after: " in forged.stderr
        assert [one.body for one in client.pull("paid", 0, 0).messages] == [b"0", b"1"]


def test_one_that_cannot_be_decided_does_not_stop_the_others(target: str) -> None:
    with Client(target) as client:
        ids = [client.begin_transaction(Message("some", b"%d" % n), group="shop") for n in range(3)]
        client.roll_back_transaction(ids[1])
        done = run(target, "tran", "commit", *ids, "--json")
        assert done.exit_code == 1
        assert json.loads(done.stdout) == {
            "transactions": [ids[0], ids[2]],
            "outcome": "committed",
        }
        assert ids[1] in json.loads(done.stderr.splitlines()[-1])["error"]["reason"]
        assert client.open_transactions() == []
        both = run(target, "tran", "rollback", "forged", ids[0])
        assert both.exit_code == 1
        assert "error: TRANSACTION: 'forged' is not the id of a transaction" in both.stderr
        assert "was committed" in both.stderr
