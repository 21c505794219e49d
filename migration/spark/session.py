"""One small, quiet Spark session per process.

A JVM reads its options only at its start, so these are set before: Java, memory, log configuration,
and the module path of Python workers. Spark never runs in the server's process.

Thread: start and stop from one thread; a started session may be used from any.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migration.spark.errors import PipelineError, SparkMissingError
from migration.spark.java import find_java, make_shim
from store.base import import_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

#: A file, because spark.log.level does not affect lines logged before it is read. Errors of tasks
#: are not logged, because the driver raises them.
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
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
"""


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """Settings of a session. `conf` is applied last and wins."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    shuffle_partitions: int = 8
    java_home: Path | None = None
    scratch: Path | None = None  # shuffle and spill files; None: a temporary directory
    jvm_options: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master == "local" or self.master.startswith("local[")


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """A session with kvcq's data sources, until the end of the block. Its scratch files are removed
    then; its JVM ends with this process.

    Raises PipelineError if the process already has a session, SparkMissingError without PySpark,
    JavaNotFoundError without a Java.
    """
    require_packages()
    from pyspark.sql import SparkSession

    from migration.spark.source import register_sources

    if SparkSession.getActiveSession() is not None:
        raise PipelineError("this process runs a Spark session already")
    with tempfile.TemporaryDirectory(
        prefix="kvcq-spark-", dir=settings.scratch, ignore_cleanup_errors=True
    ) as work:
        _prepare_environment(settings)
        builder = SparkSession.builder.master(settings.master).appName("kvcq")
        for name, value in session_conf(settings, Path(work)).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        # Otherwise an analysis error also logs its whole query context as JSON.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        try:
            register_sources(session)
            yield session
        finally:
            session.stop()


def session_conf(settings: SparkSettings, work: Path) -> dict[str, str]:
    """The settings for Spark. `work`: an existing private directory."""
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
        # Off by default; then a query on a reader that supports push-down fails.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": f"{__package__}.daemon",
    }
    if settings.is_local:
        conf |= {
            "spark.local.dir": str(work / "local"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return conf | dict(settings.conf)


def require_packages() -> None:
    """Raises SparkMissingError unless the packages of the extra are installed."""
    for name in ("pyspark", "pandas", "pyarrow"):
        try:
            __import__(name)
        except ImportError as error:
            raise SparkMissingError(name) from error


def _prepare_environment(settings: SparkSettings) -> None:
    """Set the environment for the JVM and the workers, which only read it at their start."""
    os.environ["JAVA_HOME"] = str(make_shim(find_java(settings.java_home)))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:  # keep the default paths unless the caller has set others
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    source_root = str(import_root(__name__))
    if "site-packages" not in Path(source_root).parts:
        # A source checkout: workers import this package from here, in any working directory.
        known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        if source_root not in known:
            os.environ["PYTHONPATH"] = os.pathsep.join([source_root, *known])
