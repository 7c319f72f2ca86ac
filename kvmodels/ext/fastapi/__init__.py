"""Parts of a FastAPI service, which the extra ``kvmodels[fastapi]`` installs FastAPI for.

Rules of this package: each part is a dependency, a handler or a function of its own, and a service uses those that it
wants. Nothing generates endpoints. No other module imports this one, so that the package works without FastAPI.
"""

from __future__ import annotations

from kvmodels.errors import UnsupportedError

try:
    import fastapi as _fastapi
except ModuleNotFoundError as missing:
    if missing.name != "fastapi":
        raise
    raise UnsupportedError(
        "the parts of a FastAPI service need a package that is not installed",
        reason="fastapi",
        hint="Install it: pip install 'kvmodels[fastapi]'.",
    ) from missing

from kvmodels.ext.blob_response import BlobResponse
from kvmodels.ext.fastapi.actors import acting
from kvmodels.ext.fastapi.changes import RecordChanges as Changes
from kvmodels.ext.fastapi.changes import RecordEvent
from kvmodels.ext.fastapi.databases import AsyncRepo, Repo, database, lifespan, repository, tenant_database
from kvmodels.ext.fastapi.health import Health, health
from kvmodels.ext.fastapi.lookups import LookupParameters, Lookups
from kvmodels.ext.fastapi.paging import Paging
from kvmodels.ext.fastapi.preconditions import Precondition, RequiredPrecondition
from kvmodels.ext.fastapi.problems import PROBLEM_STATUS, FieldProblem, Problem, add_error_handlers, problems
from kvmodels.ext.fastapi.pulling import ChangedSince, ChangesPage
from kvmodels.ext.fastapi.transactions import AsyncRequestTransaction, RequestTransaction
from kvmodels.ext.fastapi.versions import Versioned, versioned

__all__ = [
    "PROBLEM_STATUS",
    "AsyncRepo",
    "AsyncRequestTransaction",
    "BlobResponse",
    "ChangedSince",
    "Changes",
    "ChangesPage",
    "FieldProblem",
    "Health",
    "LookupParameters",
    "Lookups",
    "Paging",
    "Precondition",
    "Problem",
    "RecordEvent",
    "Repo",
    "RequestTransaction",
    "RequiredPrecondition",
    "Versioned",
    "acting",
    "add_error_handlers",
    "database",
    "health",
    "lifespan",
    "problems",
    "repository",
    "tenant_database",
    "versioned",
]

del _fastapi
