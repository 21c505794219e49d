"""Offsets and ids, each its own type, so that a byte position is never taken for a queue index."""

from typing import NewType

#: Byte position counted from the start of the whole commit log.
PhysicalOffset = NewType("PhysicalOffset", int)

#: Index of a message in its queue, from 0.
QueueOffset = NewType("QueueOffset", int)

#: Number of a queue in its topic, from 0. A light queue is always queue 0.
QueueId = NewType("QueueId", int)

#: Names of light queues start with this (RocketMQ MixAll.LMQ_PREFIX).
LMQ_PREFIX = "%LMQ%"
