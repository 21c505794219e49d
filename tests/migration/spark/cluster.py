"""A standalone Spark cluster of processes: a master and two workers, from the jars of pyspark."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CLASS = "org.apache.spark.deploy."
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Cluster(NamedTuple):
    """A running one."""

    master: str  # spark://…
    workers: tuple[subprocess.Popen[bytes], ...]

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks."""
        return [
            child
            for worker in self.workers
            for child in psutil.Process(worker.pid).children(recursive=True)
            if child.is_running() and _EXECUTOR in " ".join(child.cmdline())
        ]


@contextmanager
def spark_cluster(directory: Path, env: Mapping[str, str]) -> Iterator[Cluster]:
    """Master and workers until the end of the block. `env` has JAVA_HOME; workers inherit it."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    java = [str(Path(env["JAVA_HOME"]) / "bin" / "java"), "-cp", f"{home}/jars/*", "-Xmx512m"]
    whole = {
        **os.environ,
        **env,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Its shell scripts say so; without it a worker takes the directory for a source tree.
        "SPARK_SCALA_VERSION": "2.13",
    }

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (directory / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(
                [*java, *arguments], env=whole, stdout=log, stderr=log, cwd=directory
            )

    address = f"spark://127.0.0.1:{port}"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    processes = [start("master", f"{_CLASS}master.Master", *here, "--port", str(port))]
    try:
        for number in range(2):
            work = directory / f"work-{number}"
            worker = (f"{_CLASS}worker.Worker", *here, "--cores", "1", "--memory", "1g")
            processes.append(start(f"worker-{number}", *worker, "--work-dir", str(work), address))
        yield Cluster(address, tuple(processes[1:]))
    finally:
        for process in reversed(processes):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()
