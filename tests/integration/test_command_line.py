"""The command line against a real server in a process of its own: results, errors, exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from server.cli.main import main
from server.version import VERSION
from tests.support.server_process import ROOT, ServerProcess, run_kvcq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all tests of this file; each uses topics of its own."""
    with ServerProcess(tmp_path_factory.mktemp("store")) as server:
        server.wait_for("ready")
        yield server.target


def _run(target: str, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, env={"KVCQ_SERVER": target})


def _json(target: str, *arguments: str, stdin: str = "") -> Any:  # noqa: ANN401 - any JSON
    result = _run(target, *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_put_pull_query_get(target: str) -> None:
    placed = _json(
        target,
        *("put", "shop", "hello", "--key", "order-1", "--tag", "created"),
        *("--property", "colour=blue=ish", "--light-queue", "%LMQ%alice"),
    )
    assert placed["queueOffset"] == 0
    for arguments in (
        ("pull", "shop"),
        ("pull", "shop", "--queue", str(placed["queueId"]), "--tag", "created"),
        ("pull", "%LMQ%alice"),
        ("query", "shop", "order-1"),
    ):
        [message] = _json(target, *arguments)["messages"]
        assert (message["body"], message["keys"], message["tag"]) == (
            "hello",
            ["order-1"],
            "created",
        )
        assert message["properties"]["colour"] == "blue=ish"
        assert message["lightQueues"] == ["%LMQ%alice"]
        assert message["messageId"] == placed["messageId"]
    assert _json(target, "get", placed["messageId"])["body"] == "hello"
    assert "hello" in _run(target, "pull", "shop").stdout
    assert _run(target, "get", placed["messageId"], "--raw").stdout == "hello"
    assert _json(target, "query", "shop", "order-2")["messages"] == []


def test_lines_become_messages(target: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(1200))
    assert _json(target, "put", "lines", "--lines", "--queue", "0", stdin=lines)["messages"] == 1200
    raw = _run(target, "pull", "lines", "--queue", "0", "--limit", "10000", "--raw")
    assert raw.stdout == lines
    part = _json(target, "pull", "lines", "--queue", "0", "--offset", "1199")
    assert [message["body"] for message in part["messages"]] == ["line 1199"]
    shown = _run(target, "pull", "lines", "--queue", "0", "--limit", "2")
    assert "1,198 more" in shown.stderr


def test_a_body_that_is_no_text_survives(target: str) -> None:
    body = bytes(range(256))
    put = run_kvcq("put", "bytes", "--server", target, "--queue", "0", stdin=body)
    assert put.returncode == 0, put.stderr
    pulled = run_kvcq("pull", "bytes", "--server", target, "--raw")
    assert pulled.stdout == body + b"\n"
    [message] = _json(target, "pull", "bytes")["messages"]
    assert message["bodyBase64"].startswith("AAECAw")


def test_topics(target: str) -> None:
    made = _json(target, "topic", "create", "made-1", "made-2", "--queues", "3")
    assert [(one["name"], one["queueCount"]) for one in made] == [("made-1", 3), ("made-2", 3)]
    assert [one["name"] for one in _json(target, "topic", "list", "--prefix", "made-")] == [
        "made-1",
        "made-2",
    ]
    described = _json(target, "topic", "describe", "made-1")
    assert [one["maxOffset"] for one in described["queues"]] == [0, 0, 0]
    assert _json(target, "topic", "delete", "made-1", "--yes") == {"deleted": "made-1"}
    gone = _run(target, "topic", "describe", "made-1")
    assert gone.exit_code == 1
    assert "kvcq topic list" in gone.stderr
    assert _run(target, "topic", "delete", "made-2", stdin="n\n").exit_code == 1
    assert "made-2" in _run(target, "topic", "list").stdout


def test_stats(target: str) -> None:
    answer = _json(target, "stats", "--prefix", "server.")
    assert answer["server.ready"] == 1
    assert all(name.startswith("server.") for name in answer)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("pull", "nothing-here"), 1, "kvcq topic create nothing-here"),
        (("put", "bad topic", "x"), 2, "message.topic"),
        (("put", "t", "x", "--property", "novalue"), 2, "NAME=VALUE"),
        (("put", "t", "x", "--lines"), 2, "exclude each other"),
        (("pull", "t", "--offset", "1"), 2, "--queue"),
        (("get", "abc"), 2, "message_id"),
        (("get", "7F00000100001FA300000000FFFFFFFF"), 1, "MESSAGE_NOT_FOUND"),
        (("pull", "t", "--limit", "0"), 2, "--limit"),
        (("nonsense",), 2, "No such command"),
        (("pull", "t", "--server", "127.0.0.1:1"), 3, "kvcq serve"),
    ],
)
def test_errors_say_what_to_do_next(
    target: str, arguments: tuple[str, ...], exit_code: int, says: str
) -> None:
    result = _run(target, *arguments)
    assert (result.exit_code, says in result.stderr) == (exit_code, True), result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--set", "store.segment_byte=1"), "did you mean 'segment_bytes'"),
        (("--set", "server.port"), "NAME=VALUE"),
        (("--port", "70000"), "port"),
        (("--config", "/does/not/exist.toml"), "cannot be read"),
        (("--flush", "never"), "--flush"),
    ],
)
def test_serve_refuses_wrong_settings_before_it_begins(flags: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(main, ["serve", *flags])
    assert result.exit_code == 2
    assert says in result.stderr


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
    assert VERSION in CliRunner().invoke(main, ["--version"]).stdout
