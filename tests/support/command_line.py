"""`kvcq`, called in the process of the test."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from server.cli.main import main

if TYPE_CHECKING:
    from click.testing import Result


def kvcq(*arguments: object, server: str | None = None, stdin: str = "") -> Result:
    """What the command prints, and its exit code. `server`: as KVCQ_SERVER."""
    environment = {"KVCQ_SERVER": server}
    return CliRunner().invoke(main, [*map(str, arguments)], env=environment, input=stdin)


def run_here(
    *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """As `run_kvcq`, in this process: it saves the start of one."""
    done = CliRunner().invoke(main, arguments, env=environment, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(
        arguments, done.exit_code, done.stdout_bytes, done.stderr_bytes
    )


def answer_of(*arguments: object, server: str | None = None, stdin: str = "") -> Any:  # noqa: ANN401 - any JSON
    """The document that the command prints with --json; it does not fail."""
    done = kvcq(*arguments, "--json", server=server, stdin=stdin)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines_of(*arguments: object, server: str | None = None) -> list[Any]:
    """The documents that the command prints with --json, one in a line; it does not fail."""
    done = kvcq(*arguments, "--json", server=server)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
