"""Producers: messages are collected into batches, and each batch is stored once, in order.

Uses `format` and `transport`. A message passes `producer` or `async_producer`, `accumulator` and
`delivery`; its result comes back through `batch`.
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
