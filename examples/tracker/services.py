"""Changes of several records that belong together: a closed project has done tickets only.

A query is not checked by a commit, so a new ticket could be missed by the one that closes its project. The guard
prevents this: changes of tickets share it, and closing a project takes it alone.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import HTTPException

from examples.tracker.models import NewTicket, Project, Ticket, TicketPatch
from kvmodels import ULID, AsyncDatabase, AsyncTransaction


class ProjectClosed(HTTPException):
    def __init__(self) -> None:
        super().__init__(409, "the project is closed")


async def require_open(tx: AsyncTransaction, project_id: ULID) -> None:
    await tx.guard("project", str(project_id), shared=True)
    if (await tx[Project].get(project_id)).closed:
        raise ProjectClosed


async def create_ticket(db: AsyncDatabase, slug: str, body: NewTicket) -> Ticket:
    @db.transactional()
    async def create(tx: AsyncTransaction) -> Ticket:
        project = await tx[Project].get(slug=slug)
        await require_open(tx, project.id)
        return await tx[Ticket].create(body, project_id=project.id)

    return await create()


async def change_ticket(
    db: AsyncDatabase, key: int, body: TicketPatch, if_version: Collection[str] | None = None
) -> Ticket:
    @db.transactional()
    async def change(tx: AsyncTransaction) -> Ticket:
        await require_open(tx, (await tx[Ticket].get(key)).project_id)
        return await tx[Ticket].patch(key, body, if_version=if_version)

    return await change()


async def close_project(db: AsyncDatabase, slug: str) -> int:
    @db.transactional()
    async def close(tx: AsyncTransaction) -> int:
        project = await tx[Project].get(slug=slug)
        await tx.guard("project", str(project.id))
        await tx[Project].patch(project.id, closed=True)
        left = [ticket async for ticket in tx[Ticket].filter(project_id=project.id, status__in=["open", "active"])]
        for ticket in left:
            await tx[Ticket].patch(ticket.id, status="done")
        return len(left)

    return await close()
