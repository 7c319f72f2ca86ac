"""Related records with SQLModel, as its tutorial writes them, with the foreign keys of SQLite switched on.

Rules of this module: the journal and ``synchronous`` are set as kvmodels sets them. The database protects and cascades.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from sqlalchemy import event, func
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import joinedload
from sqlmodel import Field, Relationship, Session, SQLModel, select

from benchmarks.columns.sqlmodel_store import engine_of
from benchmarks.relations.sessions import ALBUMS, AUTHORS, BOOKS_EACH, PAGE, TRACKS_EACH


class SqlAuthor(SQLModel, table=True):  # type: ignore[call-arg]
    """One who stays."""

    id: int = Field(primary_key=True)
    name: str


class SqlBook(SQLModel, table=True):  # type: ignore[call-arg]
    """One that protects its author."""

    id: int = Field(primary_key=True)
    title: str
    author_id: int = Field(foreign_key="sqlauthor.id", index=True, ondelete="RESTRICT")
    author: SqlAuthor = Relationship()


class SqlAlbum(SQLModel, table=True):  # type: ignore[call-arg]
    """One that is removed with its tracks."""

    id: int = Field(primary_key=True)
    title: str


class SqlTrack(SQLModel, table=True):  # type: ignore[call-arg]
    """One that is removed with its album."""

    id: int = Field(primary_key=True)
    title: str
    album_id: int = Field(foreign_key="sqlalbum.id", index=True, ondelete="CASCADE")


class SqlModelRelations:
    """An engine, and a session for each piece of work."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

        @event.listens_for(engine, "connect")
        def switch_on(connection: Any, _: object) -> None:
            connection.execute("PRAGMA foreign_keys=ON")

    def fill(self) -> None:
        SQLModel.metadata.create_all(self._engine)
        with Session(self._engine) as session:
            session.add_all([SqlAuthor(id=n, name=f"author {n}") for n in range(AUTHORS)])
            session.add_all([SqlAlbum(id=n, title=f"album {n}") for n in range(ALBUMS)])
            session.flush()
            books = range(AUTHORS * BOOKS_EACH)
            session.add_all([SqlBook(id=n, title=f"book {n}", author_id=n % AUTHORS) for n in books])
            tracks = range(ALBUMS * TRACKS_EACH)
            session.add_all([SqlTrack(id=n, title=f"track {n}", album_id=n % ALBUMS) for n in tracks])
            session.commit()

    def insert_child(self, number: int) -> object:
        with Session(self._engine) as session:
            session.add(SqlBook(id=number, title=f"book {number}", author_id=number % AUTHORS))
            session.commit()
        return None

    def page_with_related(self, number: int) -> Sequence[tuple[str, str]]:
        with Session(self._engine) as session:
            query = select(SqlBook).where(SqlBook.id >= number).order_by(cast("Any", SqlBook.id)).limit(PAGE)
            found = session.exec(query.options(joinedload(cast("Any", SqlBook.author)))).all()
            return [(book.title, book.author.name) for book in found]

    def remove_protected(self, number: int) -> bool:
        try:
            self._remove(SqlAuthor, number)
        except IntegrityError:
            return True
        return False

    def remove_cascade(self, number: int) -> object:
        self._remove(SqlAlbum, number)
        return None

    def _remove(self, model: type[SQLModel], number: int) -> None:
        with Session(self._engine) as session:
            session.delete(session.get_one(model, number))
            session.commit()

    def tracks(self) -> int:
        with Session(self._engine) as session:
            number: int = session.exec(select(func.count()).select_from(SqlTrack)).one()
            return number

    def close(self) -> None:
        self._engine.dispose()


def opened(folder: Path) -> SqlModelRelations:
    """Open the store."""
    return SqlModelRelations(engine_of(folder, "relaxed"))
