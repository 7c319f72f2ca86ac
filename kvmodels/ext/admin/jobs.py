"""Work that takes longer than a request: checks, index builds, schema changes, bulk deletes.

Rules of this module: a job belongs to this process and ends with it. Everything that runs here can be stopped and
started again, because the operations of the library resume or repeat safely.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any, Final, Literal

from kvmodels.errors import KvModelsError

_KEPT: Final = 20
_SHORT_S: Final = 0.5


class JobStopped(Exception):  # noqa: N818 - not an error: the user asked for it
    """Raised in the progress function of a job that a user has stopped."""


class Job:
    """A piece of work in the background.

    Attributes:
        id: identifies the job in a URL.
        title: what it does.
        state: its state.
        progress: what it has done so far.
        share: the part that is done, from 0 to 1; None if the whole is not known.
        lines: its result, as lines of text.
        back: the path of the page that it belongs to, below the admin.
        tenant: the tenant in which it works; None for the store.
    """

    def __init__(self, title: str, back: str, tenant: str | None = None) -> None:
        self.id = token_hex(8)
        self.title = title
        self.back = back
        self.tenant = tenant
        self.state: Literal["running", "done", "failed", "stopped"] = "running"
        self.progress = ""
        self.share: float | None = None
        self.lines: list[str] = []
        self.result: Any = None
        self.task: asyncio.Task[None] | None = None
        self._stopping = False

    def report(self, progress: Any) -> None:
        """Show the progress of an operation of the library. Raises JobStopped if a user has stopped the job."""
        self.check(progress_text(progress), progress_share(progress))

    def check(self, progress: str, share: float | None = None) -> None:
        """Show a line about the progress. Raises JobStopped if a user has stopped the job."""
        self.progress, self.share = progress, share
        if self._stopping:
            raise JobStopped

    def stop(self) -> None:
        """Stop the job after its present batch."""
        self._stopping = True


class Jobs:
    """The last jobs of this process; a page shows those of its tenant alone.

    Args:
        tenant_of_request: returns the tenant of the present request, or None.
    """

    def __init__(self, tenant_of_request: Callable[[], str | None]) -> None:
        self._tenant_of_request = tenant_of_request
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def get(self, job_id: str) -> Job | None:
        """Return a job; None if it is unknown, or was forgotten."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.tenant == self._tenant_of_request() else None

    def recent(self) -> list[Job]:
        """Return the last jobs, the newest first."""
        tenant = self._tenant_of_request()
        return [job for job in reversed(self._jobs.values()) if job.tenant == tenant]

    async def start(self, title: str, back: str, work: Callable[[Job], Awaitable[list[str]]]) -> Job:
        """Start a job, and wait half a second for its end, so that short work needs no second page.

        Args:
            title: what it does.
            back: the path of the page that it belongs to.
            work: does it; passes ``job.report`` to the library as ``progress=``, and returns the lines of its result.
        """
        job = Job(title, back, self._tenant_of_request())
        self._jobs[job.id] = job
        while len(self._jobs) > _KEPT:
            self._jobs.popitem(last=False)
        job.task = asyncio.create_task(_run(job, work))
        await asyncio.wait([job.task], timeout=_SHORT_S)
        return job


async def _run(job: Job, work: Callable[[Job], Awaitable[list[str]]]) -> None:
    try:
        job.lines = await work(job)
        job.state = "done"
    except JobStopped:
        job.state = "stopped"
    except KvModelsError as error:
        job.state, job.lines = "failed", [str(error)]
    except Exception as error:  # noqa: BLE001 - shown to the user, who waits for this job
        job.state, job.lines = "failed", [f"{type(error).__name__}: {error}"]


def progress_text(progress: Any) -> str:
    """Return one line about a ``SchemaProgress`` or a ``BulkProgress``."""
    if hasattr(progress, "matched"):
        total = progress.total or progress.collected
        found = f" of {total:,}" if total else ""
        return f"{progress.matched:,}{found} records processed, {progress.written:,} written or deleted"
    place = progress.collection if progress.index is None else f"{progress.collection}.{progress.index}"
    written = "" if progress.written is None else f", {progress.written:,} written"
    total = "" if progress.total is None else f" of about {progress.total:,}"
    return f"{progress.step} {place}: {progress.scanned:,}{total} processed{written}"


def progress_share(progress: Any) -> float | None:
    """Return the part that is done, from 0 to 1; None if the whole is not known."""
    if hasattr(progress, "matched"):
        done, total = progress.matched, progress.total or progress.collected
    else:
        done, total = progress.scanned, progress.total
    return min(done / total, 1.0) if total else None
