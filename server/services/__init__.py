"""The gRPC services: each method decodes, calls the store, and encodes.

Everything else is in `puts` and `reads`. A service gets the two or three things that it uses; those
of the store are created once it is open.
"""

from server.services.access import AccessService
from server.services.admin import AdminService
from server.services.calls import CallService
from server.services.group import GroupService
from server.services.health import HealthService
from server.services.jobs import JobService
from server.services.lite_topic import LiteTopicService
from server.services.message import MessageService
from server.services.migration import MigrationService
from server.services.shared_group import SharedGroupService
from server.services.timers import TimerService
from server.services.topic import TopicService
from server.services.transactions import TransactionService

__all__ = [
    "AccessService",
    "AdminService",
    "CallService",
    "GroupService",
    "HealthService",
    "JobService",
    "LiteTopicService",
    "MessageService",
    "MigrationService",
    "SharedGroupService",
    "TimerService",
    "TopicService",
    "TransactionService",
]
