"""Jobs: long work on the served store, each with an id, progress and an end.

A kind of job validates its request, rejects nonsense before anything starts, and returns the work
(`kinds`). `registry` runs it in a thread, one of a kind at a time, and remembers the result across
restarts (`history`). Backfills and verifications of a migration are among its jobs. To add a kind:
a field of `StartJobRequest.kind` in `proto/v1/jobs.proto`, a class like the one in `compact`, and a
line in `on_store`, which assembles all of them.

Uses the store, and the values and errors of the server; it knows nothing of gRPC.
"""

from server.jobs.backup import BackupKind
from server.jobs.kinds import Kind, Work
from server.jobs.on_store import StoreJobs
from server.jobs.registry import Jobs

__all__ = ["BackupKind", "Jobs", "Kind", "StoreJobs", "Work"]
