"""Converts values of the migration to protobuf and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from kvcq_client.pb.v1 import migration_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcq.inspect import Finding
    from migration.migrator import MigrationStatus
    from migration.plan import Plan
    from migration.state import Phase

M = TypeVar("M", bound=Message)


def status_out(status: MigrationStatus, root: Path | None = None) -> pb.MigrationStatus:
    """`root`: directory of a stopped store, for the suggested commands."""
    found = pb.MigrationStatus(
        verify_broken_off=status.verify_broken_off,
        log_start_offset=status.log_start_offset,
        log_end_offset=status.log_end_offset,
        dispatched_offset=status.dispatched_offset,
        sides=[_filled(pb.MigrationSide, side) for side in status.sides],
        running_job_id=status.running_job_id,
        next_command=status.next_step.command(root),
        hint=status.next_step.sentence(root),
    )
    state = status.state
    if state is None:
        return found
    found.phase = _phase(state.phase)
    found.stopped = state.stopped
    found.history.extend(pb.MigrationEvent(time_ms=at, event=event) for at, event in state.history)
    found.blamed_sides.extend(state.blamed)
    found.layout.CopyFrom(_filled(pb.FileLayout, state.layout))
    if state.pending is not None:
        found.pending_phase = _phase(state.pending)
    if state.verified is not None:
        found.verified.CopyFrom(_filled(pb.VerifyResult, state.verified))
    return found


def plan_out(plan: Plan, root: Path | None = None) -> pb.MigrationPlan:
    """`root`: like in status_out."""
    return _filled(
        pb.MigrationPlan,
        plan,
        findings=[
            pb.MigrationFinding(
                path=finding.place,
                position=finding.position or 0,
                fault=finding.kind.value,
                detail=finding.detail,
                remedy=finding.remedy.value,
                count=finding.count,
            )
            for finding in plan.findings
        ],
        next_command=plan.next_step.command(root),
        hint=plan.next_step.sentence(root),
        config=[_filled(pb.MigrationConfigTable, table) for table in plan.config],
        dead=[_filled(pb.DeadRecords, each) for each in plan.dead],
        held_back=[_filled(pb.HeldBack, each) for each in plan.held_back],
    )


def differences_out(differences: Sequence[Finding]) -> pb.ListDifferencesResponse:
    return pb.ListDifferencesResponse(
        differences=[
            pb.Difference(
                topic=each.topic,
                queue_id=each.queue_id,
                queue_offset=each.queue_offset,
                field=each.place,
                side=each.side,
                in_log=each.expected,
                in_side=each.found,
            )
            for each in differences
        ]
    )


def _phase(phase: Phase) -> pb.MigrationPhase:
    return getattr(pb, f"MIGRATION_PHASE_{phase.value}")  # type: ignore[no-any-return]


def _filled(kind: type[M], value: object, **other: object) -> M:
    """A message with the value's attributes of the same names, except the `other` fields."""
    names = [field.name for field in kind.DESCRIPTOR.fields if field.name not in other]
    return kind(**{name: getattr(value, name) for name in names}, **other)
