"""The peers: Redis Streams, NATS JetStream, RocketMQ, each as its own client has it.

A file of `systems/` starts a server and connects a client; what the clients do stands in
`tests/benchmarks/works`, beside ours. RocketMQ's own client is a Java program, which knows the
works by their methods. What is not installed is left out, with a line that says how to install it.
"""

from tests.peers.systems import nats, redis, rocketmq

SYSTEMS = [redis.SYSTEM, nats.SYSTEM, *rocketmq.SYSTEMS]
