"""The connection to a server, and the loop and threads that its calls run in.

Uses `errors`, and the generated stubs in `pb`.
"""

# First: it has a say in how grpc is imported.
import kvcq_client.transport.grpc_environment  # noqa: F401 - for what it does

# isort: split

from kvcq_client.transport.bare_locks import acquire
from kvcq_client.transport.below_grpc import STREAM_OVER, connected, write_request
from kvcq_client.transport.blocking_calls import Blocking, Runner, blocking, blocking_iterator
from kvcq_client.transport.closing import AsyncClosing, Closing
from kvcq_client.transport.connection import (
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    Backoff,
    Connection,
    is_target,
)
from kvcq_client.transport.forks import ForkedError, begin_grpc, close_in_children
from kvcq_client.transport.freed_memory import keep_freed_memory
from kvcq_client.transport.loop_thread import LoopThread, in_background
from kvcq_client.transport.paging import in_parts, paged
from kvcq_client.transport.secured import (
    ACCESS_KEY_FORM,
    ALGORITHM,
    AUTHORIZATION,
    DATE_TIME,
    TLS,
    Credentials,
    signature_of,
    stamps_of,
)
from kvcq_client.transport.statuses import from_batch_error, from_rpc, is_retried
from kvcq_client.transport.waiting import LoopWaits, ThreadWaits, Waits, finished, run_at_once

__all__ = [
    "ACCESS_KEY_FORM",
    "ALGORITHM",
    "AUTHORIZATION",
    "DATE_TIME",
    "DEFAULT_TARGET",
    "DEFAULT_TIMEOUT_S",
    "STREAM_OVER",
    "TLS",
    "AsyncClosing",
    "Backoff",
    "Blocking",
    "Closing",
    "Connection",
    "Credentials",
    "ForkedError",
    "LoopThread",
    "LoopWaits",
    "Runner",
    "ThreadWaits",
    "Waits",
    "acquire",
    "begin_grpc",
    "blocking",
    "blocking_iterator",
    "close_in_children",
    "connected",
    "finished",
    "from_batch_error",
    "from_rpc",
    "in_background",
    "in_parts",
    "is_retried",
    "is_target",
    "keep_freed_memory",
    "paged",
    "run_at_once",
    "signature_of",
    "stamps_of",
    "write_request",
]
