"""The targets of a scenario: a server, started by the run or already running, or a store in this
process.

Uses `machine` and `errors`, the client, and, for a store in this process, the whole store.
"""

from kvcq_bench.targets.embedded import EmbeddedTarget
from kvcq_bench.targets.file_store import open_file_store
from kvcq_bench.targets.remote import OwnServer, RemoteTarget
from kvcq_bench.targets.target import Target, Writer

__all__ = ["EmbeddedTarget", "OwnServer", "RemoteTarget", "Target", "Writer", "open_file_store"]
