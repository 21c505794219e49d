"""The targets of a scenario: a server that the run starts, a server that is already running, or a
store in this process."""

from kvcq_bench.targets.embedded import EmbeddedTarget
from kvcq_bench.targets.file_store import open_file_store
from kvcq_bench.targets.remote import OwnServer, RemoteTarget
from kvcq_bench.targets.target import Target, Writer

__all__ = ["EmbeddedTarget", "OwnServer", "RemoteTarget", "Target", "Writer", "open_file_store"]
