"""A child process for the length of a block."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:  # noqa: ANN401
    """As Popen, which waits for it at the end of the block; a block that fails kills it first.

    Popen alone would wait for ever: a test whose time is up is told so once.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def ended_after_a_line(command: Sequence[str], **options: Any) -> tuple[bytes, int]:  # noqa: ANN401
    """What it says on standard error, and its exit code, when its reader takes a line and goes."""
    piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with child_process(command, **piped) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        return process.stderr.read(), process.wait(60)
