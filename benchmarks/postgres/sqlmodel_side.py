"""SQLModel as its tutorial writes it: an engine, and a session for each piece of work."""

from __future__ import annotations

from typing import Any, cast

import psycopg
from sqlalchemy import BigInteger, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, Session, SQLModel, create_engine, select
from sqlmodel.ext.asyncio.session import AsyncSession

from benchmarks.postgres.psycopg_side import connection_string
from benchmarks.postgres.sessions import CONNECTIONS, CONTENDED, PAGE, ROWS, Operations, city, email, fields

_URL = "postgresql+psycopg://"


class SqlPerson(SQLModel, table=True):  # type: ignore[call-arg]
    """The record of the comparison."""

    __tablename__: Any = "people"
    id: int = Field(primary_key=True, sa_type=BigInteger)
    email: str = Field(unique=True)
    city: str = Field(index=True)
    name: str
    visits: int


_Person = cast("Any", SqlPerson)


def _by_email(number: int) -> Any:
    return select(_Person).where(_Person.email == email(number))


def _page(number: int) -> Any:
    return select(_Person).where(_Person.city == city(number)).order_by(_Person.id).limit(PAGE)


_VISIT = update(_Person).where(_Person.id == CONTENDED).values(visits=_Person.visits + 1)


class _Threads:
    """Sessions of an engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def get(self, number: int) -> Any:
        with Session(self.engine) as session:
            return session.get(_Person, number)

    def unique_get(self, number: int) -> Any:
        with Session(self.engine) as session:
            return session.exec(_by_email(number)).one()

    def page(self, number: int) -> Any:
        with Session(self.engine) as session:
            return list(session.exec(_page(number)).all())

    def insert(self, number: int) -> None:
        with Session(self.engine) as session:
            session.add(SqlPerson(**fields(number)))
            session.commit()

    def update(self, number: int) -> None:
        with Session(self.engine) as session:
            person: Any = session.get(_Person, number)
            person.name = f"Ada {number}"
            session.add(person)
            session.commit()

    def contended_update(self, _: int) -> None:
        with Session(self.engine) as session:
            session.exec(_VISIT)
            session.commit()


def threads(url: str) -> Operations:
    """Return the operations of a thread."""
    text = connection_string(url, "sqlmodel")
    side = _Threads(create_engine(_URL, creator=lambda: psycopg.connect(text)))
    return Operations._make([*(getattr(side, name) for name in ROWS), side.engine.dispose])


class _Tasks:
    """Sessions of an asynchronous engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def get(self, number: int) -> Any:
        async with AsyncSession(self.engine) as session:
            return await session.get(_Person, number)

    async def unique_get(self, number: int) -> Any:
        async with AsyncSession(self.engine) as session:
            return (await session.exec(_by_email(number))).one()

    async def page(self, number: int) -> Any:
        async with AsyncSession(self.engine) as session:
            return list((await session.exec(_page(number))).all())

    async def insert(self, number: int) -> None:
        async with AsyncSession(self.engine) as session:
            session.add(SqlPerson(**fields(number)))
            await session.commit()

    async def update(self, number: int) -> None:
        async with AsyncSession(self.engine) as session:
            person: Any = await session.get(_Person, number)
            person.name = f"Ada {number}"
            session.add(person)
            await session.commit()

    async def contended_update(self, _: int) -> None:
        async with AsyncSession(self.engine) as session:
            await session.exec(_VISIT)
            await session.commit()


async def tasks(url: str) -> Operations:
    """Return the operations of a task."""
    text = connection_string(url, "sqlmodel")
    engine = create_async_engine(
        _URL,
        async_creator=lambda: psycopg.AsyncConnection.connect(text),
        pool_size=CONNECTIONS,
        max_overflow=0,
    )
    side = _Tasks(engine)
    return Operations._make([*(getattr(side, name) for name in ROWS), engine.dispose])
