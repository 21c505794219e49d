"""Long pieces of work on the store that is served: each a job with an id, progress and an end.

A kind of job knows what is asked for, refuses what makes no sense before anything begins, and gives
the work (`kinds`). `registry` runs it in a thread, one of a kind at a time, and remembers what came
of it, also over a restart (`history`). Backfills and verifications, which a migration begins, are
among its jobs. To add a kind: a field of `StartJobRequest.kind` in
`proto/v1/jobs.proto`, a class like that in `compact`, and a place in `on_store`, which puts all of
it together.

Uses the store, and the values and errors of the server; it knows nothing of gRPC.
"""

from server.jobs.backup import BackupKind
from server.jobs.kinds import Kind, Work
from server.jobs.on_store import StoreJobs
from server.jobs.registry import Jobs

__all__ = ["BackupKind", "Jobs", "Kind", "StoreJobs", "Work"]
