"""What all tests share: where they write, how thorough property tests are, and one Spark session.

HYPOTHESIS_PROFILE is dev (the default), ci or nightly.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

# Tests flush thousands of times, and none waits for a real disk to be right: in memory they take
# a third of the time. Where there is little of it, as in a small container, the disk has to do.
_DISK = os.environ.setdefault("TESTS_ON_DISK", tempfile.gettempdir())  # xdist's workers are told
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    # For directories of property tests, and of the processes that tests start.
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"]

# What a developer's shell is set up for, such as another server, a proxy or colours, is not what is
# tested. The names left are those by which tests themselves are told something.
_KEPT = {"KVCQ_SCREENSHOTS", "KVCQ_GOLDEN", "KVCQ_GOLDEN_BROKER", "KVCQ_PUBLIC_GRPC"}
for _name in [*os.environ]:
    if (_name.startswith("KVCQ_") and _name not in _KEPT) or _name in ("FORCE_COLOR", "COLUMNS"):
        del os.environ[_name]

# Nor is how slow it makes Python: without bytecode each of xdist's workers would rewrite the
# assertions of all tests, and each process that a test starts would compile the product.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts this in the background has Ctrl-C ignored, in all that tests start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: two cores are shared by whatever runs beside. `print_blob` says how to replay.
_COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("dev", _COMMON, max_examples=50)
settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
settings.register_profile("nightly", _COMMON, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests are there to the end: no garbage collection looks at them, again and again.

    That took a third of the collecting of tests, and a tenth of the time of the tests themselves.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test that starts Spark waits for it on its own time: a minute where much runs beside."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def empty_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of all tests: none sees a store that `make run` made in ./data."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(autouse=True)
def in_empty_directory(empty_directory: Path) -> Iterator[None]:
    """Each test starts in an empty directory, and leaves it empty."""
    os.chdir(empty_directory)
    yield
    os.chdir(empty_directory)
    left = sorted(path.name for path in empty_directory.iterdir())
    for name in left:
        shutil.rmtree(empty_directory / name, ignore_errors=True)
        (empty_directory / name).unlink(missing_ok=True)
    assert not left, f"the test wrote {left} into its working directory: it has tmp_path for that"


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """`kvcq serve`, called in this process, sets the log's level and gives the audit a way out."""
    root, audit = logging.getLogger(), logging.getLogger("kvcq.audit")
    before = root.level, audit.level, audit.propagate, audit.handlers[:]
    yield
    root.setLevel(before[0])
    for package in ("store", "kvcq", "migration", "server"):
        logging.getLogger(package).setLevel(logging.NOTSET)
    audit.setLevel(before[1])
    audit.propagate, audit.handlers[:] = before[2:]


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """An empty directory on a disk: as `tmp_path`, for what no file system in memory does."""
    with tempfile.TemporaryDirectory(dir=_DISK) as directory:
        yield Path(directory)


@pytest.fixture
def damaged(request: pytest.FixtureRequest) -> bool:
    """Whether the test says of itself that it leaves its store damaged: it is not checked then."""
    return request.node.get_closest_marker("damages") is not None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A warm local[2] session with our data sources; starting one takes longer than most tests."""
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    from migration.spark.errors import JavaNotFoundError
    from migration.spark.session import SparkSettings, spark_session

    settings = SparkSettings(
        master="local[2]",
        shuffle_partitions=4,
        scratch=tmp_path_factory.mktemp("spark"),
        # The quick compiler only: tests are short, and start sooner with it.
        jvm_options="-XX:TieredStopAtLevel=1",
    )
    # Meanwhile the modules of a worker come off the disk: the first one has 10 s to start.
    worker = "import pandas, pyspark.sql.streaming.python_streaming_source_runner"
    with ExitStack() as stack:
        with subprocess.Popen([sys.executable, "-c", worker]):
            try:
                session = stack.enter_context(spark_session(settings))
            except JavaNotFoundError as error:
                pytest.skip(str(error))
        yield session
