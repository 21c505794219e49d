"""kvcq consume against a real server: from where, how long, for whom, and behind damage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client
from tests.support.child_process import child_process, ended_after_a_line
from tests.support.command_line import answer_of, kvcq, lines_of
from tests.support.free_port import free_port
from tests.support.server_process import ROOT, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def test_following_outlives_the_server(tmp_path: Path) -> None:
    port = free_port()
    with ServerProcess(tmp_path, port=port) as server:
        server.wait_for("ready")
        target = server.target
        answer_of("put", "lasting", "before", "--queue", "0", server=target)
        command = [
            sys.executable,
            "-m",
            "server",
            "consume",
            "lasting",
            "--follow",
            "--reader-group",
            "g",
        ]
        with child_process(
            [*command, "--raw", "--server", target],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            assert following.stdout.readline() == "before\n"
            server.send(signal.SIGKILL)
            server.wait()
            assert f"the server at {target} is unavailable, retrying" in following.stderr.readline()
            with ServerProcess(tmp_path, port=port) as again:
                again.wait_for("ready")
                assert following.stderr.readline() == f"the server at {target} is back\n"
                answer_of("put", "lasting", "behind", "--queue", "0", server=target)
                assert following.stdout.readline() == "behind\n"
                answer_of("put", "lasting", "last", "--queue", "0", server=target)
                assert following.stdout.readline() == "last\n"
                following.send_signal(signal.SIGINT)
                assert following.wait(60) == 130
                # The last one counts once the next is asked for, which the signal may forestall.
                assert answer_of("group", "describe", "g", server=target)["queues"][0][
                    "offset"
                ] in (2, 3)


def put_and_tear(directory: Path) -> None:
    """Five messages in queue 0 of `torn`, of which the third is damaged."""
    with ServerProcess(directory) as server:
        server.wait_for("ready")
        bodies = "".join(f"body-{at}\n" for at in range(5))
        line = ("put", "torn", "--lines", "--queue", "0", "--key", "k")
        answer_of(*line, stdin=bodies, server=server.target)
        server.send(signal.SIGTERM)
        server.wait()
    segment = min((directory / "commitlog").iterdir())
    at = segment.read_bytes().index(b"body-2")
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"B")


def test_messages_before_a_damaged_one_are_shown_and_those_behind_it_can_be(
    tmp_path: Path,
) -> None:
    put_and_tear(tmp_path)
    with ServerProcess(tmp_path) as server:
        server.wait_for("ready")
        for arguments in (("pull", "torn"), ("pull", "torn", "--queue", "0")):
            part = kvcq(*arguments, "--json", server=server.target)
            assert part.exit_code == 1
            found = [json.loads(line) for line in part.stdout.splitlines()]
            assert [one["body"] for one in found] == ["body-0", "body-1"]
        shown = kvcq("pull", "torn", server=server.target)
        assert "body-1" in shown.stdout
        advice = "pull torn --queue 0 --offset 3"
        assert f"kvcq {advice}" in shown.stderr
        behind = lines_of(*advice.split(), server=server.target)
        assert [one["body"] for one in behind] == ["body-3", "body-4"]
        rest = kvcq("pull", "torn", "--skip-damaged", "--raw", server=server.target)
        assert rest.stdout.split() == ["body-0", "body-1", "body-3", "body-4"]
        assert "skipped: damaged message: offset 2 of queue 0 of 'torn'" in rest.stderr
        part = kvcq("query", "torn", "k", server=server.target)
        assert part.exit_code == 1
        assert "body-1" in part.stdout
        assert "add --skip-damaged to find the messages after it" in part.stderr
        rest = kvcq("query", "torn", "k", "--skip-damaged", "--json", server=server.target)
        assert rest.exit_code == 0
        found = [json.loads(line)["body"] for line in rest.stdout.splitlines()]
        assert found == ["body-0", "body-1", "body-3", "body-4"]
        assert "skipped: damaged message: one of 'torn' with the key 'k'" in rest.stderr
        stuck = kvcq("consume", "torn", "--reader-group", "g", "--raw", server=server.target)
        assert (stuck.exit_code, stuck.stdout.split()) == (1, ["body-0", "body-1"])
        advice = "consume torn --reader-group g --raw --skip-damaged"
        assert f"next:  kvcq {advice}\n" in stuck.stderr
        read_on = kvcq(*advice.split(), server=server.target)
        assert (read_on.exit_code, read_on.stdout.split()) == (0, ["body-3", "body-4"])
        assert "skipped: damaged message: offset 2 of queue 0 of 'torn'" in read_on.stderr
        assert (
            kvcq("consume", "torn", "--reader-group", "g", "--raw", server=server.target).stdout
            == ""
        )


def test_consuming_from_a_time_passes_over_what_a_repair_left_out(tmp_path: Path) -> None:
    put_and_tear(tmp_path)  # where the search looks first
    repair = kvcq("repair", str(tmp_path), "--queues", "--skip-damaged")
    assert repair.exit_code == 0
    with ServerProcess(tmp_path) as server:
        server.wait_for("ready")
        found = kvcq(
            "consume", "torn", "--from", "-1h", "--skip-damaged", "--raw", server=server.target
        )
        assert (found.exit_code, found.stderr.count("error")) == (0, 0)
        assert found.stdout.split() == ["body-0", "body-1", "body-3", "body-4"]


def test_a_shared_group_gets_each_message_once_and_acknowledges_what_is_printed(
    target: str,
) -> None:
    bodies = "".join(f"{at}\n" for at in range(100))
    answer_of("put", "work", "--lines", stdin=bodies, server=target)
    some = kvcq("consume", "work", "--group", "workers", "--raw", "--limit", "40", server=target)
    assert (some.exit_code, len(some.stdout.split())) == (0, 40)
    rest = lines_of("consume", "work", "--group", "workers", server=target)
    found = [int(line) for line in some.stdout.split()] + [int(one["body"]) for one in rest]
    assert sorted(found) == list(range(100))
    again = kvcq("consume", "work", "--group", "workers", server=target)
    assert (again.exit_code, again.stdout, again.stderr.strip()) == (0, "", "no messages")
    with Client(target) as client:
        state = client.describe_group("workers")
    assert state.is_shared
    assert sum(queue.lag for queue in state.queues) == 0


def test_what_a_shared_group_could_not_print_goes_to_another_member(target: str) -> None:
    bodies = "".join(f"{at}-{'x' * 4000}\n" for at in range(100))
    answer_of("put", "pipe", "--lines", stdin=bodies, server=target)
    command = [sys.executable, "-m", "server", "consume", "pipe", "--group", "workers", "--raw"]
    ended_after_a_line([*command, "--server", target], cwd=ROOT)
    with Client(target) as client:
        state = client.describe_group("workers")
        assert sum(queue.in_flight for queue in state.queues) == 0
        assert sum(queue.lag for queue in state.queues) > 0


@pytest.mark.parametrize("other", [("--reader-group", "g"), ("--from", "-1h"), ("--skip-damaged",)])
def test_options_that_mean_nothing_for_a_shared_group_are_refused(
    target: str, other: tuple[str, ...]
) -> None:
    refused = kvcq("consume", "work", "--group", "workers", *other, server=target)
    assert refused.exit_code == 2
    assert other[0] in refused.stderr


def test_a_group_of_the_other_kind_is_refused(target: str) -> None:
    answer_of("put", "kinds", "one", server=target)
    lines_of("consume", "kinds", "--reader-group", "by-offsets", server=target)
    refused = kvcq("consume", "kinds", "--group", "by-offsets", server=target)
    assert refused.exit_code == 1
    assert "by-offsets" in refused.stderr


def test_consume_reads_a_topic_and_goes_on_for_its_group(target: str) -> None:
    for body in ("one", "two", "three"):
        answer_of("put", "feed", body, "--queue", "0", "--tag", "t", server=target)
    everything = ["one", "two", "three"]
    assert [one["body"] for one in lines_of("consume", "feed", server=target)] == everything
    assert kvcq("consume", "feed", "--raw", server=target).stdout.split() == everything
    shown = kvcq("consume", "feed", server=target).stdout.splitlines()
    assert [line.split()[-1] for line in shown] == everything
    first = lines_of("consume", "feed", "--reader-group", "g", "--limit", "2", server=target)
    assert [one["body"] for one in first] == ["one", "two"]
    rest = lines_of("consume", "feed", "--reader-group", "g", server=target)
    assert [one["body"] for one in rest] == ["three"]
    assert lines_of("consume", "feed", "--reader-group", "g", server=target) == []
    again = lines_of("consume", "feed", "--reader-group", "g", "--from", "earliest", server=target)
    assert len(again) == 3
    assert lines_of("consume", "feed", "--from", "latest", server=target) == []
    assert len(lines_of("consume", "feed", "--from", "-1h", server=target)) == 3
    assert "not a time such as" in kvcq("consume", "feed", "--from", "soon", server=target).stderr
    assert lines_of("consume", "%LMQ%nobody", server=target) == []


def test_a_light_queue_is_shown_with_its_own_queue_and_offsets(target: str) -> None:
    for light in ((), ("--light-queue", "%LMQ%own")):
        answer_of("put", "elsewhere", "hi", "--queue", "3", *light, server=target)
    assert kvcq("pull", "elsewhere", server=target).stdout.splitlines()[-1].split()[:2] == [
        "3",
        "1",
    ]
    assert kvcq("pull", "%LMQ%own", server=target).stdout.splitlines()[-1].split()[:2] == ["0", "0"]
    own = {"topic": "elsewhere", "queueId": 3}
    for command in ("pull", "consume"):
        for queue, read in (
            (own, lines_of(command, "elsewhere", server=target)[1]),
            ({"topic": "%LMQ%own", "queueId": 0}, lines_of(command, "%LMQ%own", server=target)[0]),
        ):
            assert (read["queue"], read["queueOffset"]) == (queue, 1 if queue is own else 0)
            put = {name: read[name] for name in (*own, "topicQueueOffset")}
            assert put == {**own, "topicQueueOffset": 1}
    assert "  0:0  " in kvcq("consume", "%LMQ%own", server=target).stdout
    assert "  3:1  " in kvcq("consume", "elsewhere", server=target).stdout
    assert kvcq("topic", "describe", "%LMQ%own", server=target).stdout.startswith("%LMQ%own\n")


def test_consume_follows_a_light_queue_from_its_first_message(target: str) -> None:
    command = [sys.executable, "-m", "server", "consume", "%LMQ%inbox", "--follow", "--json"]
    with child_process(
        [*command, "--server", target, "--limit", "2"], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as reader:
        assert reader.stdout is not None
        for body in ("first", "second"):
            answer_of("put", "mail", body, "--light-queue", "%LMQ%inbox", server=target)
            assert json.loads(reader.stdout.readline())["body"] == body
        assert reader.wait(30) == 0
