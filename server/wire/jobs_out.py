"""Converts jobs to API messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import jobs_pb2 as pb

if TYPE_CHECKING:
    from kvcq.inspect import Finding
    from migration.jobs import JobView


def job_out(job: JobView, *, findings: bool = True) -> pb.Job:
    return pb.Job(
        job_id=job.job_id,
        kind=job.kind,
        arguments=job.arguments,
        status=f"JOB_STATUS_{job.state.name}",
        step=job.step,
        done=job.done,
        total=job.total,
        unit=job.unit,
        percent=job.percent,
        elapsed_s=job.elapsed_s,
        remaining_s=job.remaining_s,
        started_ms=job.started_ms,
        ended_ms=job.ended_ms,
        scheduled=job.scheduled,
        summary=job.summary,
        numbers=job.numbers,
        findings=map(_finding_out, job.findings) if findings else (),
        error=job.error,
    )


def _finding_out(finding: Finding) -> pb.JobFinding:
    return pb.JobFinding(
        fault=finding.kind.value,
        place=finding.place,
        topic=finding.topic or "",
        queue_id=finding.queue_id or 0,
        queue_offset=finding.queue_offset,
        physical_offset=finding.physical_offset,
        detail=finding.detail,
        remedy=finding.remedy.value,
        count=finding.count,
    )
