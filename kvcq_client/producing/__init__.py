"""Producers: messages are gathered into batches, and each batch is delivered once, in order.

Uses `format` and `transport`. The way of a message: `producer` or `async_producer`, `accumulator`,
`delivery`; its outcome comes back through `batch`.
"""

from kvcq_client.producing.async_producer import AsyncProducer
from kvcq_client.producing.batch import Sending, SendingMany
from kvcq_client.producing.config import ProducerConfig, ProducerSettings
from kvcq_client.producing.core import ProducerCore
from kvcq_client.producing.producer import Producer

__all__ = [
    "AsyncProducer",
    "Producer",
    "ProducerConfig",
    "ProducerCore",
    "ProducerSettings",
    "Sending",
    "SendingMany",
]
