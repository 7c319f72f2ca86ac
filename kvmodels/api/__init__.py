"""The public facades, and the code that the synchronous and the asynchronous ones share."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "core",
    "deno_file",
    "dump_files",
    "opening",
    "schema_arguments",
    "scope",
    "tenancy",
    "tenant_changes",
)
