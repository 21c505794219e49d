"""The migration: its state, its jobs, and its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import migration_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.visit import INT32_MAX, PAGE_ROWS
from server.texts import word_of
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web
    from google.protobuf.message import Message

    from server.console.visit import Visit

PHASES = ("FILES", "DOUBLE_WRITE", "VERIFIED", "ROCKSDB", "FINISHED")


class _Step(NamedTuple):
    method: str
    request: type[Message]
    #: Phases in which it may be taken; the server refuses it in others, and says why.
    phases: tuple[str, ...]


STEPS = {
    "start": _Step("StartMigration", pb.StartMigrationRequest, ("FILES", "DOUBLE_WRITE")),
    "verify": _Step("VerifyMigration", pb.VerifyMigrationRequest, PHASES[1:]),
    "cutover": _Step("Cutover", pb.CutoverRequest, ("VERIFIED",)),
    "rollback": _Step("Rollback", pb.RollbackRequest, PHASES[1:]),
    "finish": _Step("FinishMigration", pb.FinishRequest, ("ROCKSDB", "FINISHED")),
    "resume": _Step("ResumeMigration", pb.ResumeRequest, PHASES),
}


async def _show(visit: Visit) -> web.StreamResponse:
    status = await visit.ask(
        "GetMigrationStatus", pb.GetMigrationStatusRequest(), pb.MigrationStatus
    )
    phase = phase_name(status.phase)
    skip = visit.whole("skip", most=INT32_MAX)
    differences: list[pb.Difference] = []
    if phase:
        # One more than is shown, to know whether there is another page.
        found = await visit.ask(
            "ListDifferences",
            pb.ListDifferencesRequest(limit=PAGE_ROWS + 1, skip=skip),
            pb.ListDifferencesResponse,
        )
        differences = list(found.differences)
    return visit.html(
        "migration.html",
        status=status,
        phase=phase,
        phases=PHASES,
        pending=phase_name(status.pending_phase),
        has_result=status.HasField("verified"),
        steps=_possible(phase, stopped=bool(status.stopped)),
        differences=differences[:PAGE_ROWS],
        skip=skip,
        following=address("/migration", skip=skip + PAGE_ROWS)
        if len(differences) > PAGE_ROWS
        else "",
    )


def _possible(phase: str, *, stopped: bool) -> list[str]:
    """Steps to offer; the server decides when one is taken."""
    return [
        name
        for name, step in STEPS.items()
        if phase in step.phases and (name != "resume" or stopped)
    ]


async def _take(visit: Visit, form: Mapping[str, str]) -> str:
    step = STEPS.get(form.get("step", ""))
    if step is None:
        raise InvalidArgumentError("step", f"is not one of {', '.join(STEPS)}")
    await visit.ask(step.method, step.request(), pb.MigrationStepResponse)
    return address("/migration", notice="stepTaken")


def phase_name(phase: pb.MigrationPhase) -> str:
    """Empty for none."""
    return word_of(pb.MigrationPhase, phase)


PAGE = Page(
    "migration",
    "/migration",
    {"/migration": _show},
    {"/migration/step": _take},
    needs=("GetMigrationStatus",),
    for_administrators=True,
)
