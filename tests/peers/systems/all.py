"""The systems: ours, what its stack and its store can do at all, and its peers."""

from __future__ import annotations

from tests.peers.systems import bare_stack, bare_store, kvcq, nats, redis, rocketmq

SYSTEMS = [
    kvcq.SYSTEM,
    bare_stack.SYSTEM,
    bare_store.SYSTEM,
    bare_stack.OVER_STORE,
    redis.SYSTEM,
    nats.SYSTEM,
    rocketmq.FILES,
    rocketmq.ROCKSDB,
    rocketmq.PROXY,
]
