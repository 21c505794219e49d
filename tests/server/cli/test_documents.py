"""Documents of `--json`: their keys and values are an interface to scripts."""

from __future__ import annotations

from kvcq_client import Job, MigrationPlan, MigrationStatus, User
from kvcq_client.pb.v1 import access_pb2, jobs_pb2, migration_pb2
from kvcq_client.wire import from_wire
from server.cli.access import document
from server.cli.migration.plain import plain
from server.cli.online.jobs import _document


def test_of_a_job_that_has_nothing_yet() -> None:
    message = jobs_pb2.Job(job_id="a1", kind="scrub", status=jobs_pb2.JOB_STATUS_RUNNING)
    message.findings.add(fault="damaged record", place="commitlog/0", physical_offset=7, count=1)
    assert _document(from_wire(Job, message), findings=True) == {
        "jobId": "a1",
        "kind": "scrub",
        "scheduled": False,
        "step": "",
        "done": 0,
        "total": 0,
        "unit": "",
        "percent": 0.0,
        "elapsedS": 0.0,
        "startedMs": 0,
        "endedMs": 0,
        "summary": "",
        "error": "",
        "status": "running",
        "arguments": {},
        "remainingS": None,
        "numbers": {},
        "findings": [
            {
                "fault": "damaged record",
                "place": "commitlog/0",
                "topic": "",
                "queueId": 0,
                "detail": "",
                "remedy": "",
                "count": 1,
                "queueOffset": None,
                "physicalOffset": 7,
            }
        ],
    }


def test_of_a_user() -> None:
    message = access_pb2.User(user="app", created_ms=5)
    message.limits.bytes_per_s = 100
    message.rights.add(role=access_pb2.ROLE_PUBLISH, topic="orders*")
    assert document(from_wire(User, message)) == {
        "user": "app",
        "admin": False,
        "createdMs": 5,
        "limits": {"connections": 0, "calls": 0, "bytesPerS": 100, "messagesPerS": 0},
        "rights": [{"role": "publish", "kind": "topic", "pattern": "orders*"}],
    }


def test_of_a_migration_each_field_by_its_name_in_the_api() -> None:
    for kind, message in (
        (MigrationStatus, migration_pb2.MigrationStatus),
        (MigrationPlan, migration_pb2.MigrationPlan),
    ):
        found = plain(from_wire(kind, message()))
        assert list(found) == [field.json_name for field in message.DESCRIPTOR.fields]
    status = migration_pb2.MigrationStatus(phase=migration_pb2.MIGRATION_PHASE_DOUBLE_WRITE)
    status.history.add(time_ms=3, event="began")
    found = plain(from_wire(MigrationStatus, status))
    assert (found["phase"], found["pendingPhase"], found["verified"]) == (
        "DOUBLE_WRITE",
        None,
        None,
    )
    assert found["history"] == [{"timeMs": 3, "event": "began"}]
    assert (found["stopped"], found["logEndOffset"], found["sides"]) == (None, 0, [])
