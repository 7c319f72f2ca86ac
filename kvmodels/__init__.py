"""kvmodels: ORM-style secondary indexes for Pydantic models on an ordered key-value store.

Every public name is imported from here. What is reachable only through a submodule may change with any release.

Rules of this module: a name is loaded when it is first asked for, as pydantic does, so that a synchronous program does
not pay for the asynchronous half. Type checkers read the imports under ``TYPE_CHECKING``; a test compares them with the
table that is used at run time, and no other module may have such imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kvmodels.deferred import deferred_modules

if TYPE_CHECKING:
    from kvmodels.database import Database
    from kvmodels.database_async import AsyncDatabase
    from kvmodels.encoding.key_number import KeyNumber
    from kvmodels.errors import (
        AlreadyExistsError,
        ClosedError,
        CommitUnknownError,
        ConcurrencyError,
        DecodeError,
        DoesNotExist,
        EngineError,
        EngineTimeoutError,
        ForeignFileError,
        IndexChangedError,
        IndexNotReadyError,
        IntegrityError,
        InvalidArgumentError,
        InvalidCursorError,
        InvalidKeyError,
        InvalidValueError,
        KeyTooLargeError,
        KvModelsError,
        LimitExceededError,
        LockLostError,
        ModelDefinitionError,
        MultipleObjectsReturned,
        NonIdempotentValidatorError,
        NoUsableIndexError,
        OperationTooLargeError,
        PrimaryKeyChangedError,
        QueryError,
        ReadOnlyError,
        ReservedKeyError,
        ResumeExpiredError,
        RetriesExhaustedError,
        SchemaChangeRefusedError,
        SchemaError,
        SchemaMismatchError,
        SnapshotExpiredError,
        StaleObjectError,
        StorageFullError,
        TransactionAbortedError,
        TransactionConflictError,
        UniqueViolationError,
        UnknownFieldError,
        UnknownLookupError,
        UnsupportedError,
        ValueTooLargeError,
    )
    from kvmodels.flows.build import BuildReport, IndexViolation
    from kvmodels.flows.bulk import BulkItem
    from kvmodels.flows.bulk_results import BulkFailure, BulkProgress, BulkResult
    from kvmodels.flows.findings import CheckReport
    from kvmodels.flows.migrate import MigrationReport
    from kvmodels.flows.pace import SchemaProgress
    from kvmodels.flows.plan_apply import SchemaReport
    from kvmodels.flows.retrying import RetryPolicy
    from kvmodels.flows.violations import RecordViolation
    from kvmodels.keys import COMMIT_VERSIONSTAMP
    from kvmodels.kv import Kv, open_kv
    from kvmodels.kv_async import AsyncKv, open_async_kv
    from kvmodels.limits import Limits
    from kvmodels.query.aggregation import Avg, Count, Max, Min, Sum
    from kvmodels.query.page import Page
    from kvmodels.query.plans import QueryPlan
    from kvmodels.queryset import QuerySet
    from kvmodels.queryset_async import AsyncQuerySet
    from kvmodels.repository import Repository
    from kvmodels.repository_async import AsyncRepository
    from kvmodels.schema.changes import F
    from kvmodels.schema.evolution import PlanStep, RefusedRecord, SchemaPlan
    from kvmodels.schema.expressions import Expression, FieldRef, MultiFieldRef, Q, col
    from kvmodels.schema.markers import (
        AggregateIndex,
        Field,
        Index,
        Indexed,
        MultiIndexed,
        PrimaryKey,
        Stored,
        Unique,
        UniqueConstraint,
    )
    from kvmodels.schema.model import KvModel
    from kvmodels.schema.time_fields import AutoNow, AutoNowAdd, Version
    from kvmodels.schema.upgrades import Upgrade, upgrade
    from kvmodels.transaction import Transaction
    from kvmodels.transaction_async import AsyncTransaction
    from kvmodels.ulid import ULID
    from kvmodels.values import UNDEFINED, KvMap, KvU64

__all__ = [
    "COMMIT_VERSIONSTAMP",
    "ULID",
    "UNDEFINED",
    "AggregateIndex",
    "AlreadyExistsError",
    "AsyncDatabase",
    "AsyncKv",
    "AsyncQuerySet",
    "AsyncRepository",
    "AsyncTransaction",
    "AutoNow",
    "AutoNowAdd",
    "Avg",
    "BuildReport",
    "BulkFailure",
    "BulkItem",
    "BulkProgress",
    "BulkResult",
    "CheckReport",
    "ClosedError",
    "CommitUnknownError",
    "ConcurrencyError",
    "Count",
    "Database",
    "DecodeError",
    "DoesNotExist",
    "EngineError",
    "EngineTimeoutError",
    "Expression",
    "F",
    "Field",
    "FieldRef",
    "ForeignFileError",
    "Index",
    "IndexChangedError",
    "IndexNotReadyError",
    "IndexViolation",
    "Indexed",
    "IntegrityError",
    "InvalidArgumentError",
    "InvalidCursorError",
    "InvalidKeyError",
    "InvalidValueError",
    "KeyNumber",
    "KeyTooLargeError",
    "Kv",
    "KvMap",
    "KvModel",
    "KvModelsError",
    "KvU64",
    "LimitExceededError",
    "Limits",
    "LockLostError",
    "Max",
    "MigrationReport",
    "Min",
    "ModelDefinitionError",
    "MultiFieldRef",
    "MultiIndexed",
    "MultipleObjectsReturned",
    "NoUsableIndexError",
    "NonIdempotentValidatorError",
    "OperationTooLargeError",
    "Page",
    "PlanStep",
    "PrimaryKey",
    "PrimaryKeyChangedError",
    "Q",
    "QueryError",
    "QueryPlan",
    "QuerySet",
    "ReadOnlyError",
    "RecordViolation",
    "RefusedRecord",
    "Repository",
    "ReservedKeyError",
    "ResumeExpiredError",
    "RetriesExhaustedError",
    "RetryPolicy",
    "SchemaChangeRefusedError",
    "SchemaError",
    "SchemaMismatchError",
    "SchemaPlan",
    "SchemaProgress",
    "SchemaReport",
    "SnapshotExpiredError",
    "StaleObjectError",
    "StorageFullError",
    "Stored",
    "Sum",
    "Transaction",
    "TransactionAbortedError",
    "TransactionConflictError",
    "Unique",
    "UniqueConstraint",
    "UniqueViolationError",
    "UnknownFieldError",
    "UnknownLookupError",
    "UnsupportedError",
    "Upgrade",
    "ValueTooLargeError",
    "Version",
    "col",
    "open_async_kv",
    "open_kv",
    "upgrade",
]

_NAMES_OF = {
    "database": "Database",
    "database_async": "AsyncDatabase",
    "encoding.key_number": "KeyNumber",
    "errors": (
        "AlreadyExistsError ClosedError CommitUnknownError ConcurrencyError DecodeError DoesNotExist "
        "EngineError EngineTimeoutError ForeignFileError IndexChangedError IndexNotReadyError IntegrityError "
        "InvalidArgumentError InvalidCursorError InvalidKeyError InvalidValueError KeyTooLargeError "
        "KvModelsError LimitExceededError LockLostError ModelDefinitionError MultipleObjectsReturned "
        "NonIdempotentValidatorError NoUsableIndexError OperationTooLargeError PrimaryKeyChangedError "
        "QueryError ReadOnlyError ReservedKeyError ResumeExpiredError RetriesExhaustedError "
        "SchemaChangeRefusedError SchemaError SchemaMismatchError SnapshotExpiredError StaleObjectError "
        "StorageFullError TransactionAbortedError TransactionConflictError UniqueViolationError "
        "UnknownFieldError UnknownLookupError UnsupportedError ValueTooLargeError"
    ),
    "flows.build": "BuildReport IndexViolation",
    "flows.bulk": "BulkItem",
    "flows.bulk_results": "BulkFailure BulkProgress BulkResult",
    "flows.retrying": "RetryPolicy",
    "flows.findings": "CheckReport",
    "flows.migrate": "MigrationReport",
    "flows.pace": "SchemaProgress",
    "flows.plan_apply": "SchemaReport",
    "flows.violations": "RecordViolation",
    "keys": "COMMIT_VERSIONSTAMP",
    "kv": "Kv open_kv",
    "kv_async": "AsyncKv open_async_kv",
    "limits": "Limits",
    "query.aggregation": "Avg Count Max Min Sum",
    "query.page": "Page",
    "query.plans": "QueryPlan",
    "queryset": "QuerySet",
    "queryset_async": "AsyncQuerySet",
    "repository": "Repository",
    "repository_async": "AsyncRepository",
    "schema.changes": "F",
    "schema.evolution": "PlanStep RefusedRecord SchemaPlan",
    "schema.expressions": "Expression FieldRef MultiFieldRef Q col",
    "schema.markers": "AggregateIndex Field Index Indexed MultiIndexed PrimaryKey Stored Unique UniqueConstraint",
    "schema.model": "KvModel",
    "schema.time_fields": "AutoNow AutoNowAdd Version",
    "schema.upgrades": "Upgrade upgrade",
    "transaction": "Transaction",
    "transaction_async": "AsyncTransaction",
    "ulid": "ULID",
    "values": "UNDEFINED KvMap KvU64",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


# What the modules of the package itself load late; users import modules by their paths.
_deferred = deferred_modules(
    __name__,
    "database_core",
    "drivers",
    "drivers_lookups",
    "kv",
    "kv_opening",
    "repository",
    "signals",
    "spelling",
    "transaction",
    "transaction_scope",
)


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        return _deferred(name)
    loaded = import_module(f"{__name__}.{module}")
    for public in _NAMES_OF[module].split():
        globals()[public] = getattr(loaded, public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
