"""Types that the client returns, made of responses."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import pytest

import kvcq_client
from kvcq_client import (
    Activity,
    Client,
    Ingested,
    Job,
    JobFinding,
    JobStatus,
    MigrationPhase,
    MigrationPlan,
    MigrationStatus,
    MigrationStep,
    Right,
    Role,
    ServerError,
    Topic,
    User,
    UserLimits,
)
from kvcq_client.migration import Difference
from kvcq_client.pb.v1 import access_pb2, jobs_pb2, kvcq_pb2, migration_pb2
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

#: Type to message. Those that stand in their fields are looked at with them.
MESSAGES: dict[type, Any] = {
    Activity: kvcq_pb2.GetActivityResponse,
    Difference: migration_pb2.Difference,
    Ingested: migration_pb2.IngestFilesResponse,
    Job: jobs_pb2.Job,
    MigrationPlan: migration_pb2.MigrationPlan,
    MigrationStatus: migration_pb2.MigrationStatus,
    MigrationStep: migration_pb2.MigrationStepResponse,
    Topic: kvcq_pb2.Topic,
    User: access_pb2.User,
}


def _missing(kind: type, descriptor: Descriptor) -> set[str]:
    """Fields of the message, and of those in it, that the type leaves out."""
    found = {field.name: field for field in descriptor.fields}
    missing = set(found)
    for name, given in get_type_hints(kind, include_extras=True).items():
        hint, wire_name = given, name
        if get_origin(hint) is Annotated:
            hint, (wire_name,) = get_args(hint)
        missing.discard(wire_name)
        message = found[wire_name].message_type
        if message is None or message.GetOptions().map_entry:
            continue
        [inner] = [
            one for one in (hint, *get_args(hint)) if is_dataclass(one) or hasattr(one, "_fields")
        ]
        missing |= {f"{wire_name}.{one}" for one in _missing(inner, message)}
    return missing


@pytest.mark.parametrize("kind", MESSAGES)
def test_no_field_of_a_response_is_left_out(kind: type) -> None:
    assert _missing(kind, MESSAGES[kind].DESCRIPTOR) == set()


def test_what_is_absent_is_none() -> None:
    job = from_wire(Job, jobs_pb2.Job(job_id="a1", status=jobs_pb2.JOB_STATUS_RUNNING))
    assert (job.total, job.remaining_s, job.ended_ms, job.error) == (None, None, None, None)
    assert from_wire(MigrationStatus, migration_pb2.MigrationStatus()).phase is None
    user = from_wire(User, access_pb2.User(user="app", limits=access_pb2.UserLimits(calls=5)))
    assert user.limits == UserLimits(calls=5)
    assert user.limits.connections is None


def test_zero_of_an_optional_field_is_zero() -> None:
    message = jobs_pb2.Job(status=jobs_pb2.JOB_STATUS_RUNNING, remaining_s=0.0)
    message.findings.add(fault="damaged record", queue_offset=0)
    job = from_wire(Job, message)
    assert job.remaining_s == 0.0
    assert (job.findings[0].queue_offset, job.findings[0].physical_offset) == (0, None)


def test_enums_nested_values_and_maps() -> None:
    message = jobs_pb2.Job(job_id="a1", kind="scrub", status=jobs_pb2.JOB_STATUS_DONE)
    message.numbers["units"] = 7
    message.arguments["topic"] = "orders"
    message.findings.add(fault="missing unit", topic="orders", queue_id=3, count=2)
    job = from_wire(Job, message)
    assert (job.status, job.numbers, job.arguments) == (
        JobStatus.DONE,
        {"units": 7},
        {"topic": "orders"},
    )
    assert job.findings == (JobFinding("missing unit", "", "orders", 3, None, None, "", "", 2),)
    status = migration_pb2.MigrationStatus(phase=migration_pb2.MIGRATION_PHASE_DOUBLE_WRITE)
    assert from_wire(MigrationStatus, status).phase is MigrationPhase.DOUBLE_WRITE
    user = access_pb2.User(user="app", admin=True)
    user.rights.add(role=access_pb2.ROLE_SUBSCRIBE, group="g*")
    found = from_wire(User, user)
    assert (found.name, found.is_admin) == ("app", True)
    assert found.rights == (Right(Role.SUBSCRIBE, group="g*"),)


def test_an_enum_value_of_a_newer_server_is_an_error_that_says_so() -> None:
    with pytest.raises(ServerError, match="update kvcq-client"):
        from_wire(Job, jobs_pb2.Job(status=99))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (Right, {"role": Role.ADMIN}, "topic, group"),
        (Right, {"role": Role.ADMIN, "topic": "a", "group": "b"}, "topic, group"),
        (Right, {"role": "admin", "topic": "a"}, "role"),
        (Right, {"role": Role.ADMIN, "group": 5}, "group"),
        (UserLimits, {"calls": 0}, "calls: 0 is below 1; use None for no limit"),
        (UserLimits, {"bytes_per_s": 1.5}, "bytes_per_s"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    kind: type, wrong: dict[str, object], says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        kind(**wrong)


def test_no_public_call_returns_a_message() -> None:
    for face in (Client, kvcq_client.Jobs, kvcq_client.Migration, kvcq_client.Access):
        for name, member in vars(face).items():
            returned = str(getattr(member, "__annotations__", {}).get("return", ""))
            assert "pb." not in returned, f"{face.__name__}.{name}"


@pytest.mark.parametrize("kind", [one for one in MESSAGES if is_dataclass(one)])
def test_the_types_are_frozen_and_without_a_dict(kind: Any) -> None:  # noqa: ANN401 - a dataclass
    assert kind.__doc__
    assert "__slots__" in vars(kind)
    assert kind.__dataclass_params__.frozen
    assert getattr(kvcq_client, kind.__name__) is kind
