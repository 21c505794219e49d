"""RocketMQ 5's own clients, unmodified, from their registries: what they do with this server."""
