"""kvcq dump on a store of ours and on one that RocketMQ wrote."""

from __future__ import annotations

import json
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.opening import open_store
from store.config import StoreConfig
from store.message import Message
from tests.support.child_process import ended_after_a_line
from tests.support.command_line import kvcq
from tests.support.golden_store import INDEX_ENTRIES, INDEX_SLOTS, expected, extract_golden
from tests.support.server_process import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SIZES = ("--index-slots", str(INDEX_SLOTS), "--index-entries", str(INDEX_ENTRIES))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    store = open_store(StoreConfig(root=tmp_path, segment_bytes=8192, preallocate=False))
    store.put([Message("jobs", b"one", 1, "red", ("k1",)), Message("jobs", b"\xff", 2)])
    store.close()
    return tmp_path


def run(*arguments: str | Path) -> Result:
    return kvcq("dump", *arguments)


def rows_of(*arguments: str | Path) -> list[dict[str, Any]]:
    """With --json: each row is a line."""
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def test_log_is_shown_for_people_and_for_programs(ours: Path) -> None:
    shown = run("log", ours)
    assert shown.exit_code == 0
    assert "jobs" in shown.stdout
    assert "k1" in shown.stdout
    made, first, second = rows_of("log", ours)
    assert made["topic"] == "rmq_sys_kvcq_state"
    [entry] = made["entries"]
    assert (entry["entry"], entry["topics"], entry["queueCount"]) == ("TopicsMade", ["jobs"], 8)
    assert "TopicsMade(topics=['jobs'], queue_count=8" in shown.stdout
    assert (first["body"], second["bodyBase64"]) == ("one", "/w==")
    assert first["properties"] == {"KEYS": "k1", "TAGS": "red"}


def test_rows_are_chosen_and_limited(ours: Path) -> None:
    rows = rows_of("log", ours, "--topic", "jobs", "--queue", "2")
    assert [row["queueId"] for row in rows] == [2]
    for form in ((), ("--json",)):
        assert "larger --limit" in run("log", ours, "--limit", "1", *form).stderr
    assert len(rows_of("log", ours, "--limit", "1")) == 1


def test_queue_and_index_are_shown(ours: Path) -> None:
    (unit,) = rows_of("queue", ours, "jobs", "1")
    (entry,) = rows_of("index", ours, "--topic", "jobs")
    assert unit["side"] == entry["side"] == "rocksdb"
    assert unit["physicalOffset"] == entry["physicalOffset"] > 0
    assert entry["key"] == "k1"
    assert run("queue", ours, "jobs", "1").exit_code == run("index", ours).exit_code == 0


def test_store_of_the_original_is_shown(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    log = expected("both")["log"]
    rows = rows_of("log", root, "--limit", "100000")
    assert sum(row["kind"] == "record" for row in rows) == len(log["records"])
    units = rows_of("queue", root, "orders", "--limit", "9999")
    by_side = {side: [row for row in units if row["side"] == side] for side in ("files", "rocksdb")}
    assert len(by_side["files"]) == len(by_side["rocksdb"]) > 0
    assert rows_of("index", root, *SIZES)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("queue", "jobs", "7"), 1, "has no unit"),
        (("queue", "jobs", "7"), 1, "--topic jobs"),
        (("queue", "jobs", "1", "--side", "files"), 1, "there is rocksdb"),
        (("index", "--side", "files"), 1, "there is rocksdb"),
        (("index", "--key", "k1"), 2, "needs --topic"),
        (("index", "--side", "files", "--topic", "jobs"), 2, "--key"),
    ],
)
def test_what_is_not_there_is_an_error(
    ours: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = run(arguments[0], ours, *arguments[1:])
    assert done.exit_code == code
    assert words in done.stderr
    assert not done.stdout


def test_no_store_is_an_error(tmp_path: Path) -> None:
    done = run("log", tmp_path, "--json")
    assert done.exit_code == 1
    assert "is not a store" in json.loads(done.stderr)["error"]["reason"]
    assert not done.stdout


def test_a_compressed_body_is_shown_as_it_was_sent(tmp_path: Path) -> None:
    store = open_store(StoreConfig(root=tmp_path, segment_bytes=8192, preallocate=False))
    store.put([Message("t", zlib.compress(b"plain words"), 1, sys_flag=0x1)])
    store.put([Message("t", b"not compressed", 1, sys_flag=0x1)])
    store.close()
    rows = rows_of("log", tmp_path, "--topic", "t")
    assert [row["body"] for row in rows] == ["plain words", "not compressed"]
    shown = run("log", tmp_path)
    assert "plain words" in shown.stdout
    assert "does not decompress (zlib)" in shown.stderr


@pytest.mark.parametrize("form", [(), pytest.param(("--json",), marks=pytest.mark.slow)])
def test_a_reader_that_ends_first_ends_it_quietly(tmp_path: Path, form: tuple[str, ...]) -> None:
    with open_store(StoreConfig(root=tmp_path, segment_bytes=1 << 20)) as store:
        for _ in range(15):
            store.put([Message("jobs", b"x" * 60, 0)] * 100)
    words = [sys.executable, "-m", "server", "dump", "log", str(tmp_path), *form]
    words += ["--limit", "10000"]
    assert ended_after_a_line(words, cwd=ROOT) == (b"", 141)
