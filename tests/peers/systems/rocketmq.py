"""RocketMQ from Maven Central: name server and broker with its own Java client; or its proxy.

Java programs are built by Maven at the first use, which needs the network then.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Semaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.processes import OneProcess, ServerProcess, connects, free_port, wait_until
from tests.benchmarks.system import System
from tests.benchmarks.systems.ours import KvcqServer
from tests.benchmarks.timing import BODY_BYTES, NotOfferedError, Timed
from tests.interop.broker_judge import PROJECT as INTEROP_BROKER
from tests.interop.maven import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from tests.benchmarks.system import Server

PROJECT = Path(__file__).parents[1] / "rocketmq"
_OFFICIAL_JAVA = Path(__file__).parents[2] / "clients" / "java"
VERSION = "5.5.0"
#: Of the server and the client; the released scripts ask for eight gigabytes of heap.
_JAVA = ("java", "-Xms512m", "-Xmx2g", "-XX:MaxDirectMemorySize=2g")
_NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_PROXY = "org.apache.rocketmq.proxy.ProxyStartup"
_TOPICS = ("one", "callers", "each", "batches", "warm", "read", "read-warm")
#: In files, each light queue is one that stays open.
_MOST_IN_FILES = 15_000
#: A queue for each topic, as `_write_config` has it.
_LIKE_THE_PROXY = ("--set", "store.default_queue_count=1")
_RECEIVE = 32
#: How long a proxy may refuse what it will take.
_PROXY_BEGINS_S = 90.0
#: How long it may take until all messages came.
_READ_S = 120.0


@cache
def _classpath() -> str:
    """With what stands where the tiered store would, which is not on Maven Central."""
    build(INTEROP_BROKER)
    return os.pathsep.join([build(PROJECT), str(INTEROP_BROKER / "target" / "classes")])


class RocketmqServer:
    """A name server and a broker; `proxy`: the proxy with the broker in it."""

    def __init__(
        self,
        store: str,
        directory: Path,
        *,
        durable: bool,
        proxy: bool = False,
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """`topics`: their types by name, and `groups`: their settings, where not those of the
        works; clients of the proxy make none."""
        self._directory = directory
        self._topics = dict.fromkeys(_TOPICS, "") if topics is None else topics
        self._groups = {_group(name): {} for name in _TOPICS} if groups is None else groups
        self._proxy = proxy
        self._store = store
        self._flush = flush = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        self.settings = f"flushDiskType={flush}, storeType={store}"
        self._name_server_port, self._grpc_port = free_port(), free_port()
        self._broker = {
            "brokerClusterName": "bench",
            "brokerName": "bench",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": free_port(),  # and the one two below it
            "haListenPort": free_port(),
            "namesrvAddr": self._name_server,
            "storePathRootDir": directory / "store",
            "storePathCommitLog": directory / "store" / "commitlog",
            "storeType": store,
            "flushDiskType": flush,
            "enableLmq": "true",
            "enableMultiDispatch": "true",
            "maxLmqConsumeQueueNum": 1_000_000,
            # A pull gets 32 messages and 256 KiB at most as released.
            "maxTransferCountOnMessageInMemory": 1024,
            "maxTransferBytesOnMessageInMemory": 4 << 20,
            "maxTransferCountOnMessageInDisk": 1024,
            "maxTransferBytesOnMessageInDisk": 4 << 20,
            # As released it refuses messages when the disk keeps it waiting.
            "waitTimeMillsInSendQueue": 30_000,
            "osPageCacheBusyTimeOutMills": 30_000,
            "diskMaxUsedSpaceRatio": 95,
            "enableMixedMessageType": "true",
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
        }
        self._processes: list[ServerProcess] = []

    @property
    def _name_server(self) -> str:
        return f"127.0.0.1:{self._name_server_port}"

    def start(self) -> None:
        if self._proxy and self._flush == "SYNC_FLUSH":
            raise NotOfferedError("as the broker's, which is measured without the proxy")
        data = self._directory / "store"
        data.mkdir(parents=True, exist_ok=True)
        broker = _settings(self._directory / "broker.conf", self._broker)
        name_server = _settings(
            self._directory / "namesrv.conf", {"listenPort": self._name_server_port}
        )
        self._run(_NAME_SERVER, "The Name Server boot success", "-c", name_server)
        if not self._proxy:
            self._run(_BROKER, "boot success", "-c", broker)
            return
        self._write_config(data)
        proxy = self._directory / "proxy.json"
        settings = {
            "rocketMQClusterName": "bench",
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": free_port(),
            "namesrvAddr": self._name_server,
            "proxyMode": "LOCAL",
        }
        proxy.write_text(json.dumps(settings), encoding="utf-8")
        mode = ("-pm", "LOCAL", "-n", self._name_server)
        self._run(_PROXY, "startup successfully", *mode, "-bc", broker, "-pc", str(proxy))

    def _run(self, program: str, ready: str, *arguments: str) -> None:
        log = self._directory / f"{program.rpartition('.')[2]}.log"
        begin = log.stat().st_size if log.exists() else 0
        home = f"-Duser.home={self._directory}"  # its logs go home
        process = ServerProcess(
            [*_JAVA, home, "-cp", _classpath(), program, *arguments],
            log,
            os.environ | {"ROCKETMQ_HOME": str(self._directory), "RMQ_PROXY_HOME": str(PROJECT)},
        )
        self._processes.append(process)
        wait_until(lambda: ready.encode() in log.read_bytes()[begin:], process)

    def _write_config(self, data: Path) -> None:
        directory = data / "config"
        if directory.exists():
            return
        topics = {
            name: {
                "topicName": name,
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
                "attributes": {"message.type": kind} if kind else {},
            }
            for name, kind in self._topics.items()
        }
        version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
        groups = {name: {"groupName": name, **settings} for name, settings in self._groups.items()}
        directory.mkdir(parents=True)
        for file, table, rows in (
            ("topics.json", "topicConfigTable", topics),
            ("subscriptionGroup.json", "subscriptionGroupTable", groups),
        ):
            text = json.dumps({"dataVersion": version, table: rows})
            (directory / file).write_text(text, encoding="utf-8")

    def stop(self) -> None:
        while len(self._processes) > 1:
            self._processes.pop().stop()
        while self._processes:
            # The name server takes three seconds to end, and keeps nothing.
            self._processes.pop().kill()

    @property
    def address(self) -> str:
        if self._proxy:
            return f"127.0.0.1:{self._grpc_port}"
        return f"{self._name_server} {1_000_000 if 'Rocks' in self._store else _MOST_IN_FILES}"

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]


class EchoServer(OneProcess):
    """A process that answers in RocketMQ's protocol and stores nothing."""

    settings = "grpc.aio on uvloop, no store"

    def __init__(self, directory: Path, *, durable: bool) -> None:
        super().__init__()
        self._log = directory / "server.log"
        (directory / "store").mkdir(exist_ok=True)

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.peers.echo", str(self._port)]
        self._begin(command, self._log, lambda: connects(self._port))


def _group(queue: str) -> str:
    return f"read-{queue}"


def _settings(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return str(path)


def _java_client(address: str) -> list[str]:
    return [*_JAVA, "-cp", _classpath(), "kvcq.peers.Main", *address.split()]


@cache
def _official_classpath() -> str:
    return build(_OFFICIAL_JAVA)


def _official_java_client(address: str) -> list[str]:
    return [*_JAVA, "-cp", _official_classpath(), "Speed", address]


class ProxyClient:
    """The official Python client. It sends one message a call."""

    def __init__(self, address: str, *, durable: bool) -> None:
        rocketmq: Any = importlib.import_module("rocketmq")
        self._rocketmq = rocketmq
        self._settings = rocketmq.ClientConfiguration(address, rocketmq.Credentials())
        self._body = os.urandom(BODY_BYTES)
        self.producer = rocketmq.Producer(self._settings, _TOPICS)
        self.producer.startup()
        # A proxy that says it is up may not have heard of the broker's topics yet.
        for topic in _TOPICS:
            _tried_again(partial(self.producer._retrieve_topic_route_data, topic), Exception)

    def message(self, topic: str) -> Any:  # noqa: ANN401 - the library is not typed
        message = self._rocketmq.Message()
        message.topic = topic
        message.body = self._body
        return message

    def in_flight(self, topic: str, most: int, limit_s: float, count: int = 1 << 30) -> Timed:
        """Single messages, this many of them in flight."""
        room = Semaphore(most)
        calls: list[float] = []
        errors: list[BaseException] = []

        def done(began_s: float, future: Future[Any]) -> None:
            error = future.exception()
            if error is not None:
                errors.append(error)
            calls.append(perf_counter() - began_s)
            room.release()

        sent = 0
        first_s = perf_counter()
        while sent < count and (now_s := perf_counter()) - first_s < limit_s and not errors:
            room.acquire()
            future = self.producer.send_async(self.message(topic))
            future.add_done_callback(partial(done, now_s))
            sent += 1
        for _ in range(most):
            room.acquire()
        if errors:
            raise errors[0]
        return Timed.of_calls(calls, perf_counter() - first_s)

    def receive(self, queue: str, count: int, *, acknowledge: bool = True) -> Timed:
        """The way of its protocol: received, 32 a call, and each acknowledged."""
        consumer = self._rocketmq.SimpleConsumer(
            self._settings, _group(queue), {queue: self._rocketmq.FilterExpression()}
        )
        consumer.startup()
        acknowledged: list[Future[Any]] = []
        threads = ThreadPoolExecutor(_RECEIVE)  # its own asynchronous call loses its future
        began_s = perf_counter()
        messages = self._first(consumer)
        seen = 0
        while True:
            for message in messages:
                _ = message.body
                if acknowledge:
                    acknowledged.append(threads.submit(consumer.ack, message))
            seen += len(messages)
            if seen >= count:
                break
            if perf_counter() - began_s > _READ_S:
                raise TimeoutError(f"{seen} of {count} messages came in {_READ_S:g} s")
            messages = consumer.receive(_RECEIVE, 60)
        for future in acknowledged:
            future.result()
        timed = Timed(seen, perf_counter() - began_s)
        threads.shutdown()
        consumer.shutdown()
        return timed

    def _first(self, consumer: Any) -> Any:  # noqa: ANN401
        """The proxy refuses until the consumer has told it of itself, in a call of its own."""
        exceptions: Any = importlib.import_module("rocketmq.v5.exception.client_exception")
        receive = partial(consumer.receive, _RECEIVE, 60)
        return _tried_again(receive, exceptions.InternalErrorException)

    def close(self) -> None:
        self.producer.shutdown()


def _tried_again(call: Callable[[], Any], error: type[Exception]) -> Any:  # noqa: ANN401 - of the library
    """Its result, which may be an error for so long as a proxy begins."""
    end_s = perf_counter() + _PROXY_BEGINS_S
    while True:
        try:
            return call()
        except error:
            if perf_counter() > end_s:
                raise
            time.sleep(0.05)


def _missing_java() -> str | None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return "apt-get install openjdk-17-jdk-headless maven"
    return None


def _missing_client() -> str | None:
    return None if find_spec("rocketmq") else "pip install '.[peers]'"


#: What the Java client knows.
_METHODS = {"put_one", "put_by_callers", "put_each", "put_batches", "read_back", "pull"}
_QUEUES = {"new_queues", "light_queues"}
#: What the official Java client is measured by.
_OFFICIAL_METHODS = frozenset({"java_send", "java_send_many", "java_receive", "java_acknowledge"})


def _system(name: str, title: str, store: str) -> System:
    return System(
        name,
        title,
        partial(RocketmqServer, store),
        "",
        _missing_java,
        lambda: VERSION,
        command=_java_client,
        methods=frozenset(_METHODS | _QUEUES),
    )


def _of_official_clients(
    name: str,
    title: str,
    server: Callable[..., Server],
    missing: Callable[[], str | None] = lambda: None,
    version: str = "",
    *,
    is_limit: bool = False,
) -> Iterator[System]:
    """The server with the official Python client, and with the one for Java."""
    yield System(
        name,
        f"{title} Python client",
        server,
        f"{__name__}:ProxyClient",
        lambda: missing() or _missing_client(),
        lambda: version,
        is_limit=is_limit,
    )
    yield System(
        f"{name}-java",
        f"{title} Java client",
        server,
        "",
        _missing_java,
        lambda: version,
        is_limit=is_limit,
        command=_official_java_client,
        methods=_OFFICIAL_METHODS,
    )


SYSTEMS = [
    _system("rocketmq-files", "RocketMQ, file queues", "default"),
    _system("rocketmq-rocksdb", "RocketMQ, RocksDB queues", "defaultRocksDB"),
    *_of_official_clients(
        "kvcq-for-rocketmq", "kvcq, RocketMQ's", partial(KvcqServer, flags=_LIKE_THE_PROXY)
    ),
    *_of_official_clients("bare-v2", "echo of RocketMQ's protocol, its", EchoServer, is_limit=True),
    *_of_official_clients(
        "rocketmq-proxy",
        "RocketMQ proxy,",
        partial(RocketmqServer, "default", proxy=True),
        _missing_java,
        VERSION,
    ),
]
