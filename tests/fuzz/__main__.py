"""`python -m tests.fuzz`: calls of every method against a server process, seed after seed; every
other one has users."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from tests.fuzz.calls import CALLERS, Fuzz
from tests.fuzz.requests import USERS
from tests.support.private_memory import PrivateMemory
from tests.support.server_process import ServerProcess
from tests.support.users import add_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client import Credentials

#: Calls of one seed: each has a store of its own.
CALLS_A_SEED = 50_000
MOST_MIB = 1024

#: A server in which a topic has few queues.
MODULE = "tests.support.other_constants"


def main() -> None:
    """Ends with an error at the first answer that is not declared."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    settings = parser.parse_args()
    few_queues = {"store.config.StoreConfig.max_queue_count": 64}
    os.environ["KVCQ_TEST_CONSTANTS"] = json.dumps(few_queues)
    statuses: Counter[tuple[str, str]] = Counter()
    for seed in range(settings.seed, settings.seed + -(-settings.calls // CALLS_A_SEED)):
        with tempfile.TemporaryDirectory() as directory:
            root, callers = Path(directory) / "store", CALLERS if seed % 2 == 0 else (None,)
            flags = []
            if seed % 2 == 0:
                add_users(root, USERS, segment_bytes=4 << 20)
                flags.append("--access")
            with ServerProcess(root, *flags, module=MODULE) as server:
                server.wait_for("ready")
                memory = PrivateMemory(server.pid)
                try:
                    statuses += asyncio.run(_run(server.target, seed, callers))
                finally:
                    memory.close()
                if memory.most_mib >= MOST_MIB:
                    sys.exit(f"seed {seed}: the server took {memory.most_mib} MiB")
        print(f"seed {seed}: {CALLS_A_SEED:,} calls, {memory.most_mib} MiB at most", flush=True)  # noqa: T201
    for (method, status), calls in sorted(statuses.items()):
        print(f"{method:24} {status:22} {calls:>10,}")  # noqa: T201


async def _run(
    target: str, seed: int, callers: Sequence[Credentials | None]
) -> Counter[tuple[str, str]]:
    async with grpc.aio.insecure_channel(target) as channel:
        fuzz = Fuzz(channel, seed, callers)
        await fuzz.prepare()
        await fuzz.run(CALLS_A_SEED)
        await fuzz.check_control()
        return fuzz.statuses


if __name__ == "__main__":
    main()
