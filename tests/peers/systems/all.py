"""The systems, ours first."""

from __future__ import annotations

from tests.peers.systems import kvcq, nats, redis, rocketmq

SYSTEMS = [kvcq.SYSTEM, redis.SYSTEM, nats.SYSTEM, rocketmq.FILES, rocketmq.ROCKSDB, rocketmq.PROXY]
