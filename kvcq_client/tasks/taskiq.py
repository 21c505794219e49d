"""A broker for taskiq: kvcq-client[taskiq].

>>> from kvcq_client.tasks.taskiq import KvcqBroker
>>> broker = KvcqBroker("127.0.0.1:8081", topic="tasks", group="workers")
>>> @broker.task
... async def send_invoice(number: int) -> None: ...
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from taskiq import AckableMessage, AsyncBroker

from kvcq_client.async_client import AsyncClient
from kvcq_client.errors import AlreadyExistsError, PermissionDeniedError
from kvcq_client.transport import DEFAULT_TARGET

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Unpack

    from taskiq import BrokerMessage

    from kvcq_client.producing import AsyncProducer
    from kvcq_client.receiving import AsyncReceiver, Delivery, ReceiverSettings
    from kvcq_client.transport import TLS, Credentials


class KvcqBroker(AsyncBroker):
    """Tasks are messages of a topic; workers are members of a shared group.

    A task is acknowledged when taskiq says so: by default once its result is saved. If its worker
    dies before, another one gets it. While it runs, it is renewed. Labels: `delay`, in seconds,
    up to 40 days, begins it later; tasks with the same `ordering_key` go to one queue. The topic is
    made if it does not exist. `settings` are fields of ReceiverConfig, such as `group`, "tasks" by
    default.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        topic: str = "tasks",
        tls: TLS | None = None,
        credentials: Credentials | None = None,
        task_id_generator: Callable[[], str] | None = None,
        **settings: Unpack[ReceiverSettings],
    ) -> None:
        super().__init__(task_id_generator=task_id_generator)
        self._target = target
        self._topic = topic
        self._security = (tls, credentials)
        settings.setdefault("group", "tasks")
        self._settings = settings
        self._client: AsyncClient | None = None
        self._producer: AsyncProducer | None = None
        self._receiver: AsyncReceiver | None = None

    async def startup(self) -> None:
        """Connect. Raises KvcqError."""
        await super().startup()
        tls, credentials = self._security
        self._client = AsyncClient(self._target, tls=tls, credentials=credentials)
        self._producer = self._client.producer(linger_ms=1.0)
        with suppress(AlreadyExistsError, PermissionDeniedError):
            await self._client.create_topic(self._topic)

    async def shutdown(self) -> None:
        """Wait for acknowledgements, give back what is not done, and disconnect."""
        if self._client is not None:
            await self._client.close()
            self._client = self._producer = self._receiver = None
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Store the message of a task, once. Raises KvcqError."""
        if self._producer is None:
            raise RuntimeError("the broker was not started: await broker.startup()")
        delay_s = float(message.labels.get("delay") or 0.0)
        ordering_key = str(message.labels.get("ordering_key") or "")
        if delay_s > 0:
            assert self._client is not None, "it was started"
            await self._client.put_delayed(
                self._topic,
                message.message,
                deliver_at=timedelta(seconds=delay_s),
                ordering_key=ordering_key,
            )
        else:
            await self._producer.put(self._topic, message.message, ordering_key=ordering_key)

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Yield the messages of tasks. They are given back by `shutdown`, not
        when this ends: tasks may still run then."""
        if self._client is None:
            raise RuntimeError("the broker was not started: await broker.startup()")
        if self._receiver is None:
            self._receiver = self._client.receiver(self._topic, **self._settings)
        async for delivery in self._receiver:
            delivery.renew()
            yield AckableMessage(data=delivery.body, ack=_acknowledging(delivery))


def _acknowledging(delivery: Delivery) -> Callable[[], None]:
    def acknowledge() -> None:
        delivery.acknowledge(with_next=True)

    return acknowledge
