"""A transport for kombu, so that Celery runs on kvcq: kvcq-client[celery].

>>> import kvcq_client.tasks.kombu  # makes kvcq:// known
>>> app = Celery(broker="kvcq://127.0.0.1:8081")

A queue of Celery is a topic, and its workers are a shared group of the same name; transport options
are fields of ReceiverConfig, and `group`, `tls`, `credentials`. With `task_acks_late` the task of a
worker that dies is done by another one; while it runs, and while it waits in the worker, it is
renewed. `countdown` and `eta` wait in the store, up to 40 days. There is no fanout, so remote
control and events do not work. Use the pool `threads` or `solo`: gRPC does not work in forked
children, so tasks there could put no others.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from queue import Empty
from typing import TYPE_CHECKING, Any

from kombu.transport import TRANSPORT_ALIASES, virtual

from kvcq_client.client import Client
from kvcq_client.errors import (
    AlreadyExistsError,
    KvcqError,
    NotFoundError,
    PermissionDeniedError,
    RetryableError,
)

if TYPE_CHECKING:
    from kvcq_client.receiving import Delivery, Receiver

logger = logging.getLogger(__name__)

TRANSPORT_ALIASES["kvcq"] = "kvcq_client.tasks.kombu:Transport"

#: How long a look at one queue waits for a message.
_LOOK_S = 0.05
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9|_%-]")


class QoS(virtual.QoS):
    """Tracks messages that workers have not acknowledged."""

    def ack(self, delivery_tag: str) -> None:
        delivery = self.channel.deliveries.pop(delivery_tag, None)
        if delivery is not None:
            delivery.acknowledge(with_next=True)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        delivery = self.channel.deliveries.pop(delivery_tag, None)
        if delivery is not None:
            (delivery.give_back() if requeue else delivery.acknowledge(with_next=True))
        super().ack(delivery_tag)

    def restore_unacked(self) -> None:
        """Give back what is not acknowledged. kombu would put it a second time."""
        for delivery_tag in [*self.channel.deliveries]:
            self.reject(delivery_tag, requeue=True)


class Channel(virtual.Channel):
    """Topics as queues."""

    QoS = QoS
    #: The receiver gives unacknowledged messages back.
    do_restore = False

    def __init__(self, connection: Transport, **options: Any) -> None:  # noqa: ANN401 - kombu's
        super().__init__(connection, **options)
        self._server = connection.server
        self._group = connection.settings.get("group")
        self._settings = {**connection.settings}
        self._settings.pop("group", None)
        self._receivers: dict[str, Receiver] = {}
        #: Of queues that are no longer consumed: what they handed out is not acknowledged yet.
        self._stopped: list[Receiver] = []
        self._no_ack: set[str] = set()
        #: Unacknowledged messages by delivery tag.
        self.deliveries: dict[str, Delivery] = {}

    def basic_consume(self, queue: str, no_ack: bool, *rest: Any, **options: Any) -> Any:  # noqa: ANN401, FBT001 - kombu's
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        return super().basic_consume(queue, no_ack, *rest, **options)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Give back what was received ahead, unless another consumer of the channel takes it."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue not in self._active_queues:
            self._no_ack.discard(queue)
        if queue in self._receivers and queue not in self._active_queues:
            receiver = self._receivers.pop(queue)
            if self.deliveries:
                receiver.stop()
                self._stopped.append(receiver)
            else:
                receiver.close()

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:  # noqa: ANN401, FBT001, FBT002 - kombu's
        message = super().basic_get(queue, no_ack=no_ack, **options)
        if message is not None and no_ack:
            delivery = self.deliveries.pop(message.delivery_tag, None)
            if delivery is not None:
                delivery.acknowledge(with_next=True)
        return message

    def close(self) -> None:
        """Give back what is not acknowledged."""
        receivers = [*self._receivers.values(), *self._stopped]
        self._receivers, self._stopped = {}, []
        for receiver in receivers:
            with suppress(KvcqError):
                receiver.close()
        super().close()

    def _new_queue(self, queue: str, **_: object) -> None:
        with suppress(AlreadyExistsError, PermissionDeniedError):
            self._server.create_topic(topic_of(queue))

    def _has_queue(self, queue: str, **_: object) -> bool:
        try:
            self._server.describe_topic(topic_of(queue))
        except NotFoundError:
            return False
        return True

    def _put(self, queue: str, message: dict[str, Any], **_: object) -> None:
        topic, body = topic_of(queue), json.dumps(message).encode()
        begins = _eta(message)
        if begins is not None and begins > datetime.now(UTC):
            self._server.put_delayed(topic, body, deliver_at=begins)
        else:
            self._server.put(topic, body)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        taken = self._receiver_of(queue).take(1, timeout_s=_LOOK_S)
        if not taken:
            raise Empty
        [delivery] = taken
        try:
            message: dict[str, Any] = json.loads(delivery.body)
            properties: dict[str, Any] = message["properties"]
        except (ValueError, LookupError, TypeError):
            # Raised, it would end each worker in turn; so it becomes a dead letter.
            logger.error("%r is no message of kombu, and is given back", delivery)
            delivery.give_back()
            raise Empty from None
        if queue in self._no_ack:
            delivery.acknowledge(with_next=True)
        else:
            delivery.renew()
            # The message's own tag would be the same at its next delivery.
            properties["delivery_tag"] = delivery.received.handle
            self.deliveries[delivery.received.handle] = delivery
        return message

    def _size(self, queue: str) -> int:
        """Messages that workers have not done; also before the first worker."""
        topic = topic_of(queue)
        with suppress(NotFoundError):
            group = self._server.describe_group(self._group or topic)
            lags = [one.lag for one in group.queues if one.topic == topic]
            if lags or (group.settings is not None and group.settings.from_latest):
                return sum(lags)
        with suppress(NotFoundError):
            _, queues = self._server.topic_queues(topic)
            return sum(one.max_offset - one.min_offset for one in queues)
        return 0

    def _purge(self, queue: str) -> int:
        size = self._size(queue)
        topic = topic_of(queue)
        group = self._group or topic
        if size:
            # The first worker would make the group, and begin with what is to be purged.
            with suppress(AlreadyExistsError, PermissionDeniedError):
                self._server.create_group(group)
            with suppress(NotFoundError):
                self._server.reset_group(group, topic, "latest")
        return size

    def _delete(self, queue: str, *_: object, **__: object) -> None:
        with suppress(NotFoundError):
            self._server.delete_topic(topic_of(queue))

    def _receiver_of(self, queue: str) -> Receiver:
        if queue not in self._receivers:
            topic = topic_of(queue)
            self._receivers[queue] = self._server.receiver(
                topic, group=self._group or topic, **self._settings
            )
        return self._receivers[queue]


class Transport(virtual.Transport):
    """A connection to a server."""

    Channel = Channel
    default_port = 8081
    #: Looks for messages wait themselves.
    polling_interval = None
    driver_type = "kvcq"
    driver_name = "kvcq"
    connection_errors = (*virtual.Transport.connection_errors, RetryableError)
    channel_errors = (*virtual.Transport.channel_errors, KvcqError)

    def __init__(self, client: Any, **options: Any) -> None:  # noqa: ANN401 - kombu's
        super().__init__(client, **options)
        self.settings = dict(client.transport_options or {})
        self._security = {name: self.settings.pop(name, None) for name in ("tls", "credentials")}
        self._server: Client | None = None

    @property
    def server(self) -> Client:
        """The client; it is made when it is first needed."""
        if self._server is None:
            host, port = self.client.hostname or "127.0.0.1", self.client.port or self.default_port
            host = f"[{host}]" if ":" in host else host  # kombu takes the brackets off
            self._server = Client(f"{host}:{port}", **self._security)
        return self._server

    def close_connection(self, connection: Any) -> None:  # noqa: ANN401 - kombu's
        super().close_connection(connection)
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def driver_version(self) -> str:
        return version("kvcq-client")


def topic_of(queue: str) -> str:
    """The topic of a queue; characters that topics may not have become `-`."""
    return _NOT_IN_TOPICS.sub("-", queue)


def _eta(message: dict[str, Any]) -> datetime | None:
    """When the task is to begin; None: at once."""
    eta = message.get("headers", {}).get("eta")
    if not isinstance(eta, str):
        return None
    begins = datetime.fromisoformat(eta)
    return begins if begins.tzinfo is not None else begins.replace(tzinfo=UTC)
