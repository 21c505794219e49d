"""Values of the migration to protobuf, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import migration_pb2 as pb
from migration.state import Route, RoutingPolicy, Rule
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from migration.jobs import JobStatus
    from migration.migrator import MigrationStatus
    from migration.plan import Plan
    from migration.steps import Difference

_ROUTES = {
    Route.FILES: pb.ROUTE_FILES,
    Route.ROCKSDB: pb.ROUTE_ROCKSDB,
    Route.BOTH: pb.ROUTE_BOTH,
}
_ROUTE_OF = {number: route for route, number in _ROUTES.items()}


def routing_out(policy: RoutingPolicy) -> pb.RoutingPolicy:
    return pb.RoutingPolicy(
        rules=[
            pb.RoutingRule(pattern=rule.pattern, route=_ROUTES[rule.route]) for rule in policy.rules
        ],
        default_route=_ROUTES[policy.default],
    )


def routing_in(policy: pb.RoutingPolicy) -> RoutingPolicy:
    """Inverse of routing_out; a default that is not given is both. Raises InvalidArgumentError."""
    rules = []
    for index, rule in enumerate(policy.rules):
        route = _ROUTE_OF.get(rule.route)
        if route is None:
            raise InvalidArgumentError(f"routing.rules[{index}].route", "is not given")
        rules.append(Rule(rule.pattern, route))
    return RoutingPolicy(tuple(rules), _ROUTE_OF.get(policy.default_route, Route.BOTH))


def job_out(job: JobStatus) -> pb.MigrationJob:
    return pb.MigrationJob(
        job_id=job.job_id,
        kind=job.kind,
        step=job.step,
        state=f"JOB_STATE_{job.state.name}",
        percent=job.percent,
        done_bytes=job.done_bytes,
        total_bytes=job.total_bytes,
        rows=job.rows,
        rows_per_s=job.rows_per_s,
        elapsed_s=job.elapsed_s,
        remaining_s=job.remaining_s,
        differences=job.differences,
        error=job.error,
    )


def status_out(status: MigrationStatus, root: Path | None = None) -> pb.MigrationStatus:
    """`root`: of a stopped store, which is named in what to type next."""
    found = pb.MigrationStatus(
        routing=routing_out(status.routing),
        verify_broken_off=status.verify_broken_off,
        log_start_offset=status.log_start_offset,
        log_end_offset=status.log_end_offset,
        dispatched_offset=status.dispatched_offset,
        deletions=status.deletions,
        sides=[
            pb.MigrationSide(
                name=side.name,
                dispatched_offset=side.dispatched_offset,
                behind_bytes=side.behind_bytes,
                joined=side.joined,
                failure=side.failure,
            )
            for side in status.sides
        ],
        jobs=map(job_out, status.jobs),
        next_command=status.next_step.command(root),
        hint=status.next_step.sentence(root),
    )
    state = status.state
    if state is None:
        return found
    found.MergeFrom(
        pb.MigrationStatus(
            phase=_phase(state.phase.value),
            stopped=state.stopped,
            history=[pb.MigrationEvent(time_ms=at, event=event) for at, event in state.history],
            blamed_sides=state.blamed,
            layout=pb.FileLayout(
                units_per_file=state.layout.units_per_file,
                index_slots=state.layout.index_slots,
                index_entries=state.layout.index_entries,
            ),
        )
    )
    if state.pending is not None:
        found.MergeFrom(
            pb.MigrationStatus(
                pending_phase=_phase(state.pending.phase.value),
                pending_routing=routing_out(state.pending.routing),
            )
        )
    if state.verified is not None:
        found.verified.CopyFrom(
            pb.VerifyResult(
                cut_offset=state.verified.cut_offset,
                compared_units=state.verified.compared_units,
                difference_count=state.verified.difference_count,
                finished_ms=state.verified.finished_ms,
            )
        )
    return found


def plan_out(plan: Plan, root: Path | None = None) -> pb.MigrationPlan:
    """`root`: as in status_out."""
    return pb.MigrationPlan(
        kind=plan.kind,
        phase=plan.phase,
        segments=plan.segments,
        log_bytes=plan.log_bytes,
        bytes_to_replay=plan.bytes_to_replay,
        messages=plan.messages,
        messages_are_estimated=plan.messages_are_estimated,
        topics=plan.topics,
        queues=plan.queues,
        bytes_per_unit=plan.bytes_per_unit,
        disk_needed_bytes=plan.disk_needed_bytes,
        disk_free_bytes=plan.disk_free_bytes,
        units_per_s=plan.units_per_s,
        expected_s=plan.expected_s,
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
        blocking=plan.blocking,
        next_command=plan.next_step.command(root),
        hint=plan.next_step.sentence(root),
        config=[pb.MigrationConfigTable(**table._asdict()) for table in plan.config],
        queues_in_rocksdb=plan.queues_in_rocksdb,
        dead=[pb.DeadRecords(**each._asdict()) for each in plan.dead],
    )


def differences_out(differences: Sequence[Difference]) -> pb.ListDifferencesResponse:
    return pb.ListDifferencesResponse(
        differences=[pb.Difference(**difference._asdict()) for difference in differences]
    )


_PHASE = "MIGRATION_PHASE_"


def _phase(name: str) -> str:
    return f"{_PHASE}{name}"
