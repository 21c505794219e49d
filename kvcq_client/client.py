"""The client, for blocking code: scripts, threads, notebooks."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kvcq_client.async_producer import ProducerCore
from kvcq_client.calls import Calls
from kvcq_client.connection import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, Connection
from kvcq_client.consumer import Consumer
from kvcq_client.consumer_config import ConsumerConfig
from kvcq_client.consumer_core import ConsumerCore
from kvcq_client.forks import begin_grpc
from kvcq_client.loop_thread import LoopThread
from kvcq_client.producer import Producer
from kvcq_client.producer_config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from types import TracebackType
    from typing import Concatenate, Unpack

    from kvcq_client.consumer_config import ConsumerSettings
    from kvcq_client.consumer_core import Wanted
    from kvcq_client.producer_config import ProducerSettings

P = ParamSpec("P")
R = TypeVar("R")

#: What an iterator fetches from the loop's thread at a time.
_CHUNK = 1000


def _blocking(
    call: Callable[Concatenate[Calls, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """The call as a method of Client, with the same parameters."""

    @wraps(call)
    def wait(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(call(self._calls, *args, **kwargs))

    return wait


def _blocking_iterator(
    call: Callable[Concatenate[Calls, P], AsyncIterator[R]],
) -> Callable[Concatenate[Client, P], Iterator[R]]:
    """The same for a call that yields."""

    @wraps(call)
    def iterate(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = call(self._calls, *args, **kwargs)

        async def some() -> list[R]:
            found: list[R] = []
            async for item in items:
                found.append(item)
                if len(found) == _CHUNK:
                    break
            return found

        while part := self._run(some()):
            yield from part

    return iterate


class Client:
    """A connection to one server, and all that can be asked of it.

    `with Client("127.0.0.1:8081") as client:` — nothing is sent before the first call. Every call
    has a deadline, `timeout_s` unless it is given its own; until then a server that is not there,
    or not ready, is tried again. Thread: any. It works in a thread of its own, also where an
    event loop runs already, as in a notebook. A process that is forked once a client was made
    cannot use it, nor one of its own: every call raises ForkedError there.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """`options` are gRPC channel arguments, over the client's own."""
        begin_grpc()
        self._thread = LoopThread()
        self._users: set[Producer | Consumer] = set()
        self._closed = False

        async def connect() -> Connection:
            return Connection(target, timeout_s=timeout_s, options=options)

        self._connection = self._thread.run(connect())
        self._calls = Calls(self._connection)

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._connection.target

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Producer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""
        chosen = replace(config or ProducerConfig(), **settings)

        async def make() -> ProducerCore:
            return ProducerCore(self._connection, chosen, self._thread.loop)

        producer = Producer(self._run(make()), self._thread, self._users.discard)
        self._users.add(producer)
        return producer

    def consumer(
        self,
        queues: Wanted = (),
        config: ConsumerConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> Consumer:
        """A consumer of topics (all their queues), light queues, or queues.

        `{Queue("orders", 0): 42}` says where to begin; else `start` does, a field of
        ConsumerConfig like all `settings`. A `group` keeps offsets and shares no work: each of its
        consumers reads every message. Raises NotFoundError, ClosedError.
        """
        chosen = replace(config or ConsumerConfig(), **settings)

        async def make() -> ConsumerCore:
            core = ConsumerCore(self._connection, self._calls, chosen)
            try:
                await core.follow(queues)
            except BaseException:
                await core.close()
                raise
            return core

        consumer = Consumer(self._run(make()), self._thread, self._users.discard)
        self._users.add(consumer)
        return consumer

    # --- calls: see Calls ------------------------------------------------------------------

    put = _blocking(Calls.put)
    put_numbered = _blocking(Calls.put_numbered)
    stored_batch = _blocking(Calls.stored_batch)
    pull = _blocking(Calls.pull)
    query = _blocking(Calls.query)
    get = _blocking(Calls.get)
    offsets = _blocking(Calls.offsets)
    search_time = _blocking(Calls.search_time)

    create_topic = _blocking(Calls.create_topic)
    create_topics = _blocking(Calls.create_topics)
    delete_topic = _blocking(Calls.delete_topic)
    describe_topic = _blocking(Calls.describe_topic)
    topics = _blocking_iterator(Calls.topics)

    commit_offsets = _blocking(Calls.commit_offsets)
    group_offsets = _blocking(Calls.group_offsets)
    reset_offsets = _blocking(Calls.reset_offsets)
    groups = _blocking(Calls.groups)
    delete_group = _blocking(Calls.delete_group)

    statistics = _blocking(Calls.statistics)
    server_version = _blocking(Calls.server_version)

    # --- end of life -----------------------------------------------------------------------

    def close(self) -> None:
        """Close producers (they deliver first) and consumers, then the connection. Repeatable."""
        if self._closed:
            return
        for user in tuple(self._users):
            user.close()
        self._closed = True
        if self._thread.is_forked:
            return
        self._thread.run(self._connection.close())
        self._thread.close()

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            call.close()
            self._connection.check_open()
        return self._thread.run(call)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
