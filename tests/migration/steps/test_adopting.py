"""Stores that RocketMQ wrote, taken over and moved all the way and back, held to what it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kvcq.inspect import Kind
from migration.errors import LogDamageError, MigrationStateError
from migration.migrator import open_migrator
from migration.next_step import NextStep
from migration.plan.layouts import detect_layout, detect_segment_bytes
from migration.plan.plan import plan_directory
from migration.repair.rebuild_side import set_side_aside
from migration.state import SideName
from migration.state.phase import Phase
from migration.state.state import FileLayout, read_state, write_state
from migration.steps.adopting import adopt
from migration.steps.inheriting import Inheritance
from server.cli.main import main
from store.base import no_progress
from store.consume_queue import Boundary
from store.errors import StoreFormatError, StoreLockedError, UnknownTopicError
from store.light_queue import LMQ_PREFIX
from store.store_dir import StoreDir
from tests.golden.rocketmq_log import golden_log
from tests.support.command_line import kvcq
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    STORES,
    UNITS_PER_FILE,
    expected,
    extract_golden,
)
from tests.support.migrating import config, done, open_store
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)
FOREVER_MS = (1 << 63) - 1


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests have random records in topics of the broker's own: what becomes of
    real ones, test_inheriting.py shows."""
    monkeypatch.setattr("migration.steps.live.inherit", lambda *_: Inheritance())


def take_over(root: Path) -> None:
    adopt(root, layout=LAYOUT)


def check_against_rocketmq(
    store: MessageStore, name: str, view: str, *, quick: bool = False, step: int = 1
) -> None:
    """Bounds and units, and unless `quick` pulls, and of searches and key queries each one at
    `step`, as RocketMQ's."""
    queues = store.queues
    log_start = store.log.start_offset
    for queue in expected(name)["queues"][view]:
        topic, queue_id = queue["topic"], queue["queue_id"]
        bounds = queues.bounds(topic, queue_id, log_start)
        assert bounds == (queue["min"], queue["max"]), (topic, queue_id)
        units = queues.read_units(topic, queue_id, bounds[0], bounds[1] - bounds[0])
        assert [[offset, *unit] for offset, unit in units] == queue["units"]
        if quick:
            continue
        if bounds[0] < bounds[1]:
            pulled = store.pull(topic, queue_id, bounds[0], max_messages=10_000, max_bytes=1 << 30)
            assert [int.from_bytes(record[28:36], "big") for record in pulled.records] == [
                unit[1] for unit in queue["units"]
            ]
        for time_ms, lower, upper in queue["searches"][::step]:
            for boundary, wanted in ((Boundary.LOWER, lower), (Boundary.UPPER, upper)):
                found = queues.search_time(topic, queue_id, time_ms, boundary, log_start)
                assert found == wanted
    keys = golden_log(name).keys()
    if quick:
        return
    for query in expected(name)["key_queries"][::step]:
        topic, key = query["topic"], query["key"]
        hits = queues.query_key(topic, key, 0, FOREVER_MS, None, 1 << 20)
        wanted_offsets = [each for each in keys.get((topic, key), []) if each >= log_start]
        assert [hit.physical_offset for hit in hits] == wanted_offsets


@pytest.fixture(params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    return extract_golden(tmp_path, name)


def test_a_plan_changes_nothing_and_finds_the_golden_stores_sound(name: str, root: Path) -> None:
    before = tree_digest(root)
    plan = plan_directory(root, LAYOUT, no_progress)
    assert tree_digest(root) == before
    records = expected(name)["log"]["records"]
    assert plan.messages == len(records)
    assert not plan.messages_are_estimated
    assert plan.segments == len(list((root / "commitlog").iterdir()))
    assert (plan.units_per_s is None) == (plan.bytes_per_unit is None) == (plan.expected_s is None)
    assert plan.blocking == ()
    assert plan.is_clean
    # RocketMQ has no queue files of that one.
    assert (plan.queues_in_rocksdb > 0) == (name == "rocksdb")


@pytest.mark.slow
def test_a_golden_store_goes_all_the_way_and_back_with_equal_results(name: str, root: Path) -> None:
    view = "rocksdb" if name == "rocksdb" else "files"
    files_before = {
        path.relative_to(root): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("0000*"))
        if path.is_file() and path.parent != root / "consumequeue" and name != "rocksdb"
    }
    take_over(root)
    with open_migrator(root) as migrator:
        store = migrator._store
        assert migrator.live.state.phase is Phase.FILES
        check_against_rocketmq(store, name, view)
        done(migrator.live.start())
        done(migrator.live.verify(key_every=1))
        assert list(migrator.live.differences) == []
        migrator.live.cutover()
        check_against_rocketmq(store, name, view)
        done(migrator.live.rollback())
        check_against_rocketmq(store, name, view, quick=True)
        done(migrator.live.verify())
        migrator.live.cutover()
        migrator.live.finish()
        check_against_rocketmq(store, name, view, quick=True)
    with open_migrator(root) as migrator:
        store = migrator._store
        check_against_rocketmq(store, name, view, quick=True)
        done(migrator.live.rollback())
        done(migrator.live.rollback())
        assert migrator.live.state.phase is Phase.DOUBLE_WRITE
        check_against_rocketmq(store, name, view)
        done(migrator.live.verify(key_every=1))
        assert list(migrator.live.differences) == []
        done(migrator.live.rollback())
    if name == "both":
        made = {path: (root / path).read_bytes() for path in files_before}
        assert made == files_before  # files made again from the log are those RocketMQ wrote


def test_light_queues_and_topics_are_taken_over(root: Path, name: str) -> None:
    take_over(root)
    with open_migrator(root) as migrator:
        store = migrator._store
        wanted = {
            queue["topic"] for queue in expected(name)["queues"]["rocksdb"] if queue["max"] > 0
        }
        light = {each for each in wanted if each.startswith(LMQ_PREFIX)}
        assert set(store.list_light_queues("", None, 1000)) == light
        topics = {topic.name: topic for topic in store.list_topics("", None, 1000)}
        for queue in expected(name)["queues"]["rocksdb"]:
            if not queue["topic"].startswith(LMQ_PREFIX) and queue["max"]:
                assert topics[queue["topic"]].queue_count > queue["queue_id"]


def test_config_files_decide_on_topics_and_committed_offsets(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    topics = sorted({queue["topic"] for queue in expected("both")["queues"]["files"]})
    plain = next(each for each in topics if not each.startswith("%") and "SCHEDULE" not in each)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(
        json.dumps(
            {
                "topicConfigTable": {
                    plain: {"readQueueNums": 16, "writeQueueNums": 8},
                    "empty": {"readQueueNums": 3, "writeQueueNums": 3},
                }
            }
        )
    )
    # As RocketMQ's JSON writer does: numbers as keys without quotes.
    (root / "config" / "consumerOffset.json").write_text(
        f'{{"offsetTable":{{"{plain}@readers":{{0:5,1:7}},"{plain}@bad group!":{{0:1}}}}}}'
    )
    take_over(root)
    with open_migrator(root) as migrator:
        store = migrator._store
        assert store.describe_topic(plain).queue_count == 16
        assert store.describe_topic("empty").queue_count == 3
        assert store.list_groups(None, 10) == ["readers"]
        assert store.committed_offsets("readers", [(plain, 0), (plain, 1), (plain, 2)]) == [
            5,
            7,
            None,
        ]


def test_a_topic_that_only_the_log_knows_was_deleted_and_stays_so(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    gone = next(
        queue["topic"]
        for queue in expected("both")["queues"]["files"]
        if not queue["topic"].startswith("%") and queue["max"]
    )
    for path in sorted((root / "consumequeue" / gone).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "consumequeue" / gone).rmdir()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    take_over(root)
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify())
        assert list(migrator.live.differences) == []
        with pytest.raises(UnknownTopicError):
            migrator._store.describe_topic(gone)


@pytest.mark.slow
def test_faulty_files_are_reported_and_made_again_from_the_log(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    queue = next(
        each
        for each in expected("both")["queues"]["files"]
        if each["max"] > 2 * UNITS_PER_FILE and not each["topic"].startswith("%")
    )
    directory = root / "consumequeue" / queue["topic"] / str(queue["queue_id"])
    first, second = sorted(directory.iterdir())[:2]
    with first.open("r+b") as file:  # a unit that points at another record
        file.seek(20)
        file.write((12345).to_bytes(8, "big"))
    second.unlink()
    index = next((root / "index").iterdir())
    index.write_bytes(index.read_bytes()[:1000])
    plan = plan_directory(root, LAYOUT, no_progress)
    assert {Kind.MISSING, Kind.TRUNCATED} <= {finding.kind for finding in plan.faults}
    take_over(root)
    with open_migrator(root) as migrator:
        check_against_rocketmq(migrator._store, "both", "files", step=9)
        done(migrator.live.start())
        done(migrator.live.verify(key_every=1))
        assert list(migrator.live.differences) == []


def test_damage_in_the_middle_of_the_log_is_refused_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    root = extract_golden(tmp_path, "both")
    record = expected("both")["log"]["records"][100]
    segment = (
        root / "commitlog" / f"{record['physical_offset'] // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    )
    with segment.open("r+b") as file:
        file.seek(record["physical_offset"] % SEGMENT_BYTES + 4)
        file.write(b"\0\0\0\0")
    before = tree_digest(root)
    with pytest.raises(LogDamageError, match=str(record["physical_offset"])):
        take_over(root)
    assert tree_digest(root) == before
    plan = plan_directory(root, LAYOUT, no_progress)
    assert plan.blocking
    assert plan.faults == []  # good queue files point behind the damage
    assert plan.next_step == NextStep("plan", hint="first remove what blocks the start")


def test_batch_queues_are_in_the_way(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    queue = root / "batchconsumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(b"x")
    before = tree_digest(root)
    (reason,) = plan_directory(root, LAYOUT, no_progress).blocking
    assert str(queue) in reason
    with pytest.raises(StoreFormatError, match="BatchCQ"):
        take_over(root)
    assert tree_digest(root) == before


def test_a_take_over_tells_what_it_made_again_and_what_it_left(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    queue = root / "consumequeue" / "payments" / "1"
    (queue / f"{0:020d}").unlink()
    (queue / "notes").write_bytes(b"x")
    told: list[str] = []
    adopt(root, layout=LAYOUT, tell=told.append)
    made = [line for line in told if line.startswith("rebuilt")]
    assert len(made) == 1
    assert "queue 1 of payments" in made[0]
    assert "left alone in consumequeue/payments/1/: foreign file: notes" in told
    assert any(line.startswith("left alone in consumequeue/:") for line in told)
    state = read_state(root)
    assert state is not None
    assert "rebuilt from the log: 1" in state.history[-1][1]


def test_an_interrupted_take_over_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = extract_golden(tmp_path, "both")

    def fail(*_: object) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr("migration.steps.adopting.make_state", fail)
        with pytest.raises(OSError, match="killed"):
            take_over(root)
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.ADOPTING
    with pytest.raises(MigrationStateError, match="kvcq migrate start"):
        open_store(config(root, segment_bytes=SEGMENT_BYTES))
    take_over(root)
    with open_migrator(root) as migrator:
        check_against_rocketmq(migrator._store, "both", "files", step=9)


def test_a_store_that_a_broker_has_open_is_left_as_it_is(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    other = StoreDir(root)
    other._take_lock()
    try:
        before = tree_digest(root)
        with pytest.raises(StoreLockedError):
            take_over(root)
        assert tree_digest(root) == before
    finally:
        other.close()


def test_a_directory_of_rocketmqs_is_opened_by_no_other_way(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    with pytest.raises(StoreFormatError, match="kvcq migrate"):
        open_store(config(root, segment_bytes=SEGMENT_BYTES))


def test_sizes_are_told_by_the_files(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    assert detect_segment_bytes(root) == SEGMENT_BYTES
    with pytest.raises(StoreFormatError, match="--index-slots"):
        detect_layout(root)
    for path in (root / "index").iterdir():
        path.unlink()
    assert detect_layout(root).units_per_file == UNITS_PER_FILE


@pytest.mark.parametrize(
    "given",
    [
        {"index_slots": INDEX_SLOTS},
        {"index_entries": INDEX_ENTRIES},
        {"index_slots": INDEX_SLOTS, "index_entries": INDEX_ENTRIES},
    ],
)
def test_sizes_that_are_not_given_are_told_by_the_files(
    tmp_path: Path, given: dict[str, int]
) -> None:
    root = extract_golden(tmp_path, "both")
    options = [f"--{name.replace('_', '-')}={size}" for name, size in given.items()]
    started = kvcq("migrate", "start", str(root), "--adopt-only", *options)
    assert started.exit_code == 0, started.output
    state = read_state(root)
    assert state is not None
    assert replace(state.layout, index_tags_from=None) == LAYOUT
    queue_files = [path for path in (root / "consumequeue").rglob("0*") if len(path.name) == 20]
    assert {path.stat().st_size for path in queue_files} == {UNITS_PER_FILE * 20}


def test_units_per_file_alone_is_no_reason_to_guess_the_index(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    before = tree_digest(root)
    refused = CliRunner().invoke(
        main, ["migrate", "start", str(root), f"--units-per-file={UNITS_PER_FILE}"]
    )
    assert refused.exit_code == 1
    assert "--index-slots" in refused.output
    assert tree_digest(root) == before


def test_a_missing_file_side_is_made_again_on_request(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    take_over(root)
    with open_migrator(root):
        pass
    (root / "consumequeue").rename(tmp_path / "elsewhere")
    with pytest.raises(MigrationStateError, match="--rebuild files"), open_migrator(root):
        pass
    set_side_aside(root, SideName.FILES)
    with open_migrator(root) as migrator:
        check_against_rocketmq(migrator._store, "both", "files", step=9)


def test_a_newer_state_file_is_refused(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    take_over(root)
    state = read_state(root)
    assert state is not None
    path = root / "migration.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"FILES", b"FILEZ"))
    with pytest.raises(MigrationStateError, match="checksum"):
        read_state(root)
    write_state(root, state)
    assert read_state(root) == state
