"""The command line against a real server in a process of its own: results, errors, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import Client, Message
from server.version import VERSION
from tests.support.child_process import child_process, ended_after_a_line
from tests.support.command_line import answer_of, kvcq, lines_of
from tests.support.server_process import ROOT, ServerProcess, run_kvcq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.integration


def _run(target: str, *arguments: str, stdin: str = "") -> Result:
    return kvcq(*arguments, server=target, stdin=stdin)


def _json(target: str, *arguments: str, stdin: str = "") -> Any:  # noqa: ANN401 - any JSON
    return answer_of(*arguments, server=target, stdin=stdin)


def _lines(target: str, *arguments: str) -> list[Any]:
    return lines_of(*arguments, server=target)


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
        [message] = _lines(target, *arguments)
        assert (message["body"], message["keys"], message["tag"]) == (
            "hello",
            ["order-1"],
            "created",
        )
        assert message["properties"]["colour"] == "blue=ish"
        assert message["lightQueues"] == ["%LMQ%alice"]
        assert message["messageId"] == placed["messageId"]
    assert placed["lightQueues"] == {"%LMQ%alice": 0}
    assert _json(target, "get", placed["messageId"])["body"] == "hello"
    shown = _run(target, "get", placed["messageId"]).stdout
    cells = [line.split() for line in shown.splitlines()]
    assert ["keys", "order-1"] in cells
    assert ["lightQueues", "%LMQ%alice"] in cells
    assert any(row[-1] == "colour=blue=ish" for row in cells)
    assert not set("[]{}'") & set(shown)
    again = _run(target, "put", "shop", "again", "--light-queue", "%LMQ%alice").stdout
    assert again.splitlines()[2].split()[:3] == ["%LMQ%alice", "0", "1"]
    assert "hello" in _run(target, "pull", "shop").stdout
    assert _run(target, "get", placed["messageId"], "--raw").stdout == "hello"
    assert _lines(target, "query", "shop", "order-2") == []


def test_messages_with_an_ordering_key_stand_in_one_queue(target: str) -> None:
    places = [
        _json(target, "put", "keyed", "x", "--ordering-key", "customer-7")["queueId"]
        for _ in range(3)
    ]
    assert len(set(places)) == 1
    lines = ("put", "keyed", "--lines", "--ordering-key", "customer-7")
    assert _json(target, *lines, stdin="x\n" * 20)["messages"] == 20
    (found,) = (
        row for row in _json(target, "topic", "describe", "keyed")["queues"] if row["maxOffset"]
    )
    assert (found["queueId"], found["maxOffset"]) == (places[0], 23)
    both = _run(target, "put", "keyed", "x", "--queue", "0", "--ordering-key", "a")
    assert both.exit_code == 2
    assert "--ordering-key" in both.stderr


def test_lines_become_messages(target: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(1200))
    assert _json(target, "put", "lines", "--lines", "--queue", "0", stdin=lines)["messages"] == 1200
    raw = _run(target, "pull", "lines", "--queue", "0", "--limit", "10000", "--raw")
    assert raw.stdout == lines
    part = _lines(target, "pull", "lines", "--queue", "0", "--offset", "1199")
    assert [message["body"] for message in part] == ["line 1199"]
    shown = _run(target, "pull", "lines", "--queue", "0", "--limit", "2")
    assert "1,198 more;" in shown.stderr
    assert "--queue 0 --offset 2" in shown.stderr


def test_what_is_left_is_counted_over_all_queues(target: str) -> None:
    for queue_id in range(3):
        _json(target, "put", "many", "--lines", "--queue", str(queue_id), stdin="x\n" * 10)
    assert "25 more in 3 queues;" in _run(target, "pull", "many", "--limit", "5").stderr
    shown = _run(target, "pull", "many", "--limit", "15", "--json")
    assert len(shown.stdout.splitlines()) == 15
    assert "15 more in 2 queues;" in shown.stderr


def test_the_first_bad_line_ends_and_all_before_it_are_stored(target: str) -> None:
    large = "x" * (5 << 20)
    lines = "".join(f"{at}\n" for at in range(10)) + large + "\nbehind\n"
    stopped = _run(target, "put", "torn", "--lines", "--queue", "0", stdin=lines)
    assert stopped.exit_code == 2
    assert "put 10 messages" in stopped.stderr
    assert "line 11: body" in stopped.stderr
    assert "tail -n +11 FILE" in stopped.stderr
    stored = _lines(target, "pull", "torn", "--queue", "0")
    assert [one["body"] for one in stored] == [str(at) for at in range(10)]
    nowhere = _run(target, "put", "torn", "--lines", "--queue", "99", "--json", stdin="x\n")
    assert (nowhere.exit_code, json.loads(nowhere.stdout)["messages"]) == (1, 0)


@pytest.mark.slow
def test_a_body_above_the_limit_of_requests_is_not_sent(target: str) -> None:
    large = "x" * ((64 << 20) + 1)
    alone = _run(target, "put", "large", stdin=large)
    assert alone.exit_code == 2
    assert "67,108,865 bytes" in alone.stderr
    line = _run(target, "put", "large", "--lines", stdin=f"small\n{large}\n")
    assert line.exit_code == 2
    assert "line 2: a body of 67,108,865 bytes" in line.stderr
    assert len(_lines(target, "pull", "large")) == 1


def test_an_argument_that_is_not_utf8_is_stored_as_it_was_typed(target: str) -> None:
    # Bytes of the command line that are no text come in like this.
    _json(target, "put", "typed", b"\xff\xfe".decode(errors="surrogateescape"))
    assert _lines(target, "pull", "typed")[0]["bodyBase64"] == "//4="


def test_an_empty_standard_input_is_no_message_unless_that_is_asked_for(target: str) -> None:
    refused = _run(target, "put", "empty")
    assert refused.exit_code == 1
    assert "standard input is empty" in refused.stderr
    _json(target, "put", "empty", "")
    assert [one["body"] for one in _lines(target, "pull", "empty")] == [""]


@pytest.mark.parametrize(
    ("command", "form"),
    [
        (("consume",), ("--raw",)),
        (("pull", "--limit", "10000"), ()),
        pytest.param(("pull", "--limit", "10000"), ("--json",), marks=pytest.mark.slow),
        pytest.param(("consume",), (), marks=pytest.mark.slow),
        pytest.param(("consume",), ("--json",), marks=pytest.mark.slow),
        pytest.param(("pull", "--limit", "10000"), ("--raw",), marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_ends_first_ends_the_command_quietly(
    target: str, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    topic = f"piped-{command[0]}{''.join(form)}"
    lines = "x" * 60 + "\n"
    _json(target, "put", topic, "--lines", "--queue", "0", stdin=lines * 2500)
    words = [sys.executable, "-m", "server", *command, topic, *form, "--server", target]
    if command == ("consume",):
        words += ["--reader-group", topic]
    assert ended_after_a_line(words, cwd=ROOT) == (b"", 141)
    if command == ("consume",):  # what was not printed is read again
        rest = _run(target, "consume", topic, "--reader-group", topic, "--raw").stdout
        assert len(rest.splitlines()) > 500


def test_a_body_that_is_no_text_survives(target: str) -> None:
    body = bytes(range(256))
    put = run_kvcq("put", "bytes", "--server", target, "--queue", "0", stdin=body)
    assert put.returncode == 0, put.stderr
    pulled = run_kvcq("pull", "bytes", "--server", target, "--raw")
    assert pulled.stdout == body + b"\n"
    [message] = _lines(target, "pull", "bytes")
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


def test_a_parent_of_lite_topics_says_so_and_topics_of_the_server_are_hidden(target: str) -> None:
    _json(target, "lite", "create", "chats-of", "--expire", "7d")
    _json(target, "put", "chats-of", "x", "--lite", "one", "--delay", "1h")
    _json(target, "put", "chats-of", "x", "--lite", "one")
    described = _json(target, "topic", "describe", "chats-of")
    assert (described["lite"]["expiryMs"], described["lite"]["liteTopics"]) == (7 * 86_400_000, 1)
    shown = _run(target, "topic", "describe", "chats-of").stdout
    assert "with 1 lite topic, deleted when idle for 7" in " ".join(shown.split())
    own = ["rmq_sys_wheel_timer"]
    assert _json(target, "topic", "list", "--prefix", "rmq_sys_wheel") == []
    found = _json(target, "topic", "list", "--prefix", "rmq_sys_wheel", "--system")
    assert [one["name"] for one in found] == own


def test_light_queues_are_listed_by_name(target: str) -> None:
    names = [f"%LMQ%{name}" for name in ("listed-bob", "listed-alice", "listed-zed", "listed-c")]
    for name in names:
        _json(target, "put", "listed", "x", "--light-queue", name)
    listed = _json(target, "topic", "list", "--light-queues", "--prefix", "%LMQ%listed-")
    assert [one["name"] for one in listed] == sorted(names)


def test_stats(target: str) -> None:
    answer = _json(target, "stats", "--prefix", "server.")
    assert answer["server.ready"] == 1
    assert all(name.startswith("server.") for name in answer)
    assert (answer["server.version"], type(answer["server.ready"])) == (VERSION, int)
    shown = _run(target, "stats")
    assert shown.stdout.startswith(f"kvcq {VERSION} at {target}, up ")
    for heading in ("server", "store", "RocksDB kvcq/: queues, keys and state"):
        assert f"\n\n{heading}\n" in shown.stdout
    named = _json(target, "stats")
    assert {name.partition(".")[0] for name in named} == {"server", "store", "kvcq"}
    nothing = _run(target, "stats", "--prefix", "nonsense")
    assert "no name begins with 'nonsense'" in nothing.stderr


def test_stats_shows_a_beginner_what_is_not_zero_with_its_unit(target: str) -> None:
    _run(target, "topic", "describe", "of-nobody")
    shown = dict(_table(_run(target, "stats").stdout))
    assert int(shown["server.refusals.DescribeTopic.UNKNOWN_TOPIC"]) >= 1, "refusals by reason"
    assert shown["server.max_receive_bytes"] == "16.0 MiB"
    assert shown["server.ready"] == "yes"
    assert shown["store.disk_used_ratio"].endswith("%")
    assert not [name for name, value in shown.items() if value in ("0", "0 B", "no")]
    every = _run(target, "stats", "--all")
    numbers = dict(_table(every.stdout))
    assert numbers.keys() == _json(target, "stats").keys() - {"server.version"}
    assert numbers["server.max_receive_bytes"] == "16,777,216"
    assert f"{len(numbers) - len(shown)} more are 0" in _run(target, "stats").stderr


def _table(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of its lines."""
    for line in text.splitlines():
        name, _, value = line.partition("  ")
        if "." in name and value:
            yield name, value.strip()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("topic", "create", "q", "--queues", "2147483648"), "--queues"),
        (("topic", "list", "--limit", "9" * 20), "--limit"),
        (("pull", "t", "--queue", "2147483648"), "--queue"),
        (("put", "t", "x", "--queue", "2147483648"), "--queue"),
        (("pull", "t", "--queue", "0", "--offset", "9223372036854775808"), "--offset"),
        (("query", "t", "k", "--since", "9223372036854775808"), "--since"),
        (("query", "t", "k", "--until", "yesterday"), "--until"),
        (("pull", "\udcff"), "TOPIC"),
        (("put", "\udcff", "x"), "TOPIC"),
        (("put", "t", "x", "--tag", "\udcff"), "--tag"),
        (("get", "\udcff"), "MESSAGE_ID"),
        (("stats", "--server", ""), "--server"),
        (("stats", "--server", "127.0.0.1:99999"), "--server"),
    ],
)
def test_what_cannot_be_sent_is_wrong_usage(arguments: tuple[str, ...], names: str) -> None:
    result = kvcq(*arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{names}'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("pull", "nothing-here"), 1, "kvcq topic list"),
        (("put", "bad topic", "x"), 2, "TOPIC: 'bad topic'"),
        (("put", "t", "x", "--property", "novalue"), 2, "NAME=VALUE"),
        (("put", "t", "x", "--lines"), 2, "exclude each other"),
        (("pull", "t", "--offset", "1"), 2, "--queue"),
        (("get", "abc"), 2, "MESSAGE_ID: 3 characters"),
        (("put", "t", "x", "--tag", "a||b"), 2, "--tag: 'a||b'"),
        (("put", "t", "x", "--key", "a b"), 2, "--key: 'a b'"),
        (("put", "t", "x", "--light-queue", "bad"), 2, "--light-queue: 'bad'"),
        (("put", "t", "x", "--property", "KEYS=3"), 2, "--property KEYS: give keys"),
        (("pull", "there", "--tag", "a||"), 2, "--tag: 'a||'"),
        (("query", "t", ""), 2, "KEY: is empty"),
        (("query", "t", "k", "--since", "2026-01-02", "--until", "2026-01-01"), 2, "later than"),
        (("consume", "there", "--reader-group", "a b"), 2, "--reader-group: 'a b'"),
        (("topic", "create", "q", "--queues", "65537"), 2, "--queues: 65537 is not from 1"),
        (("topic", "create", "b g"), 2, "NAMES: 'b g'"),
        (("topcs",), 2, "did you mean: kvcq topic"),
        (("topic", "lst"), 2, "did you mean: kvcq topic list"),
        (("pull", "t", "--lmit", "3"), 2, "'--limit'"),
        (("get", "7F00000100001FA300000000FFFFFFFF"), 1, "MESSAGE_NOT_FOUND"),
        (("pull", "t", "--limit", "0"), 2, "--limit"),
        (("pull", "%LMQ%none"), 1, "kvcq topic list --light-queues"),
        (("pull", "%LMQ%none"), 1, "no light queue '%LMQ%none'"),
        (("pull", "%LMQ%$none$a"), 1, "the first message that names a light queue creates it"),
        (("topic", "delete", "none"), 1, "kvcq topic delete none --yes"),
        (("bench", "run", "none"), 2, "kvcq bench list"),
        (("nonsense",), 2, "No such command"),
        (("pull", "t", "--server", "127.0.0.1:1"), 3, "--server HOST:PORT"),
        (("pull", "t", "--server", "no-such-host.invalid:1"), 3, "its name cannot be resolved"),
    ],
)
def test_errors_say_what_to_do_next(
    target: str, arguments: tuple[str, ...], exit_code: int, says: str
) -> None:
    _json(target, "put", "there", "x")
    result = _run(target, *arguments)
    assert (result.exit_code, says in result.stderr) == (exit_code, True), result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--set", "store.segment_byte=1"), "did you mean store.segment_bytes?"),
        (("--set", "server.port"), "NAME=VALUE"),
        (("--port", "70000"), "--port: 70000 is not a whole number from 0 to 65535"),
        (("--data", ""), "--data: is empty"),
        (("--config", "/does/not/exist.toml"), "cannot be read"),
        (("--flush", "never"), "--flush"),
    ],
)
def test_serve_refuses_wrong_settings_before_it_begins(flags: tuple[str, ...], says: str) -> None:
    result = kvcq("serve", *flags)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_topic_that_exists_with_other_queues_says_what_to_do(target: str) -> None:
    _json(target, "topic", "create", "fixed", "--queues", "3")
    assert _run(target, "topic", "create", "fixed", "--queues", "3").exit_code == 0
    result = _run(target, "topic", "create", "fixed", "--queues", "4")
    assert result.exit_code == 1
    assert "topic 'fixed' already has 3 queues; the number cannot be changed" in result.stderr
    assert "kvcq topic describe fixed" in result.stderr
    assert "choose another name, or delete it" in result.stderr


def test_bodies_that_are_text_are_shown_in_one_line(target: str) -> None:
    _json(target, "put", "text", "two\nlines\tand \x1b[31mred", "--queue", "0", "--tag", "a\nb")
    for command in ("pull", "consume"):
        shown = _run(target, command, "text").stdout
        assert "two\\nlines\\tand \\x1b[31mred" in shown
        assert "a\\nb" in shown
        assert "\x1b" not in shown


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
    assert VERSION in kvcq("--version").stdout


def test_deleting_what_is_not_there_does_not_advise_to_make_it(target: str) -> None:
    result = _run(target, "topic", "delete", "none", "--yes")
    assert result.exit_code == 1
    assert "kvcq topic list" in result.stderr
    assert "create" not in result.stderr


def test_ctrl_c_ends_a_waiting_pull_quietly(target: str) -> None:
    _json(target, "topic", "create", "quiet")
    command = [sys.executable, "-m", "server", "pull", "quiet", "--queue", "0", "--wait", "60"]
    with child_process(
        [*command, "--server", target], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with Client(target) as client:
            while not client.statistics()["server.watched_queues"]:
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, (b"", b""))


@pytest.mark.slow
def test_a_store_is_served_with_the_segment_size_it_was_made_with(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "server", "serve", "--port", "0", "--data", str(tmp_path)]
    with ServerProcess(tmp_path) as server:
        server.wait_for("ready")
    with child_process(
        [*serve, "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())["event"]]
        while events[-1] not in ("ready", ""):
            events.append(json.loads(process.stdout.readline())["event"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    other = run_kvcq(*serve[3:], "--set", "store.segment_bytes=8388608")
    assert other.returncode == 1
    assert b"--set store.segment_bytes=4194304" in other.stderr
    assert b"next:" not in other.stderr


def test_a_directory_that_cannot_be_made_is_wrong_usage() -> None:
    result = run_kvcq("serve", "--port", "0", "--data", "/proc/none")
    assert result.returncode == 2
    assert b"--data: /proc/none" in result.stderr
    assert b"Traceback" not in result.stderr


def test_an_address_that_is_not_of_this_machine(tmp_path: Path) -> None:
    result = run_kvcq(
        "serve", "--host", "192.0.2.1", "--insecure-listen", "--data", str(tmp_path / "none")
    )
    assert result.returncode == 1
    told = result.stderr.decode().splitlines()
    assert len(told) == 2, "gRPC's own log says nothing"
    assert "--host must be an address of this machine" in told[1]


def test_an_unknown_command_names_the_nearest(target: str) -> None:
    for typed, meant in (("pul", "pull"), ("topics", "topic"), ("querry", "query")):
        refused = _run(target, typed)
        assert refused.exit_code == 2
        assert f"did you mean: kvcq {meant}" in refused.stderr
    for group, known in (((), "consume"), (("job", "start"), "compact"), (("backup",), "verify")):
        unknown = _run(target, *group, "zzzz").stderr
        assert "did you mean" not in unknown
        assert known in unknown
        assert f"see: {' '.join(('kvcq', *group))} -h" in unknown
    assert "did you mean: kvcq job start compact" in _run(target, "job", "start", "compct").stderr


def test_where_backups_are_is_asked_for_with_a_command_to_type(target: str) -> None:
    for command in ("list", "verify"):
        missing = _run(target, "backup", command)
        assert missing.exit_code == 2
        assert f"kvcq backup {command} /backups" in missing.stderr
        assert "kvcq config running" in missing.stderr


def test_what_a_producer_wrote_does_not_act_on_the_terminal(target: str) -> None:
    with Client(target) as client:
        client.put(Message("evil", b"\x1b[2J", 0, "\x1b]0;t\x07", ("\x9b31m",)))
    for command in (("pull", "evil"), ("consume", "evil"), ("pull", "evil", "--json")):
        shown = _run(target, *command).stdout
        assert not any(one in shown for one in ("\x1b", "\x9b", "\x07"))
        assert "]0;t" in shown


def test_piped_tables_have_no_blanks_at_the_ends_of_lines(target: str) -> None:
    _json(target, "topic", "create", "x" * 100, "y", "--queues", "1")
    lines = _run(target, "topic", "list").stdout.splitlines()
    assert "x" * 100 in "".join(lines)
    assert all(line == line.rstrip() for line in lines)
