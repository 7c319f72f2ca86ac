"""The database of an application, and its repositories as dependencies.

Rules of this module: every dependency comes from ``database``, so that a test overrides this one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Request

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._sync.database import Database
from kvmodels.api._sync.repository import Repository
from kvmodels.errors import ClosedError
from kvmodels.schema.compile.model import KvModel

_STATE = "kvmodels_database"


def lifespan(db: AsyncDatabase | Database) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of an application that uses this database: opened at its start and closed at its end.

    Args:
        db: the database; an ``AsyncDatabase`` is opened by the lifespan, a ``Database`` is open already.

    Returns:
        The argument of ``FastAPI(lifespan=...)``.

    Examples:
        >>> from fastapi import FastAPI
        >>> from kvmodels import AsyncDatabase
        >>> app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://")))
    """

    @asynccontextmanager
    async def opened(app: FastAPI) -> AsyncGenerator[None]:
        setattr(app.state, _STATE, db)
        if isinstance(db, AsyncDatabase):
            async with db:
                yield
        else:
            with db:
                yield

    return opened


async def database(request: Request) -> Any:
    """Return the database of the application; a dependency, which a test can override.

    Args:
        request: the request.

    Returns:
        The ``AsyncDatabase`` or ``Database`` that was given to ``lifespan``.

    Raises:
        ClosedError: the application has no database yet.
    """
    found: AsyncDatabase | Database | None = getattr(request.app.state, _STATE, None)
    if found is None:
        raise ClosedError(
            "the application has no database",
            hint="Write FastAPI(lifespan=lifespan(db)), and in a test: with TestClient(app) as client.",
        )
    return found


def repository(
    model: type[KvModel], kind: type[AsyncRepository[Any] | Repository[Any]] | None = None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the dependency of a repository: ``Annotated[Users, Depends(repository(User, Users))]``.

    Args:
        model: the model.
        kind: a class that is derived from ``AsyncRepository`` or ``Repository``; None for these themselves.

    Returns:
        A dependency for ``Depends``; it answers with the repository of the application's database.
    """

    async def of_application(db: Annotated[Any, Depends(database)]) -> Any:
        return db.repository(model) if kind is None else db.repository(model, kind)

    return of_application


if TYPE_CHECKING:
    AsyncRepo = AsyncRepository
    Repo = Repository
else:

    class _RepositoryOf:
        """Makes ``Repo[User]`` the annotation of a dependency."""

        __slots__ = ()

        def __getitem__(self, model: Any) -> Any:
            return Annotated[Any, Depends(repository(model))]

    AsyncRepo = Repo = _RepositoryOf()
