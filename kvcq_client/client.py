"""The client, for blocking code: scripts, threads, notebooks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client.access import Access
from kvcq_client.async_client import AsyncClient
from kvcq_client.consuming import Consumer
from kvcq_client.errors import ClosedError
from kvcq_client.jobs import Jobs
from kvcq_client.migration import Migration
from kvcq_client.producing import Producer
from kvcq_client.receiving import LiteReceiver, Receiver
from kvcq_client.shared_groups import LiteSettings
from kvcq_client.transacting import Transaction, TransactionChecks
from kvcq_client.transport import (
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    Blocking,
    Closing,
    LoopThread,
    begin_grpc,
    blocking,
    blocking_iterator,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from typing import Unpack

    from kvcq_client.consuming import ConsumerConfig, ConsumerSettings, Wanted
    from kvcq_client.producing import ProducerConfig, ProducerCore, ProducerSettings
    from kvcq_client.receiving import LiteCore, ReceiverConfig, ReceiverCore, ReceiverSettings
    from kvcq_client.transacting import AsyncTransactionChecks, Check
    from kvcq_client.transport import TLS, Credentials
    from kvcq_client.values import Message

R = TypeVar("R")


class Client(Blocking[AsyncClient], Closing):
    """A connection to one server, and every call that it offers.

    `with Client("127.0.0.1:8081") as client:` — nothing is sent before the first call. Every call
    has a deadline, `timeout_s` unless it is given its own. Until then it is retried while the
    server cannot be reached or is not ready. Thread-safe. The client runs in a thread of its own,
    so it also works where an event loop is running, as in a notebook. Ctrl-C cancels the call under
    way, and is raised once the call has ended. In a process that was forked after the client was
    made, every call raises ForkedError.
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

        async def connect() -> AsyncClient:
            return AsyncClient(
                target, timeout_s=timeout_s, options=options, tls=tls, credentials=credentials
            )

        try:
            client = self._thread.run(connect())
        except BaseException:
            self._thread.close()
            raise
        super().__init__(client, self._thread.run)
        self._connection = client._connection  # noqa: SLF001 - the other face of the same class
        self._endpoints = client._endpoints  # noqa: SLF001 - likewise

    @property
    def target(self) -> str:
        """Host and port of the server."""
        return self._calls.target

    @property
    def jobs(self) -> Jobs:
        """Long pieces of work on the server."""
        return Jobs(self._calls.jobs, self._wait)

    @property
    def migration(self) -> Migration:
        """The steps of a migration of the server's store."""
        return Migration(self._calls.migration, self._wait)

    @property
    def access(self) -> Access:
        """The users of the server, and their rights."""
        return Access(self._calls.access, self._wait)

    def producer(
        self,
        config: ProducerConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Producer:
        """A producer; `settings` are fields of ProducerConfig. Raises ClosedError."""

        async def make() -> ProducerCore:
            return self._endpoints.producer(config, settings)

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
        core = self._wait(self._endpoints.consumer(queues, config, settings))
        return Consumer(core, self._thread)

    def receiver(
        self,
        topics: str | Iterable[str],
        config: ReceiverConfig | None = None,
        **settings: Unpack[ReceiverSettings],
    ) -> Receiver:
        """A receiver of topics, or light queues, for a shared group: `receiver("jobs", group="g")`.

        The group's members share the messages: each is delivered to one of them, until it is
        acknowledged. `settings` are fields of ReceiverConfig. Receiving starts with the first read.
        Raises ClosedError.
        """

        async def make() -> ReceiverCore:
            return self._endpoints.receiver(topics, config, settings)

        return Receiver(self._wait(make()), self._thread)

    def lite_receiver(
        self,
        parent: str,
        config: ReceiverConfig | None = None,
        *,
        wildcard: bool = False,
        exclusive: bool = False,
        in_order: bool = True,
        **settings: Unpack[ReceiverSettings],
    ) -> LiteReceiver:
        """A receiver of lite topics of a parent, for a shared group. Subscribe it to lite topics.

        A missing group is created. By default it is in order: one receiver at a time works on a
        lite topic; `in_order=False` allows several. With `exclusive`, a lite topic belongs to the
        receiver that subscribed last. In a `wildcard` group the receivers share all lite topics of
        the parent. If the group exists and is not what `exclusive` or `wildcard` asks for, `take`
        and `subscribe` raise NotPossibleError. Everything else is as in `receiver`.
        """
        kind = LiteSettings(parent, exclusive=exclusive, wildcard=wildcard)

        async def make() -> LiteCore:
            return self._endpoints.lite_receiver(kind, config, settings, in_order=in_order)

        return LiteReceiver(self._wait(make()), self._thread)

    def transaction(self, message: Message, *, group: str, immunity_s: float = 0.0) -> Transaction:
        """A transaction of the message, as a block: `with client.transaction(message, group="g"):`.

        The message is delivered when the block ends, and dropped if it raises. `group`,
        `immunity_s`: see `begin_transaction`.
        """
        made = self._calls.transaction(message, group=group, immunity_s=immunity_s)
        return Transaction(made, self._wait)

    def answer_checks(self, group: str, check: Check) -> TransactionChecks:
        """Answer the server's checks of undecided transactions of the group.

        `check` takes a TransactionCheck and returns True to commit it, False to roll it back, None
        to be asked again. It may be a coroutine function; otherwise it is called in threads. If it
        raises, the error is logged, and the server asks again. Checks are answered until the
        returned object, or the client, is closed. Raises ClosedError.
        """

        async def make() -> AsyncTransactionChecks:
            return self._calls.answer_checks(group, check)

        return TransactionChecks(self._wait(make()), self._thread.run)

    # --- calls: see AsyncClient ------------------------------------------------------------

    put = blocking(AsyncClient.put)
    put_fan_out = blocking(AsyncClient.put_fan_out)
    put_numbered = blocking(AsyncClient.put_numbered)
    stored_batch = blocking(AsyncClient.stored_batch)
    put_delayed = blocking(AsyncClient.put_delayed)
    put_delayed_many = blocking(AsyncClient.put_delayed_many)
    recall = blocking(AsyncClient.recall)
    delayed = blocking(AsyncClient.delayed)
    delayed_pending = blocking(AsyncClient.delayed_pending)
    trace = blocking(AsyncClient.trace)
    pull = blocking(AsyncClient.pull)
    query = blocking(AsyncClient.query)
    get = blocking(AsyncClient.get)
    offsets = blocking(AsyncClient.offsets)
    search_time = blocking(AsyncClient.search_time)

    create_topic = blocking(AsyncClient.create_topic)
    create_topics = blocking(AsyncClient.create_topics)
    update_topic = blocking(AsyncClient.update_topic)
    delete_topic = blocking(AsyncClient.delete_topic)
    describe_topic = blocking(AsyncClient.describe_topic)
    topic_queues = blocking(AsyncClient.topic_queues)
    topics = blocking_iterator(AsyncClient.topics)

    commit_offsets = blocking(AsyncClient.commit_offsets)
    group_offsets = blocking(AsyncClient.group_offsets)
    reset_offsets = blocking(AsyncClient.reset_offsets)
    groups = blocking(AsyncClient.groups)
    delete_group = blocking(AsyncClient.delete_group)

    receive = blocking(AsyncClient.receive)
    acknowledge = blocking(AsyncClient.acknowledge)
    change_invisible = blocking(AsyncClient.change_invisible)
    give_back = blocking(AsyncClient.give_back)
    create_group = blocking(AsyncClient.create_group)
    update_group = blocking(AsyncClient.update_group)
    describe_group = blocking(AsyncClient.describe_group)
    reset_group = blocking(AsyncClient.reset_group)
    redrive = blocking(AsyncClient.redrive)
    dead_letters = blocking(AsyncClient.dead_letters)
    delete_dead_letters = blocking(AsyncClient.delete_dead_letters)
    create_lite_parent = blocking(AsyncClient.create_lite_parent)
    lite_expiry_s = blocking(AsyncClient.lite_expiry_s)
    list_lite_topics = blocking_iterator(AsyncClient.list_lite_topics)
    delete_lite_topics = blocking(AsyncClient.delete_lite_topics)

    begin_transaction = blocking(AsyncClient.begin_transaction)
    commit_transaction = blocking(AsyncClient.commit_transaction)
    roll_back_transaction = blocking(AsyncClient.roll_back_transaction)
    open_transactions = blocking(AsyncClient.open_transactions)

    statistics = blocking(AsyncClient.statistics)
    ping = blocking(AsyncClient.ping)
    server_version = blocking(AsyncClient.server_version)
    activity = blocking(AsyncClient.activity)
    settings = blocking(AsyncClient.settings)
    reload_settings = blocking(AsyncClient.reload_settings)

    # --- end of life -----------------------------------------------------------------------

    def close(self) -> None:
        """Close producers (they deliver first), consumers and receivers, then the connection.

        Repeatable.
        """
        if self._closed or self._thread.is_forked:
            return
        with suppress(ClosedError):  # another thread closes it as well
            self._thread.run(self._calls.close())
            self._closed = True
        self._thread.close()

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            call.close()
            self._connection.check_open()
        return self._thread.run(call)
