"""psycopg with one statement for each operation, whose rows become the objects of kvmodels."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.postgres.kvmodels_side import Person
from benchmarks.postgres.sessions import CONNECTIONS, CONTENDED, PAGE, SCHEMA, Operations, city, email, fields

_SELECT: Final = b"SELECT id, email, city, name, visits FROM people WHERE "
_GET: Final = _SELECT + b"id = %s"
_UNIQUE_GET: Final = _SELECT + b"email = %s"
_PAGE: Final = _SELECT + b"city = %%s ORDER BY id LIMIT %d" % PAGE
_INSERT: Final = b"INSERT INTO people VALUES (%s, %s, %s, %s, %s)"
_UPDATE: Final = b"UPDATE people SET name = %s WHERE id = %s"
_VISIT: Final = b"UPDATE people SET visits = visits + 1 WHERE id = %s"


def connection_string(url: str, library: str) -> str:
    """Return the connection string for the tables of a library."""
    return make_conninfo(url, options=f"-csearch_path={SCHEMA.format(library=library)}")


def _people(rows: list[tuple[Any, ...]]) -> list[Person]:
    return [Person(id=row[0], email=row[1], city=row[2], name=row[3], visits=row[4]) for row in rows]


def threads(url: str) -> Operations:
    """Return the operations of a thread, with one connection."""
    connection = psycopg.connect(connection_string(url, "psycopg"), autocommit=True, prepare_threshold=0)

    def read(statement: bytes, parameter: object) -> list[Person]:
        return _people(connection.execute(statement, (parameter,)).fetchall())

    return Operations(
        get=lambda number: read(_GET, number)[0],
        unique_get=lambda number: read(_UNIQUE_GET, email(number))[0],
        page=lambda number: read(_PAGE, city(number)),
        insert=lambda number: connection.execute(_INSERT, (*fields(number).values(),)),
        update=lambda number: connection.execute(_UPDATE, (f"Ada {number}", number)),
        contended_update=lambda _: connection.execute(_VISIT, (CONTENDED,)),
        close=connection.close,
    )


class _Pool:
    """Connections that each carry out one statement at a time."""

    def __init__(self, connections: list[psycopg.AsyncConnection[tuple[Any, ...]]]) -> None:
        self._free: asyncio.Queue[psycopg.AsyncConnection[tuple[Any, ...]]] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def read(self, statement: bytes, parameter: object) -> list[Person]:
        connection = await self._free.get()
        try:
            rows = await (await connection.execute(statement, (parameter,))).fetchall()
        finally:
            self._free.put_nowait(connection)
        return _people(rows)

    async def read_one(self, statement: bytes, parameter: object) -> Person:
        return (await self.read(statement, parameter))[0]

    async def write(self, statement: bytes, *parameters: object) -> None:
        connection = await self._free.get()
        try:
            await connection.execute(statement, parameters)
        finally:
            self._free.put_nowait(connection)

    async def close(self) -> None:
        while not self._free.empty():
            await self._free.get_nowait().close()


async def tasks(url: str) -> Operations:
    """Return the operations of a task, with a pool."""
    text = connection_string(url, "psycopg")
    connect = psycopg.AsyncConnection.connect
    pool = _Pool([await connect(text, autocommit=True, prepare_threshold=0) for _ in range(CONNECTIONS)])
    return Operations(
        get=lambda number: pool.read_one(_GET, number),
        unique_get=lambda number: pool.read_one(_UNIQUE_GET, email(number)),
        page=lambda number: pool.read(_PAGE, city(number)),
        insert=lambda number: pool.write(_INSERT, *fields(number).values()),
        update=lambda number: pool.write(_UPDATE, f"Ada {number}", number),
        contended_update=lambda _: pool.write(_VISIT, CONTENDED),
        close=pool.close,
    )
