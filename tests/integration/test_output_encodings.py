"""Standard output that is not UTF-8: every message is shown, and every document is JSON."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from server.cli.main import main
from tests.support.command_line import answer_of
from tests.support.server_process import run_kvcq

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.integration

BODY = "größer € 😀 日本 ключ"
NOT_UTF8 = ["ascii", "latin-1", "gbk", "cp1252"]


def run(target: str, encoding: str, *arguments: str) -> Result:
    done = CliRunner(charset=encoding).invoke(main, arguments, env={"KVCQ_SERVER": target})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.mark.parametrize("encoding", NOT_UTF8)
def test_messages_are_shown_that_the_encoding_does_not_have(target: str, encoding: str) -> None:
    topic = f"shown-{encoding}"
    placed = answer_of("put", topic, BODY, "--tag", "é", "--key", "order", server=target)
    for arguments in (
        ("pull", topic),
        ("query", topic, "order"),
        ("get", placed["messageId"]),
        ("consume", topic),
    ):
        assert r"\U0001f600" in run(target, encoding, *arguments).stdout, arguments
        document = json.loads(run(target, encoding, *arguments, "--json").stdout)
        assert (document["body"], document["tag"]) == (BODY, "é")
    raw = run(target, encoding, "pull", topic, "--raw")
    assert raw.stdout_bytes == BODY.encode() + b"\n", "bytes have no encoding"


@pytest.mark.parametrize("encoding", NOT_UTF8)
def test_a_group_gets_past_such_a_message(target: str, encoding: str) -> None:
    topic = f"group-{encoding}"
    answer_of("put", topic, BODY, server=target)
    assert run(target, encoding, "consume", topic, "--reader-group", topic).stdout
    assert run(target, encoding, "consume", topic, "--reader-group", topic).stdout == ""


@pytest.mark.parametrize("encoding", NOT_UTF8)
def test_help_and_errors_are_shown(target: str, encoding: str) -> None:
    assert "%LMQ%" in run(target, encoding, "put", "--help").stdout
    assert run(target, encoding, "topic", "describe", "日本").exit_code == 1
    told = json.loads(run(target, encoding, "topic", "describe", "日本", "--json").stderr)
    assert "日本" in told["error"]["reason"], "escaped as JSON has it"


def test_a_process_of_its_own_shows_what_its_encoding_does_not_have(target: str) -> None:
    answer_of("put", "process", BODY, server=target)
    environment = {"KVCQ_SERVER": target, "PYTHONIOENCODING": "ascii"}
    done = run_kvcq("pull", "process", environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\U0001f600" in done.stdout


def test_a_name_of_a_file_that_is_no_text_is_shown(tmp_path: Path) -> None:
    name = tmp_path / os.fsdecode(b"st\xffre")
    name.mkdir()
    done = run_kvcq("config", "--data", str(name))
    assert done.returncode == 0, done.stderr
    assert rb"st\udcffre" in done.stdout
    for as_json in ((), ("--json",)):
        done = run_kvcq("check", str(name), *as_json)
        assert b"Traceback" not in done.stderr
        assert rb"st\udcffre" in done.stdout + done.stderr
