"""The endpoints of the tracker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel

from examples.tracker import services
from examples.tracker.models import MODELS, NewProject, NewTicket, NewUser, Project, Status, Ticket, TicketPatch, User
from kvmodels import ULID, AsyncDatabase, Count, Page, ParsedLookups
from kvmodels.ext.fastapi import (
    AsyncRepo,
    Changes,
    Health,
    Lookups,
    Paging,
    Precondition,
    RecordEvent,
    RequiredPrecondition,
    acting,
    add_error_handlers,
    database,
    health,
    lifespan,
    problems,
)

DAY_S = 86_400

Store = Annotated[AsyncDatabase, Depends(database)]
Condition = Annotated[Precondition, Depends()]
TicketLookups = Annotated[
    ParsedLookups, Depends(Lookups[Ticket]("project_id", "status", "tags__contains", order=("id", "-id")))
]


def user_name(request: Request) -> str | None:
    """Return who sent a request, as the proxy in front of the service says."""
    return request.headers.get("X-User")


router = APIRouter(responses=problems(503), dependencies=[Depends(acting(user_name))])
router.get("/health", responses={503: {"model": Health}})(health)


@router.post("/users", status_code=201, responses=problems(409))
async def create_user(users: AsyncRepo[User], body: NewUser) -> User:
    return await users.create(body)


@router.post("/projects", status_code=201, responses=problems(409))
async def create_project(projects: AsyncRepo[Project], body: NewProject) -> Project:
    return await projects.create(body)


@router.get("/projects/{slug}", responses=problems(404))
async def read_project(projects: AsyncRepo[Project], slug: str) -> Project:
    return await projects.get(slug=slug)


@router.post("/projects/{slug}/tickets", status_code=201, responses=problems(404, 409))
async def create_ticket(db: Store, slug: str, body: NewTicket, condition: Condition) -> Ticket:
    return condition.tagged(await services.create_ticket(db, slug, body))


@router.post("/projects/{slug}/close", responses=problems(404))
async def close_project(db: Store, slug: str) -> int:
    """Close a project with all its tickets; the answer is the number of tickets that were not done."""
    return await services.close_project(db, slug)


@router.delete("/projects/{slug}", status_code=204, responses=problems(404))
async def remove_project(projects: AsyncRepo[Project], slug: str) -> None:
    """Remove a project with all its tickets."""
    await projects.remove((await projects.get(slug=slug)).id)


@router.get("/trash/projects")
async def removed_projects(projects: AsyncRepo[Project]) -> list[Project]:
    return [revision.record async for revision in projects.trash() if revision.record is not None]


@router.post("/trash/projects/{key}/restore", responses=problems(404, 409))
async def restore_project(projects: AsyncRepo[Project], key: ULID) -> int:
    """Restore a removed project with its tickets; the answer is their number."""
    return (await projects.restore(key, also=True)).others


@router.get("/projects/{slug}/counts", responses=problems(404))
async def count_tickets(db: Store, slug: str) -> dict[Status, int]:
    project = await db[Project].get(slug=slug)
    groups = db[Ticket].filter(project_id=project.id).group_by("status")
    return {group["status"]: group["tickets"] async for group in groups.aggregate(tickets=Count())}


@router.get("/tickets", responses=problems(400))
async def list_tickets(
    tickets: AsyncRepo[Ticket], lookups: TicketLookups, paging: Annotated[Paging, Depends()]
) -> Page[Ticket]:
    found = tickets.filter(lookups.where).order_by(*lookups.order_by)
    return paging.linked(await found.page(**paging.window))


@router.get("/tickets/events", response_class=EventSourceResponse)
async def events(
    tickets: AsyncRepo[Ticket], changes: Annotated[Changes, Depends()]
) -> AsyncIterator[RecordEvent[Ticket]]:
    async for event in changes.of(tickets):
        yield event


@router.get("/tickets/{key}", responses=problems(404))
async def read_ticket(tickets: AsyncRepo[Ticket], key: int, condition: Condition) -> Ticket:
    return condition.tagged(await tickets.get(key))


class Change(BaseModel):
    """A change of a ticket by a user: for each field the values before and after."""

    at: datetime | None
    actor: str | None
    changes: Mapping[str, tuple[Any, Any]] | None


@router.get("/tickets/{key}/history")
async def ticket_history(tickets: AsyncRepo[Ticket], key: int) -> list[Change]:
    """Tell who changed a ticket, the newest change first; also of a removed one."""
    return [Change(at=one.at, actor=one.actor, changes=one.changes) async for one in tickets.history(key)]


@router.patch("/tickets/{key}", responses=problems(404, 409, 412, 428))
async def change_ticket(db: Store, key: int, body: TicketPatch, condition: RequiredPrecondition) -> Ticket:
    return condition.tagged(await services.change_ticket(db, key, body, condition.if_version))


@router.delete("/tickets/{key}", status_code=204, responses=problems(404, 412))
async def remove_ticket(tickets: AsyncRepo[Ticket], key: int, condition: Condition) -> None:
    if not await tickets.remove(key, if_version=condition.if_version):
        raise HTTPException(404, "there is no such ticket")


def create_app(url: str) -> FastAPI:
    db = AsyncDatabase(url, models=MODELS, change_log=DAY_S)
    app = FastAPI(title="Tracker", lifespan=lifespan(db), generate_unique_id_function=lambda route: route.name)
    app.include_router(router)
    add_error_handlers(app)
    return app


app = create_app(os.environ.get("DATABASE", "tracker.db"))
