"""What RocketMQ's own clients said to this server once is answered as it was then.

recorded/ has conversations of the clients of the names, by `python -m tests.clients.record`; what
they are told may not change without somebody seeing it, also where neither Java nor Node is there.
Each is replayed in a process of its own: client and server as they are after a start.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from store.metadata import MessageType, SharedGroup
from tests.server.rocketmq.replay import Replay
from tests.support.serving import serving

RECORDED = Path(__file__).with_name("recorded")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("client", ["java-5.2.0", "node-1.0.8", "python-5.1.2"])
def test_a_recorded_conversation_goes_as_it_went(tmp_path: Path, client: str) -> None:
    command = [sys.executable, "-m", __name__, client, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.returncode) == ("as it went\n", 0), done.stderr


async def _replay(client: str, root: Path) -> None:
    calls = json.loads((RECORDED / f"{client}.json").read_text("utf-8"))
    assert {"Telemetry", "ForwardMessageToDeadLetterQueue"} <= {each["rpc"] for each in calls}
    async with serving(root, store={"default_queue_count": 8}) as served:
        served.store.create_topics([("sequence", 4)], types={"sequence": MessageType.FIFO})
        served.store.groups.create(
            "in-order", SharedGroup(in_order=True, max_deliveries=2, backoff_ms=(1000,))
        )
        differing = await Replay(served.channel).run(calls)
        assert differing == [], differing
        sys.stdout.write("as it went\n")


if __name__ == "__main__":
    asyncio.run(_replay(sys.argv[1], Path(sys.argv[2])))
