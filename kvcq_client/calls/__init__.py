"""Calls with one request and one response, by subject.

Uses `arguments`, `format`, `transport` and `wire`. Every call raises KvcqError.
"""

from kvcq_client.calls.dead_letters import DeadLetterCalls
from kvcq_client.calls.groups import GroupCalls
from kvcq_client.calls.lite_topics import NAMES_A_CALL, AtTime, LiteStart, LiteTopicCalls
from kvcq_client.calls.messages import MessageCalls
from kvcq_client.calls.server import ServerCalls
from kvcq_client.calls.shared_groups import (
    HANDLES_A_CALL,
    HANDLES_OF_A_RECEIVE,
    SharedGroupCalls,
)
from kvcq_client.calls.timers import TimerCalls
from kvcq_client.calls.topics import TopicCalls
from kvcq_client.calls.transactions import TransactionCalls

__all__ = [
    "HANDLES_A_CALL",
    "HANDLES_OF_A_RECEIVE",
    "NAMES_A_CALL",
    "AtTime",
    "Calls",
    "DeadLetterCalls",
    "GroupCalls",
    "LiteStart",
    "LiteTopicCalls",
    "MessageCalls",
    "ServerCalls",
    "SharedGroupCalls",
    "TimerCalls",
    "TopicCalls",
    "TransactionCalls",
]


class Calls(
    MessageCalls,
    TimerCalls,
    TopicCalls,
    GroupCalls,
    SharedGroupCalls,
    DeadLetterCalls,
    TransactionCalls,
    LiteTopicCalls,
    ServerCalls,
):
    """All calls of a client, in the event loop of its connection."""
