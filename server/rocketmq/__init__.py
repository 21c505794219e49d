"""The door for RocketMQ 5's own clients, unmodified: `apache.rocketmq.v2` over the same store.

`service` answers the calls: messages come in and go out by `messages_in` and `messages_out`,
`routes` says where queues are found, `settings` how a client behaves, `clients` who is there,
`telemetry` is the stream on which each of them is, `lite` what consumers of lite topics have apart
from others. A refusal becomes an answer: `statuses`.
"""

from server.rocketmq.pb.messaging_pb2 import DESCRIPTOR
from server.rocketmq.routes import endpoints_of
from server.rocketmq.service import RocketmqService
from server.rocketmq.statuses import refuse
from server.rocketmq.transactions import Transactions

#: What `RocketmqService` answers.
SERVICE = DESCRIPTOR.services_by_name["MessagingService"]

__all__ = ["SERVICE", "RocketmqService", "Transactions", "endpoints_of", "refuse"]
