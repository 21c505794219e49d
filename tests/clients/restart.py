"""What a client has to do while the server is away, and behind it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.program import Program


def served(directory: Path, port: int) -> ServerProcess:
    server = ServerProcess(directory, port=port)
    server.wait_for("ready")
    return server


def go_on_through_a_restart(
    program: Program, directory: Path, port: int, how: signal.Signals
) -> None:
    """The server ends, by SIGTERM or SIGKILL, while a producer, a simple consumer with a message
    and a push consumer are connected."""
    with served(directory, port) as server:
        program.do("producer", topic="orders")
        program.send("orders", "acknowledged", "held")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one["id"] for one in program.receive_all(2)}
        program.do("ack", ids=[got["acknowledged"]])
        program.do("push", group="pushed", topic="orders")
        program.until_pushed("acknowledged", "held")
        server.send(how)
        assert server.wait() == (0 if how is signal.SIGTERM else -how)
    with served(directory, port):
        # Its handle is from before.
        program.do_when_served("ack", ids=[got["held"]])
        program.do_when_served("send", topic="orders", bodies=["after"])
        assert [one["body"] for one in program.receive_all(1)] == ["after"]
        seen = [one["pushed"]["body"] for one in program.until_pushed("after")]
        # Killed right behind the listener's return, the server may not have heard of it.
        assert set(seen) - {"acknowledged", "held"} == {"after"}
        program.do("stop")
