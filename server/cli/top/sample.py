"""Samples of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcq_client import Activity, JobStatus, PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq_client import Client, Job

_NOTHING_YET = Activity([], [], None, None, None)


@dataclass(frozen=True)
class Sample:
    """Responses of the server at one time."""

    time_s: float  # of a monotonic clock
    version: str
    numbers: Mapping[str, float]
    activity: Activity
    jobs: Sequence[Job]  # running jobs
    #: Topics, groups and jobs are only for administrators, and this user is not one.
    denied: bool = False

    @property
    def uptime_s(self) -> float:
        return self.numbers.get("server.uptime_s", 0.0)


def take(client: Client, time_s: float, *, denied: bool = False) -> Sample:
    """Take a sample. While the server opens its store or drains, only its numbers are included.

    `denied`: from the previous sample. Calls that were rejected are not repeated, because each
    rejection is counted and audited. Raises what the client raises.
    """
    numbers = client.statistics()
    version = client.server_version()
    try:
        # Other calls would wait until the store is open.
        if "server.opening_progress" in numbers or "server.draining" in numbers:
            return Sample(time_s, version, numbers, _NOTHING_YET, (), denied=denied)
        if denied:
            return Sample(time_s, version, numbers, _NOTHING_YET, (), denied=True)
        activity = client.activity()
        jobs = [job for job in client.jobs.list() if job.status is JobStatus.RUNNING]
    except UnavailableError as error:
        if error.reason not in ("STARTING", "DRAINING"):
            raise
        return Sample(time_s, version, numbers, _NOTHING_YET, ())
    except PermissionDeniedError:
        return Sample(time_s, version, numbers, _NOTHING_YET, (), denied=True)
    return Sample(time_s, version, numbers, activity, jobs)
