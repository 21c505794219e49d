"""A child process for the length of a block."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: Below the time that a test has.
LONGEST_S = 100.0


@contextmanager
def child_process(
    command: Sequence[str],
    *,
    longest_s: float = LONGEST_S,
    **options: Any,  # noqa: ANN401
) -> Iterator[subprocess.Popen[Any]]:
    """As Popen, which waits for it at the end of the block; a block that fails kills it first.

    Popen alone would wait for ever: a test whose time is up is told so once, and one that waits in
    another thread not at all. So the process is killed when `longest_s` is over.
    """
    process = subprocess.Popen(command, **options)
    too_long = threading.Timer(longest_s, process.kill)
    too_long.daemon = True
    too_long.start()
    try:
        with process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise
    finally:
        too_long.cancel()


def ended_after_a_line(command: Sequence[str], **options: Any) -> tuple[bytes, int]:  # noqa: ANN401
    """What it says on standard error, and its exit code, when its reader takes a line and goes."""
    piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with child_process(command, **piped) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        return process.stderr.read(), process.wait(60)
