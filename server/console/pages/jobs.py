"""Long work under way, and what has ended lately: that of a migration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import migration_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.pages.migration import state_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit


async def _list(visit: Visit) -> web.StreamResponse:
    status = await visit.ask(
        "GetMigrationStatus", pb.GetMigrationStatusRequest(), pb.MigrationStatus
    )
    return visit.html(
        "jobs.html",
        migration_jobs=[(job, state_name(job.state)) for job in reversed(status.jobs)],
    )


async def _cancel_migration(visit: Visit, form: Mapping[str, str]) -> str:
    await visit.ask(
        "CancelMigration",
        pb.CancelRequest(job_id=form.get("job", "")),
        pb.MigrationStepResponse,
    )
    return address("/jobs", notice="jobCancelled")


PAGE = Page("jobs", "/jobs", {"/jobs": _list}, {"/jobs/cancel-migration": _cancel_migration})
