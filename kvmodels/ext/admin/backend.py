"""The database behind the pages: calls that work for both facades, its models, and who may do what.

Rules of this module: pages reach the database only through ``Backend.call``, so that a synchronous database never
blocks the event loop. A page asks ``allows`` before it offers or does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from kvmodels._support.secret_values import HIDDEN
from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.core.operations import Entry
from kvmodels.ext.admin.jobs import Jobs
from kvmodels.flows.writing.acting import acting
from kvmodels.indexing.versions import LONGEST_NOTE
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.describe.describe import describe

AdminAction = Literal["view", "create", "edit", "delete", "operate"]
"""The rights of a user on the records of a model; ``"operate"`` is for schema changes, repairs and index builds."""

_WRITES: Final = frozenset({"create", "edit", "delete", "operate"})


MOST_MEASURED: Final = 100
"""The number of measurements that are kept: of the store and of the tenants that were measured last."""


class MeasuredStore(NamedTuple):
    """The sizes of a store or tenant, as ``db.stats()`` returns them, and when they were measured."""

    at: datetime
    stats: Any


class AdminPermission(Protocol):
    """A function that decides what a user may do."""

    def __call__(self, request: Request, action: AdminAction, model: type[KvModel] | None, /) -> bool:
        """Return whether the user of a request may do this.

        Args:
            request: the request; ``request.state.admin_user`` is the user that the ``auth_provider`` returned.
            action: what the user wants to do.
            model: the class of the records; None for pages about the whole store, such as its keys. On the pages of a
                tenant, ``request.path_params["tenant"]`` is its name as ``/tenants/NAME/`` has it.
        """
        ...


class Backend:
    """The database of an admin page.

    Args:
        db: the database; an ``AsyncDatabase`` is opened by the program.
        readonly: whether every write is refused.
        permission: decides what a user may do; None allows everything.
        show_encrypted: whether pages show the values of encrypted fields.

    Attributes:
        store: the database.
        permission: as above.
        shows_encrypted: whether pages show the values of encrypted fields.
        jobs: the jobs that run in the background.
        readonly: whether every write is refused.
    """

    def __init__(
        self,
        db: Database | AsyncDatabase,
        *,
        readonly: bool = False,
        permission: AdminPermission | None = None,
        show_encrypted: bool = False,
    ) -> None:
        self.store: Any = db
        self.jobs = Jobs(lambda: self.tenant)
        self.readonly = readonly or (db.settings is not None and bool(db.settings.options.get("readonly")))
        self.permission = permission
        self.shows_encrypted = show_encrypted
        self._is_async = isinstance(db, AsyncDatabase)
        self._measured: dict[str | None, MeasuredStore] = {}

    @property
    def db(self) -> Any:
        """Return the database of a request."""
        return self.store

    @property
    def tenant(self) -> str | None:
        """Return the name of the tenant whose database it is; None for a store."""
        name: str | None = self.store.tenant_name
        return name

    @property
    def declared(self) -> tuple[type[KvModel], ...]:
        """Return the models of the pages."""
        models: tuple[type[KvModel], ...] = self.store.models
        return models

    @property
    def tenant_models(self) -> tuple[type[KvModel], ...]:
        """Return the models of the store's tenants."""
        models: tuple[type[KvModel], ...] = self.store.tenant_models
        return models

    @cached_property
    def models(self) -> dict[str, type[KvModel]]:
        """The models by collection, in the order of the database; of several classes of a collection the first."""
        found: dict[str, type[KvModel]] = {}
        for model in self.declared:
            found.setdefault(describe(model).collection, model)
        return found

    def classes(self, collection: str) -> list[type[KvModel]]:
        """Return the classes that a new record of a collection can have."""
        described = [(model, describe(model)) for model in self.declared]
        return [
            model
            for model, description in described
            if description.collection == collection
            and (not description.classes or model.__name__ in description.classes)
        ]

    @property
    def measured(self) -> MeasuredStore | None:
        """The last measurement of the database of a request; None before the first."""
        return self._measured.get(self.tenant)

    def keep_measured(self, tenant: str | None, stats: Any) -> None:
        """Keep a measurement, of the store or of a tenant; only the last few are kept."""
        self._measured.pop(tenant, None)
        self._measured[tenant] = MeasuredStore(datetime.now(UTC), stats)
        for oldest in list(self._measured)[:-MOST_MEASURED]:
            del self._measured[oldest]

    async def call(self, method: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call a method of the database, or of an object that it returned, in a thread if it is synchronous."""
        if self._is_async:
            return await method(*arguments, **options)
        return await run_in_threadpool(method, *arguments, **options)

    async def take(self, listing: Any, count: int) -> list[Entry]:
        """Return the first entries of a listing of keys."""
        if self._is_async:
            found: list[Entry] = []
            async for entry in listing:
                found.append(entry)
                if len(found) == count:
                    break
            return found
        return await run_in_threadpool(lambda: [entry for entry, _ in zip(listing, range(count), strict=False)])

    def acting(self, request: Request) -> AbstractContextManager[None]:
        """Return a context manager for writes of the user of a request, whose name the history shows.

        Without a user the actor stays that of the program, which may have set one in a middleware.
        """
        name = getattr(getattr(request.state, "admin_user", None), "username", None)
        text = str(name or "").encode("utf-8", "replace")[:LONGEST_NOTE].decode("utf-8", "ignore")
        return acting(text, None) if text else nullcontext()

    def hidden_fields(self, model: type[Any]) -> frozenset[str]:
        """Return the encrypted fields of a class, whose values no page shows."""
        return frozenset() if self.shows_encrypted else frozenset(schema_of(model).encrypted)

    def value_of(self, record: Any, name: str) -> Any:
        """Return the value of a field for a page, without that of an encrypted one."""
        value = getattr(record, name, None)
        return HIDDEN if value is not None and name in self.hidden_fields(record.__class__) else value

    def allows(self, request: Request, action: AdminAction, model: type[KvModel] | None = None) -> bool:
        """Return whether the user of a request may do this."""
        if self.readonly and action in _WRITES:
            return False
        return self.permission is None or self.permission(request, action, model)

    def require(self, request: Request, action: AdminAction, model: type[KvModel] | None = None) -> None:
        """Raise HTTPException 403 if the user of a request may not do this."""
        if not self.allows(request, action, model):
            raise HTTPException(403, "This is not allowed." if not self.readonly else "This page is read-only.")
