"""kvcq put --lines from a pipe, and output that cannot be written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvcq_client import Client, Queue
from tests.support.child_process import child_process
from tests.support.command_line import answer_of, lines_of
from tests.support.server_process import ROOT

pytestmark = pytest.mark.integration


def test_ctrl_c_says_how_many_lines_are_stored(target: str) -> None:
    command = [sys.executable, "-m", "server", "put", "torn-off", "--lines", "--queue", "0"]
    with (
        Client(target) as client,
        child_process(
            [*command, "--server", target],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        client.create_topics({"torn-off": 1})
        assert process.stdin is not None
        for count in (10, 11):
            process.stdin.write(b"x\n" * (10 if count == 10 else 1))
            process.stdin.flush()
            while client.offsets([Queue("torn-off", 0)])[Queue("torn-off", 0)][1] < count:
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    # The last answer may not have arrived.
    line = 11 if b"; some of the next 1 line may have been stored" in told else 12
    assert f"from line {line}: interrupted".encode() in told
    assert f"tail -n +{line} FILE | kvcq put torn-off --lines".encode() in told


def test_a_line_is_put_before_the_next_one_is_there(target: str) -> None:
    command = [sys.executable, "-m", "server", "put", "slowly", "--lines", "--queue", "0"]
    with (
        Client(target) as client,
        child_process(
            [*command, "--server", target, "--json"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        client.create_topics({"slowly": 1})
        assert process.stdin is not None
        for number, line in enumerate((b"one\n", b"two\r\nthr", b"ee\n\nfive")):
            process.stdin.write(line)
            process.stdin.flush()
            while client.offsets([Queue("slowly", 0)])[Queue("slowly", 0)][1] < number + 1:
                assert process.poll() is None
        answer, _ = process.communicate(timeout=60)
        assert json.loads(answer)["messages"] == 5
        bodies = [one.body for one in client.pull("slowly", 0, 0).messages]
    assert bodies == [b"one", b"two", b"three", b"", b"five"]


@pytest.mark.slow
def test_output_to_a_full_disk_is_an_error_without_a_traceback(target: str) -> None:
    answer_of("put", "full", "body", "--queue", "0", server=target)
    message_id = lines_of("pull", "full", server=target)[0]["messageId"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    for words in (("topic", "list"), ("pull", "full", "--json"), ("get", message_id, "--raw")):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "server", *words, "--server", target],
                cwd=ROOT,
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment,
                check=False,
            )
        assert done.returncode == 1
        assert b"standard input or output: No space left on device" in done.stderr
        assert b"Traceback" not in done.stderr
        assert b"ignored" not in done.stderr
        if "--json" in words:
            assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "REFUSED"
