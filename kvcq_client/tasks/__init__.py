"""Brokers of Python's task queues on shared groups: taskiq and Celery (kombu).

`taskiq` needs the extra kvcq-client[taskiq], `kombu` the extra kvcq-client[celery]. A task is a
message; its worker is a member of a shared group, acknowledges it, and renews it meanwhile. Uses
the public client only.
"""
