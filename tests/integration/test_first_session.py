"""README.md: a reader's first session does what it says, word for word, and once more."""

from __future__ import annotations

import shlex
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from server.cli.main import main
from tests.docs.pages import blocks, commands, read
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

README = read("README.md")


@pytest.mark.slow
def test_the_first_session_goes_as_it_says(tmp_path: Path) -> None:
    blocking, asynchronous = blocks(README, "python")
    session = README.partition("## A first session")[2].partition("```python")[0]
    with ServerProcess(tmp_path) as server:
        server.wait_for("ready")
        for command in commands(session):
            before, _, words = command.rpartition("| ")
            if not words.startswith("kvcq "):
                assert words.startswith(". "), "the environment's"
                continue
            lines = range(1, int(before.split()[1]) + 1) if before.startswith("seq ") else ()
            done = CliRunner().invoke(
                main,
                shlex.split(words)[1:],
                input="".join(f"{line}\n" for line in lines),
                env={"KVCQ_SERVER": server.target},
            )
            assert done.exit_code == 0, (command, done.stderr)
            assert done.stdout or done.stderr, command
        runs = [_run(blocking, server.target) for _ in range(2)]
        assert [len(run) for run in runs] == [2, 1], "the second run gets what the first did not"
        assert all(line.endswith(" b'hello'") for run in runs for line in run)
        assert len(_run(asynchronous, server.target)) == 4, "another group: all of them"
        of_client, in_a_loop, light = blocks(read("kvcq_client/README.md"), "python")
        assert len(_run(of_client, server.target)) == 5, "another group: all of them"
        assert len(_run(in_a_loop, server.target)) == 6, "a reader group: all of them"
        _run(light, server.target)


def _run(python: str, target: str) -> list[str]:
    """The messages that it printed, behind the offset of the one it sent."""
    out = StringIO()
    with redirect_stdout(out):
        exec(python.replace("127.0.0.1:8081", target), {})
    _, *messages = out.getvalue().splitlines()
    return messages
