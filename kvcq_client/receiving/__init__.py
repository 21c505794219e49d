"""Receivers: messages of shared groups, received ahead, renewed, and acknowledged in batches.

Uses `calls`, `format` and `transport`. `core` receives, `settlements` acknowledges and gives back,
`deliveries` has what users hold; `async_receiver` and `receiver` hand out, and run handlers.
"""

from kvcq_client.receiving.async_receiver import AsyncReceiver
from kvcq_client.receiving.config import ReceiverConfig, ReceiverSettings
from kvcq_client.receiving.core import ReceiverCore, topics_of
from kvcq_client.receiving.deliveries import Delivery, RetryLater, Settlement
from kvcq_client.receiving.lite import AsyncLiteReceiver, LiteCore, LiteReceiver
from kvcq_client.receiving.receiver import Receiver

__all__ = [
    "AsyncLiteReceiver",
    "AsyncReceiver",
    "Delivery",
    "LiteCore",
    "LiteReceiver",
    "Receiver",
    "ReceiverConfig",
    "ReceiverCore",
    "ReceiverSettings",
    "RetryLater",
    "Settlement",
    "topics_of",
]
