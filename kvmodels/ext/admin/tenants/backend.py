"""The database behind the pages of a tenant, which all tenants share.

Rules of this module: the tenant is that of the request, and of the jobs that it starts. All tenants have the models of
the store, so a page keeps nothing of one tenant without its name.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from kvmodels.ext.admin.backend import Backend
from kvmodels.schema.compile.model import KvModel

_TENANT: Final[ContextVar[str]] = ContextVar("kvmodels_admin_tenant")


class TenantBackend(Backend):
    """The database of the tenant of a request.

    Args:
        whole: that of the store.
    """

    def __init__(self, whole: Backend) -> None:
        super().__init__(
            whole.store,
            readonly=whole.readonly,
            permission=whole.permission,
            show_encrypted=whole.shows_encrypted,
        )

    @property
    def tenant(self) -> str | None:
        """Return the name of the tenant of the request."""
        return _TENANT.get()

    @property
    def db(self) -> Any:
        """Return the database of the tenant."""
        return self.store.tenant(_TENANT.get())

    @property
    def declared(self) -> tuple[type[KvModel], ...]:
        """Return the models of tenants."""
        models: tuple[type[KvModel], ...] = self.store.tenant_models
        return models

    @property
    def tenant_models(self) -> tuple[type[KvModel], ...]:
        """Return nothing: a tenant has no tenants."""
        return ()

    @contextmanager
    def entered(self, tenant: str) -> Generator[None]:
        """Return a context manager in which a request is one of this tenant."""
        token = _TENANT.set(tenant)
        try:
            yield
        finally:
            _TENANT.reset(token)
