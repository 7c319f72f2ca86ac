"""The database of an application, and its repositories as dependencies.

Rules of this module: every dependency comes from ``database``, so that a test overrides this one.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Request

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._sync.database import Database
from kvmodels.api._sync.repository import Repository
from kvmodels.errors import ClosedError, InvalidArgumentError
from kvmodels.schema.compile.model import KvModel

_STATE = "kvmodels_database"
_TENANT_OF = "kvmodels_tenant_of_request"
_TENANT = "kvmodels_tenant"


def lifespan(
    db: AsyncDatabase | Database, *, tenant_of: Callable[[Request], Awaitable[str]] | None = None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of an application that uses this database: opened at its start and closed at its end.

    Args:
        db: the database; an ``AsyncDatabase`` is opened by the lifespan, a ``Database`` is open already.
        tenant_of: an asynchronous function that returns the name of the tenant of a request, or raises an
            ``HTTPException``; it is called at most once for each request, when a repository of a model of tenants is
            needed.

    Returns:
        The argument of ``FastAPI(lifespan=...)``.

    Raises:
        InvalidArgumentError: ``tenant_of`` is not an asynchronous function.

    Examples:
        >>> from fastapi import FastAPI
        >>> from kvmodels import AsyncDatabase
        >>> app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://")))
    """
    if tenant_of is not None and not inspect.iscoroutinefunction(tenant_of):
        raise InvalidArgumentError(
            "the tenant of a request is found by an asynchronous function",
            argument="tenant_of",
            value=tenant_of,
            hint="Give an 'async def' of the request that returns the name of the tenant.",
        )

    @asynccontextmanager
    async def opened(app: FastAPI) -> AsyncGenerator[None]:
        setattr(app.state, _STATE, db)
        setattr(app.state, _TENANT_OF, tenant_of)
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


async def tenant_database(request: Request, db: Annotated[Any, Depends(database)]) -> Any:
    """Return the database of the request's tenant; a dependency.

    Args:
        request: the request.
        db: the database of the application.

    Returns:
        ``db.tenant(name)``, with the name that the function ``tenant_of`` of ``lifespan`` has returned.

    Raises:
        InvalidArgumentError: ``lifespan`` was given no ``tenant_of``, or it has returned no name of a tenant.
    """
    known = getattr(request.state, _TENANT, None)
    if known is None:
        tenant_of = getattr(request.app.state, _TENANT_OF, None)
        if tenant_of is None:
            raise InvalidArgumentError(
                "the application does not say which tenant a request belongs to",
                argument="tenant_of",
                hint="Write lifespan(db, tenant_of=function), with an asynchronous function of the request.",
            )
        known = db.tenant(await tenant_of(request))
        setattr(request.state, _TENANT, known)
    return known


async def written_database(request: Request, db: Annotated[Any, Depends(database)]) -> Any:
    """Return the database of the transaction of a request: of its tenant, if the application names the tenants.

    Args:
        request: the request.
        db: the database of the application.
    """
    names_tenants = getattr(request.app.state, _TENANT_OF, None) is not None
    return await tenant_database(request, db) if names_tenants else db


def repository(
    model: type[KvModel], kind: type[AsyncRepository[Any] | Repository[Any]] | None = None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the dependency of a repository: ``Annotated[Users, Depends(repository(User, Users))]``.

    Args:
        model: the model.
        kind: a class that is derived from ``AsyncRepository`` or ``Repository``; None for these themselves.

    Returns:
        A dependency for ``Depends``; it answers with the repository of the application's database, and of a model of
        tenants with that of the request's tenant.
    """

    async def of_application(request: Request, db: Annotated[Any, Depends(database)]) -> Any:
        used = await tenant_database(request, db) if model in db.tenant_models else db
        return used.repository(model) if kind is None else used.repository(model, kind)

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
