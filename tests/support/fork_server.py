"""A process that has imported what tests start, and forks one process for each.

Run as `python -m tests.support.fork_server DESCRIPTOR`, by `tests.support.forked`. The descriptor
is a socket of whole messages: each is a JSON object, with the descriptors of stdin, stdout, stderr
and of a socket on which the new process's number is sent, and its exit code when it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from multiprocessing.connection import wait

#: What takes most of the time to import. None starts a thread.
_IMPORTED = (
    *("kvcq.opening", "migration.opening", "migration.steps", "server.app", "server.cli.main"),
    *("tests.support.rebuild", "tests.support.stores"),
)
_MOST_BYTES = 1 << 18


def _forked(requests: socket.socket) -> str | None:
    """Serve requests. Returns twice as `fork` does: in a new process, with the module it is to run;
    here with None, once no more requests come."""
    replies: dict[int, socket.socket] = {}
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    while True:
        _report(replies)
        message, descriptors, _, _ = _next(requests, woken)
        if message is None:
            continue
        if not message:
            return None
        wanted = json.loads(message)
        reply = socket.socket(fileno=descriptors.pop())
        number = os.fork()
        if number:
            for each in descriptors:
                os.close(each)
            replies[number] = reply
            reply.send(b"%d" % number)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for ours in (requests, woken, waking, reply, *replies.values()):
            ours.close()
        for standard, each in enumerate(descriptors):
            os.dup2(each, standard)
            os.close(each)
        # What stands over the old ones knows whether these can be searched, and has buffers.
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
        hangup = signal.SIG_IGN if wanted["hears_no_hangup"] else signal.SIG_DFL
        signal.signal(signal.SIGHUP, hangup)
        os.chdir(wanted["directory"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        sys.argv = [wanted["module"], *wanted["arguments"]]
        return sys.argv[0]


def _next(
    requests: socket.socket, woken: socket.socket
) -> tuple[bytes | None, list[int], int, object]:
    """The next request; None when a process has ended instead."""
    # `select` takes no descriptor above 1,023; a worker that has run many tests has those.
    if requests in wait([requests, woken]):
        return socket.recv_fds(requests, _MOST_BYTES, 4)
    woken.recv(_MOST_BYTES)
    return None, [], 0, None


def _report(replies: dict[int, socket.socket]) -> None:
    """Send the exit codes of those that have ended."""
    for number in [*replies]:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            # The test that started it may have ended.
            with replies.pop(number) as reply, suppress(OSError):
                reply.send(b"%d" % os.waitstatus_to_exitcode(status))


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in _IMPORTED:
        importlib.import_module(name)
    module = _forked(requests)
    if module is not None:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
