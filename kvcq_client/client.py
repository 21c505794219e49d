"""The client, for blocking code: scripts, threads, notebooks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client.access import Access, AsyncAccess
from kvcq_client.calls import Calls
from kvcq_client.consuming import Consumer
from kvcq_client.errors import ClosedError
from kvcq_client.jobs import AsyncJobs, Jobs
from kvcq_client.migration import AsyncMigration, Migration
from kvcq_client.producing import Producer
from kvcq_client.transport import (
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    Blocking,
    Closing,
    Connection,
    LoopThread,
    begin_grpc,
    blocking,
    blocking_iterator,
)
from kvcq_client.users import Users

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Unpack

    from kvcq_client.consuming import ConsumerConfig, ConsumerSettings, Wanted
    from kvcq_client.producing import ProducerConfig, ProducerCore, ProducerSettings
    from kvcq_client.transport import TLS, Credentials

R = TypeVar("R")


class Client(Blocking[Calls], Closing):
    """A connection to one server, and all that can be asked of it.

    `with Client("127.0.0.1:8081") as client:` — nothing is sent before the first call. Every call
    has a deadline, `timeout_s` unless it is given its own; until then a server that is not there,
    or not ready, is tried again. Thread: any. It works in a thread of its own, also where an
    event loop runs already, as in a notebook. Ctrl-C cancels the call under way, and is raised once
    that has ended. A process that is forked once a client was made cannot use it, nor one of its
    own: every call raises ForkedError there.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        options: Sequence[tuple[str, Any]] = (),
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`options` are gRPC channel arguments; they override the client's own.

        A proxy of the environment is not used for this machine, nor where `NO_PROXY` excludes it.

        Raises ValueError, and OSError when a file of `tls` cannot be read.
        """
        begin_grpc()
        self._thread = LoopThread()
        self._closed = False

        async def connect() -> Connection:
            return Connection(
                target, timeout_s=timeout_s, options=options, tls=tls, credentials=credentials
            )

        try:
            self._connection = self._thread.run(connect())
        except BaseException:
            self._thread.close()
            raise
        calls = Calls(self._connection)
        super().__init__(calls, self._thread.run)
        self._users = Users(self._connection, calls)

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._connection.target

    @property
    def jobs(self) -> Jobs:
        """Long pieces of work on the server."""
        return Jobs(AsyncJobs(self._connection), self._wait)

    @property
    def migration(self) -> Migration:
        """The steps of a migration of the server's store."""
        return Migration(AsyncMigration(self._connection), self._wait)

    @property
    def access(self) -> Access:
        """The users of the server, and what they may do."""
        return Access(AsyncAccess(self._connection), self._wait)

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Producer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""

        async def make() -> ProducerCore:
            return self._users.producer(config, settings)

        return Producer(self._wait(make()), self._thread)

    def consumer(
        self,
        queues: Wanted = (),
        config: ConsumerConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> Consumer:
        """A consumer of topics (all their queues), light queues, or queues.

        `{Queue("orders", 0): 42}` says where to begin; otherwise `start` does. `settings` are
        fields of ConsumerConfig. With `reader_group` the server keeps the committed offsets; every
        consumer of a reader group reads every message. Raises NotFoundError, ClosedError.
        """
        return Consumer(self._wait(self._users.consumer(queues, config, settings)), self._thread)

    # --- calls: see Calls ------------------------------------------------------------------

    put = blocking(Calls.put)
    put_fan_out = blocking(Calls.put_fan_out)
    put_numbered = blocking(Calls.put_numbered)
    stored_batch = blocking(Calls.stored_batch)
    pull = blocking(Calls.pull)
    query = blocking(Calls.query)
    get = blocking(Calls.get)
    offsets = blocking(Calls.offsets)
    search_time = blocking(Calls.search_time)

    create_topic = blocking(Calls.create_topic)
    create_topics = blocking(Calls.create_topics)
    update_topic = blocking(Calls.update_topic)
    delete_topic = blocking(Calls.delete_topic)
    describe_topic = blocking(Calls.describe_topic)
    topic_queues = blocking(Calls.topic_queues)
    topics = blocking_iterator(Calls.topics)

    commit_offsets = blocking(Calls.commit_offsets)
    group_offsets = blocking(Calls.group_offsets)
    reset_offsets = blocking(Calls.reset_offsets)
    groups = blocking(Calls.groups)
    delete_group = blocking(Calls.delete_group)

    statistics = blocking(Calls.statistics)
    ping = blocking(Calls.ping)
    server_version = blocking(Calls.server_version)
    activity = blocking(Calls.activity)
    settings = blocking(Calls.settings)
    reload_settings = blocking(Calls.reload_settings)

    # --- end of life -----------------------------------------------------------------------

    def close(self) -> None:
        """Close producers (they deliver first) and consumers, then the connection. Repeatable."""
        if self._closed or self._thread.is_forked:
            return
        with suppress(ClosedError):  # another thread closes it as well
            self._thread.run(self._users.close())
            self._closed = True
            self._thread.run(self._connection.close())
        self._thread.close()

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            call.close()
            self._connection.check_open()
        return self._thread.run(call)
