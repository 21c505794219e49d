"""Running and finished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from kvcq_client.pb.v1 import jobs_pb2 as jobs_pb
from server.console.addresses import address
from server.console.page import Page
from server.console.visit import whole_of
from server.texts import word_of
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit

#: Jobs that are listed; all that are remembered are in `kvcq job list`.
_SHOWN = 100
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (1 << 31) - 1,
    FieldDescriptor.CPPTYPE_INT64: (1 << 63) - 1,
}
_FLAG = FieldDescriptor.CPPTYPE_BOOL
_TEXT = FieldDescriptor.CPPTYPE_STRING


class Argument(NamedTuple):
    """A field of a job that a form can set."""

    name: str
    kind: str  # "text", "whole" or "flag"


def kinds() -> dict[str, list[Argument]]:
    """Each kind of job in the API, with its arguments. New kinds appear without changes here."""
    found = {}
    for field in jobs_pb.StartJobRequest.DESCRIPTOR.oneofs_by_name["kind"].fields:
        assert field.message_type is not None
        kinds_of = ((one.name, _kind_of(one)) for one in field.message_type.fields)
        found[field.name] = [Argument(name, kind) for name, kind in kinds_of if kind]
    return found


def _kind_of(field: Any) -> str | None:  # noqa: ANN401 - there are two classes of descriptors
    """None for a field that forms do not support."""
    if field.is_repeated:
        return None
    if field.cpp_type in _WHOLE:
        return "whole"
    return {_FLAG: "flag", _TEXT: "text"}.get(field.cpp_type)


async def _list(visit: Visit) -> web.StreamResponse:
    found = await visit.ask("ListJobs", jobs_pb.ListJobsRequest(), jobs_pb.ListJobsResponse)
    return visit.html(
        "jobs.html",
        jobs=[(job, status_name(job.status)) for job in found.jobs[:_SHOWN]],
        kinds=kinds(),
    )


async def _job(visit: Visit) -> web.StreamResponse:
    request = jobs_pb.GetJobRequest(job_id=visit.text("id"))
    job = await visit.ask("GetJob", request, jobs_pb.Job)
    return await visit.long_html(
        "job.html",
        job=job,
        state=status_name(job.status),
        arguments=sorted(job.arguments.items()),
        numbers=sorted(job.numbers.items()),
    )


async def _start(visit: Visit, form: Mapping[str, str]) -> str:
    arguments = kinds().get(form.get("kind", ""))
    if arguments is None:
        raise InvalidArgumentError("kind", f"is not one of {', '.join(kinds())}")
    request = jobs_pb.StartJobRequest()
    wanted = getattr(request, form["kind"])
    wanted.SetInParent()  # for a kind without arguments, or with none set
    for name, kind in arguments:
        text = form.get(f"{form['kind']}.{name}", "").strip()
        if text:
            field = wanted.DESCRIPTOR.fields_by_name[name]
            most = _WHOLE.get(field.cpp_type, 0)
            setattr(wanted, name, _value(name, kind, text, most))
    job = await visit.ask("StartJob", request, jobs_pb.Job)
    return address("/job", id=job.job_id, notice="jobStarted")


def _value(name: str, kind: str, text: str, most: int) -> str | int | bool:
    if kind == "text":
        return text
    if kind == "flag":
        return text == "true"
    return whole_of(name, text, most)


async def _cancel(visit: Visit, form: Mapping[str, str]) -> str:
    job_id = form.get("job", "")
    await visit.ask("CancelJob", jobs_pb.CancelJobRequest(job_id=job_id), jobs_pb.Job)
    return address("/job", id=job_id, notice="jobCancelled")


def status_name(status: jobs_pb.JobStatus) -> str:
    return word_of(jobs_pb.JobStatus, status).lower()


PAGE = Page(
    "jobs",
    "/jobs",
    {"/jobs": _list, "/job": _job},
    {
        "/jobs/start": _start,
        "/jobs/cancel": _cancel,
    },
    for_administrators=True,
)
