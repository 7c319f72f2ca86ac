"""SQLModel on SQLite, as its tutorial writes it: an engine, and a session for each piece of work.

Rules of this module: the journal and ``synchronous`` are set as kvmodels sets them, nothing else is tuned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import delete as sql_delete
from sqlalchemy import event, func
from sqlalchemy.pool import StaticPool
from sqlmodel import Field, Session, SQLModel, create_engine, select

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE
from benchmarks.workload import User as Row


class User(SQLModel, table=True):  # type: ignore[call-arg]
    """The record of the workload."""

    id: int = Field(primary_key=True)
    name: str
    email: str = Field(unique=True)
    colour: str = Field(index=True)
    age: int
    bio: str


def made(row: Row) -> Any:
    """A new object of a row."""
    return User(id=row.id, name=row.name, email=row.email, colour=row.colour, age=row.age, bio=row.bio)


def engine_of(folder: Path, durability: Durability, *, locking: bool = False) -> Any:
    """An engine for a file; with ``locking`` by SQLAlchemy's recipe for transactions that lock at their beginning."""
    engine = create_engine(f"sqlite:///{folder / 'users.db'}", connect_args={"timeout": 60})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'commit' else 'NORMAL'}")
        if locking:
            connection.isolation_level = None

    if locking:

        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def engine_in_memory() -> Any:
    """An engine with the one connection that a database in memory belongs to."""
    return create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})


class SqlModelSession:
    """An engine, and for contended updates one that locks."""

    def __init__(self, engine: Any, locking: Any) -> None:
        self._engine, self._locking = engine, locking
        SQLModel.metadata.create_all(engine)

    def insert(self, user: Row) -> object:
        with Session(self._engine) as session:
            session.add(made(user))
            session.commit()
        return None

    def insert_many(self, users: Sequence[Row]) -> object:
        with Session(self._engine) as session:
            session.add_all([made(user) for user in users])
            session.commit()
        return None

    def get(self, key: int) -> Any:
        with Session(self._engine) as session:
            return session.get(User, key)

    def get_by_email(self, email: str) -> Any:
        with Session(self._engine) as session:
            return session.exec(select(User).where(User.email == email)).one()

    def list_colour(self, colour: str) -> Sequence[Any]:
        with Session(self._engine) as session:
            return list(session.exec(select(User).where(User.colour == colour)).all())

    def page(self, colour: str) -> Sequence[Any]:
        with Session(self._engine) as session:
            query = select(User).where(User.colour == colour).order_by(User.id).limit(PAGE)
            return list(session.exec(query).all())

    def scan(self) -> Sequence[Any]:
        with Session(self._engine) as session:
            return list(session.exec(select(User)).all())

    def count(self, colour: str) -> int:
        with Session(self._engine) as session:
            number: int = session.exec(select(func.count()).select_from(User).where(User.colour == colour)).one()
            return number

    def _change(self, key: int, field: str, value: object) -> object:
        with Session(self._engine) as session:
            user = session.get(User, key)
            setattr(user, field, value)
            session.add(user)
            session.commit()
        return user

    def update_plain(self, key: int, name: str) -> object:
        return self._change(key, "name", name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._change(key, "colour", colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._change(key, "email", email)

    def increment(self, key: int) -> object:
        with Session(self._locking) as session:
            user = session.get(User, key)
            user.age += 1
            session.add(user)
            session.commit()
        return user

    def delete(self, key: int) -> object:
        with Session(self._engine) as session:
            session.exec(sql_delete(User).where(User.id == key))
            session.commit()
        return None

    def fields(self, obj: Any) -> Row:
        return Row(obj.id, obj.name, obj.email, obj.colour, obj.age, obj.bio)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """An engine serves all threads."""
        yield self

    def close(self) -> None:
        self._engine.dispose()
        self._locking.dispose()


def opened(folder: Path, durability: Durability) -> SqlModelSession:
    """Open the database, or make it."""
    if durability == "memory":
        engine = engine_in_memory()
        return SqlModelSession(engine, engine)
    return SqlModelSession(engine_of(folder, durability), engine_of(folder, durability, locking=True))
