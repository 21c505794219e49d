"""Serves RocketMQ 5's own clients, unmodified: `apache.rocketmq.v2` over the same store.

`service` answers the calls. `messages_in` and `messages_out` convert messages, `routes` and
`settings` build what clients ask for, `clients` tracks connected clients, `telemetry` serves each
client's stream, `lite` serves consumers of lite topics, `statuses` turns errors into responses.
"""

from server.rocketmq.pb.messaging_pb2 import DESCRIPTOR
from server.rocketmq.routes import endpoints_of
from server.rocketmq.service import RocketmqService
from server.rocketmq.statuses import refuse
from server.rocketmq.transactions import Transactions

#: Descriptor of the service that `RocketmqService` implements.
SERVICE = DESCRIPTOR.services_by_name["MessagingService"]

__all__ = ["SERVICE", "RocketmqService", "Transactions", "endpoints_of", "refuse"]
