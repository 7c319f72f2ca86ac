"""A transaction for each request, committed before the response is sent.

Rules of this module: a dependency here has the scope ``function``. FastAPI ends it after the endpoint and before the
response; one with the scope ``request`` would be ended after the response, when an error cannot be answered any more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Annotated, Any, TypeAlias

from fastapi import Depends

from kvmodels.api._async.transaction import AsyncTransaction
from kvmodels.api._sync.transaction import Transaction
from kvmodels.ext.fastapi.databases import written_database


async def _asynchronous(db: Annotated[Any, Depends(written_database)]) -> AsyncGenerator[AsyncTransaction]:
    async with db.transaction() as tx:
        yield tx


def _synchronous(db: Annotated[Any, Depends(written_database)]) -> Generator[Transaction]:
    with db.transaction() as tx:
        yield tx


AsyncRequestTransaction: TypeAlias = Annotated[AsyncTransaction, Depends(_asynchronous, scope="function")]
"""The annotation of a transaction of an ``AsyncDatabase`` for one request: ``tx: AsyncRequestTransaction``.

It is committed when the endpoint has returned, before the response is sent. With ``add_error_handlers`` an error of the
commit is the response; a conflict is a 503, because FastAPI cannot run the endpoint again. Nothing is written if the
endpoint raises. Records get their versionstamp with the commit, so the response has no ETag.

With ``lifespan(db, tenant_of=function)`` it is one of the request's tenant; for the models of the store itself write
``async with db.transaction()`` with ``Depends(database)``.
"""

RequestTransaction: TypeAlias = Annotated[Transaction, Depends(_synchronous, scope="function")]
"""The annotation of a transaction of a ``Database`` for one request, for endpoints with ``def``; otherwise like
``AsyncRequestTransaction``."""
