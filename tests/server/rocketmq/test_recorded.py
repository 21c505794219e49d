"""What RocketMQ's own clients said to this server once is answered as it was then.

recorded/ has conversations of the clients of the names, by `python -m tests.clients.record`; what
they are told may not change without somebody seeing it, also where neither Java nor Node is there.
rocketmq-5.5.0 is one with RocketMQ's own proxy: where this server answers otherwise it does so on
purpose.
Each is replayed in a process of its own: client and server as they are after a start.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store.metadata import MessageType, SharedGroup
from tests.server.rocketmq.replay import Replay
from tests.support.serving import serving

RECORDED = Path(__file__).with_name("recorded")
ROOT = Path(__file__).parents[3]
#: Names in the conversation with RocketMQ's proxy.
TOPIC, OPEN = "rec_8545fbde_32d922", "orphan_8545fbde_6dca24"
IN_ORDER = "fifo_g_8545fbde_5be490"


@pytest.mark.parametrize(
    "client", ["go-5.1.3", "java-5.2.0", "node-1.0.8", "python-5.1.2", "rust-5.0.0"]
)
def test_a_recorded_conversation_goes_as_it_went(tmp_path: Path, client: str) -> None:
    command = [sys.executable, "-m", __name__, client, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.returncode) == ("as it went\n", 0), done.stderr


#: What RocketMQ answered, and what is answered here, with the reason.
ON_PURPOSE = {
    # Topics are made on first use, by who may.
    "route of an unknown topic": ("TOPIC_NOT_FOUND", "OK"),
    "send to an unknown topic": ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "OK"),
    # A route is the same for every client.
    "without x-mq-client-id": ("CLIENT_ID_REQUIRED", "OK"),
    # Each message has an offset, so each has an entry.
    "batch of three: one entry": ("OK", "OK"),
    # Types are told with assignments as with routes; clients do not look at them.
    "unordered group": ("OK", "OK"),
    "ordered group": ("OK", "OK"),
    # A push consumer tries again for ever at any other code.
    "one good, one that is no handle": ("MULTIPLE_RESULTS", "MULTIPLE_RESULTS"),
    # It is the caller's mistake.
    "recall of no handle": ("INTERNAL_SERVER_ERROR", "BAD_REQUEST"),
    # Messages wait up to 40 days.
    "25 h": ("ILLEGAL_DELIVERY_TIME", "OK"),
    # The outcome is the one that was asked for: a client that heard no answer says it again.
    "commit again": ("INTERNAL_SERVER_ERROR", "OK"),
}


def test_the_conversation_with_rocketmqs_proxy_differs_on_purpose_alone(tmp_path: Path) -> None:
    """A receive before settings, which the proxy fails, is not made again; the check of an open
    transaction is left out, its answer is not."""
    test_a_recorded_conversation_goes_as_it_went(tmp_path, "rocketmq-5.5.0")


async def _replay(client: str, root: Path) -> None:
    calls = json.loads((RECORDED / f"{client}.json").read_text("utf-8"))
    assert {"Telemetry", "ReceiveMessage", "AckMessage"} <= {each["rpc"] for each in calls}
    async with serving(root, store={"default_queue_count": 8}) as served:
        if client.startswith("rocketmq"):
            served.store.create_topics(
                [(TOPIC, 4), (OPEN, 4)], types={OPEN: MessageType.TRANSACTION}
            )
            served.store.groups.create(IN_ORDER, SharedGroup(in_order=True))
        else:
            served.store.create_topics([("sequence", 4)], types={"sequence": MessageType.FIFO})
            served.store.groups.create(
                "in-order", SharedGroup(in_order=True, max_deliveries=2, backoff_ms=(1000,))
            )
        differing = await Replay(served.channel).run(calls)
        found = {note: (_code(then), _code(now)) for note, then, now in differing}
        assert found == (ON_PURPOSE if client.startswith("rocketmq") else {}), differing
        sys.stdout.write("as it went\n")


def _code(answer: Any) -> Any:  # noqa: ANN401 - of any call
    return answer[0] if isinstance(answer, tuple) else answer


if __name__ == "__main__":
    asyncio.run(_replay(sys.argv[1], Path(sys.argv[2])))
