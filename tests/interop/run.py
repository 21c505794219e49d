"""`make interop`: RocketMQ and we read each other's stores; any difference ends with status 1."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migration.release import Home
from store.consume_queue import Boundary
from tests.golden.rocketmq_log import DecodedLog, check_keys, check_records, check_units
from tests.interop import ours
from tests.interop.broker_judge import BrokerJudge
from tests.interop.broker_judge import make_golden as make_broker_golden
from tests.interop.given_back import (
    ON_FILES,
    ON_ROCKSDB,
    adopted,
    compare_given_back,
    made_here,
    moved_to_files,
)
from tests.interop.judge import Judge
from tests.interop.make_golden import make_golden
from tests.interop.waiting import check_waiting
from tests.support import broker_store
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from store.message_store import MessageStore

REPOSITORY = Path(__file__).parent.parent.parent


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def we_read_theirs(judge: Judge, scratch: Path, seed: int) -> None:
    """The tests on golden data, on stores that RocketMQ writes now."""
    make_golden(judge, scratch, seed)
    subprocess.run(
        [
            sys.executable,
            *["-m", "pytest", "-q", "-p", "no:cacheprovider"],
            "-m",
            "not soak",
            "tests/golden",
        ],
        cwd=REPOSITORY,
        env=os.environ | {"KVCQ_GOLDEN": str(scratch)},
        check=True,
    )


def we_read_their_config(judge: BrokerJudge, scratch: Path) -> None:
    """The tests on golden brokers, on stores that a broker writes now."""
    make_broker_golden(judge, scratch)
    tests = "tests/golden/test_broker_config.py"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=REPOSITORY,
        env=os.environ | {"KVCQ_GOLDEN_BROKER": str(scratch)},
        check=True,
    )


def they_read_what_is_given_back(judge: BrokerJudge, scratch: Path) -> None:
    """Topics, offsets and messages, after each kind of release, by each kind of broker."""
    for form in broker_store.FORMS:
        brokers = ON_FILES if form == "lmq" else (form,)
        compare_given_back(judge, adopted(form, scratch / form), brokers)
        say(f"  {form}, taken over and given back, for {', '.join(brokers)}: equal")
    for form in ("separate", "v2"):
        compare_given_back(judge, moved_to_files(form, scratch / f"{form}-moved"), ON_FILES)
        say(f"  {form}, moved to files, for {', '.join(ON_FILES)}: equal")
    for home, brokers in ((Home.FILES, ON_FILES), (Home.ROCKSDB, ON_ROCKSDB)):
        compare_given_back(judge, made_here(home, scratch / f"made-{home.value}"), brokers)
        say(f"  made here, released on {home.value}, for {', '.join(brokers)}: equal")


def they_read_ours(judge: Judge, scratch: Path, seed: int) -> None:
    root = scratch / "store"
    ours.write_store(root, seed)
    compare(judge, root, scratch / "whole")
    ours.expire_oldest(root, 2)
    compare(judge, root, scratch / "expired")


def they_read_what_is_written_twice(judge: Judge, scratch: Path, seed: int) -> None:
    """Both sides of a migration, as the dispatcher that writes both left them."""
    root = scratch / "store"
    ours.write_double_store(root, seed)
    compare(judge, root, scratch / "double")
    ours.expire_oldest(root, 2)
    compare(judge, root, scratch / "double-expired")


def compare(judge: Judge, root: Path, scratch: Path) -> None:
    """What RocketMQ reads in our store, by each view, is what we read in it."""
    for view in ("rocksdb", "files"):
        copy = scratch / view
        log = ours.as_rocketmq_store(root, copy, with_files=view == "files")
        answer = judge.read(copy, view, ours.SHAPE)
        assert (answer["log_start"], answer["log_end"]) == (log.start, log.end)
        assert answer["blanks"] == log.blanks
        check_records(log, answer["records"])
        check_units(log, answer["queues"])
        with open_store(ours.config(root)) as store:
            check_queues(store, answer["queues"])
        if view == "files":
            foreign = check_keys(log, answer["key_queries"])
            say(f"  {len(answer['key_queries'])} queries by key, {foreign} foreign answers in them")
        check_that_they_read(judge, copy, view)
        say(f"  {scratch.name}, {view}: {_sizes(log, answer)}: equal")


def check_queues(store: MessageStore, theirs: list[dict[str, Any]]) -> None:
    """Bounds and searches by time."""
    # A queue that only records of transactions name was never begun; for RocketMQ it is empty.
    theirs = [queue for queue in theirs if queue["max"] > 0]
    bounds = store.bounds([(queue["topic"], queue["queue_id"]) for queue in theirs])
    for queue, (low, high) in zip(theirs, bounds, strict=True):
        name = queue["topic"], queue["queue_id"]
        assert (queue["min"], queue["max"]) == (low, high), name
        for time_ms, lower, upper in queue["searches"]:
            assert store.search_time(*name, time_ms, Boundary.LOWER) == lower, name
            # RocketMQ answers 0 from RocksDB when the time is before the first unit, whatever
            # the min; we answer the min, as its file queues do.
            assert store.search_time(*name, time_ms, Boundary.UPPER) == max(upper, low), name


def check_that_they_read(judge: Judge, copy: Path, view: str) -> None:
    """A unit that we falsify is false for RocketMQ too: it reads our queues, not the log alone."""
    name, false_code = ("orders", 1), 0x1BAD_C0DE_0000_0001
    before = _units(judge.read(copy, view, ours.SHAPE), name)
    ours.falsify(copy, name, before[-1][0], false_code)
    after = _units(judge.read(copy, view, ours.SHAPE), name)
    assert after[:-1] == before[:-1]
    assert after[-1][3] == false_code != before[-1][3]


def _units(answer: dict[str, Any], name: tuple[str, int]) -> list[list[int]]:
    units: list[list[int]] = next(
        queue["units"] for queue in answer["queues"] if (queue["topic"], queue["queue_id"]) == name
    )
    return units


def _sizes(log: DecodedLog, answer: dict[str, Any]) -> str:
    units = sum(len(queue["units"]) for queue in answer["queues"])
    return f"{len(log.records)} records, {len(answer['queues'])} queues, {units} units"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    seed = parser.parse_args().seed
    say(f"seed {seed}; repeat with: python -m tests.interop.run --seed {seed}")
    say("building the Java side")
    judge = Judge()
    with tempfile.TemporaryDirectory() as scratch:
        say("RocketMQ reads what we write")
        they_read_ours(judge, Path(scratch) / "ours", seed)
        say("RocketMQ reads what we write to files and to RocksDB at once")
        they_read_what_is_written_twice(judge, Path(scratch) / "twice", seed)
        say("we read what RocketMQ writes")
        we_read_theirs(judge, Path(scratch) / "theirs", seed)
        say("a broker reads the topics and offsets that we give back")
        broker = BrokerJudge()
        they_read_what_is_given_back(broker, Path(scratch) / "back")
        say("what waits goes from a broker to us, back, and to us again")
        check_waiting(broker, Path(scratch) / "waiting")
        say("we read the topics and offsets that a broker writes")
        we_read_their_config(broker, Path(scratch) / "brokers")
    say("all equal")


if __name__ == "__main__":
    main()
