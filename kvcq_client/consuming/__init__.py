"""Consumers: many queues are fetched over one stream, and returned in batches of one queue.

Uses `calls`, `format` and `transport`. `subscription` fetches, `core` decodes and keeps the
positions, `async_consumer` and `consumer` return messages.
"""

from kvcq_client.consuming.async_consumer import AsyncConsumer
from kvcq_client.consuming.config import ConsumerConfig, ConsumerSettings
from kvcq_client.consuming.consumer import Consumer
from kvcq_client.consuming.core import ConsumerCore, Wanted

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerConfig",
    "ConsumerCore",
    "ConsumerSettings",
    "Wanted",
]
