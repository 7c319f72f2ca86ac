"""The answer to a load balancer that asks whether this process can serve.

Rules of this module: an answer names no model and no error, because it needs no login.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.catalog.evolution import SchemaPlan
from kvmodels.errors import KvModelsError
from kvmodels.ext.fastapi.databases import database


class Health(BaseModel):
    """Whether the service can serve: its store can be reached, and is as the models declare it."""

    status: Literal["ok", "unreachable", "outdated"]


async def health(db: Annotated[Any, Depends(database)], response: Response) -> Health:
    """Answer whether the store can be reached and is as the models declare it.\f

    Write ``app.get("/health", responses={503: {"model": Health}})(health)``. The answer is 200 with
    ``{"status": "ok"}``. It is 503 with ``"unreachable"``, or with ``"outdated"`` if ``db.apply()`` has something to
    do. Cost: a few reads; no record is read.

    Args:
        db: the database of the application.
        response: the response, whose status is set.

    Returns:
        The status.
    """  # noqa: D301 - FastAPI describes the endpoint by the text before the form feed
    try:
        plan: SchemaPlan
        if isinstance(db, AsyncDatabase):
            plan = await db.plan(sample=0)
        else:
            plan = await run_in_threadpool(db.plan, sample=0)
    except KvModelsError:
        response.status_code = 503
        return Health(status="unreachable")
    if not plan.is_current:
        response.status_code = 503
        return Health(status="outdated")
    return Health(status="ok")
