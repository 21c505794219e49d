"""Light queues: a message names them in a property, and stands in each besides its topic's queue.

They have no settings, and one queue each: queue 0. One exists while it has had a message.
"""

#: Their names start with this (RocketMQ MixAll.LMQ_PREFIX).
LMQ_PREFIX = "%LMQ%"


def is_light(name: str) -> bool:
    return name.startswith(LMQ_PREFIX)
