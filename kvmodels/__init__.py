"""kvmodels: ORM-style secondary indexes for Pydantic models on an ordered key-value store.

Every public name can be imported from here. Names that are only in submodules may change in any release.

Rules of this module: names other than errors are loaded at first use, as in pydantic, so that a synchronous program
does not load the asynchronous half. Type checkers read the imports under ``TYPE_CHECKING``; a test compares them with
the run-time table, and no other module may have such imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kvmodels.errors import (
    AlreadyExistsError,
    CatalogueFullError,
    ClosedError,
    CommitUnknownError,
    ConcurrencyError,
    DanglingReferenceError,
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
    InvalidLookupError,
    InvalidValueError,
    KeyTooLargeError,
    KvModelsError,
    LimitExceededError,
    LoadConflictError,
    LockLostError,
    ModelDefinitionError,
    MultipleObjectsReturned,
    NonIdempotentValidatorError,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKeyChangedError,
    ProtectedError,
    QueryError,
    ReadOnlyError,
    ReferenceViolationError,
    ReservedKeyError,
    ResumeExpiredError,
    RetriesExhaustedError,
    SchemaChangeRefusedError,
    SchemaError,
    SchemaMismatchError,
    SnapshotExpiredError,
    SnapshotLostError,
    StaleObjectError,
    StorageFullError,
    TransactionAbortedError,
    TransactionConflictError,
    TransactionSuspendedError,
    UniqueViolationError,
    UnknownFieldError,
    UnknownLookupError,
    UnsupportedError,
    ValueTooLargeError,
)

if TYPE_CHECKING:
    from kvmodels.api._async.database import AsyncDatabase
    from kvmodels.api._async.kv import AsyncKv, open_async_kv
    from kvmodels.api._async.queryset import AsyncQuerySet
    from kvmodels.api._async.repository import AsyncRepository
    from kvmodels.api._async.transaction import AsyncTransaction
    from kvmodels.api._sync.database import Database
    from kvmodels.api._sync.kv import Kv, open_kv
    from kvmodels.api._sync.queryset import QuerySet
    from kvmodels.api._sync.repository import Repository
    from kvmodels.api._sync.transaction import Transaction
    from kvmodels.api.settings import DatabaseSettings
    from kvmodels.catalog.evolution import PlanStep, RefusedRecord, SchemaPlan
    from kvmodels.core.keys import COMMIT_VERSIONSTAMP
    from kvmodels.core.ulid import ULID
    from kvmodels.core.values import UNDEFINED, KeyNumber, KvMap, KvU64
    from kvmodels.flows.bulk.options_and_results import BulkFailure, BulkItem, BulkProgress, BulkResult
    from kvmodels.flows.check.findings import CheckReport
    from kvmodels.flows.describe.catalogue import CollectionDescription, IndexStatus
    from kvmodels.flows.describe.keys import KeyExplanation
    from kvmodels.flows.describe.stats import CollectionStats, IndexStats, RowStats, StoreStats
    from kvmodels.flows.evolution.apply import SchemaReport
    from kvmodels.flows.evolution.batches import IndexViolation
    from kvmodels.flows.evolution.build import BuildReport
    from kvmodels.flows.evolution.migrate import MigrationReport
    from kvmodels.flows.evolution.throttle import SchemaProgress
    from kvmodels.flows.evolution.violations import RecordViolation
    from kvmodels.flows.kv.record_watch import ChangedRecord
    from kvmodels.flows.retry_policy import RetryPolicy
    from kvmodels.flows.transfer.load import LoadResult
    from kvmodels.limits import Limits
    from kvmodels.query.aggregates import Avg, Count, Max, Min, Sum
    from kvmodels.query.plans import QueryPlan
    from kvmodels.query.query import Page
    from kvmodels.query.text_lookups import ParsedLookups, parse_lookups
    from kvmodels.runtime.observing.counters import Metrics, OperationCounters
    from kvmodels.runtime.observing.logs import QueryLog, SlowLog
    from kvmodels.runtime.observing.operation import FinishedOperation, Observer
    from kvmodels.schema.compile.model import KvModel
    from kvmodels.schema.compile.request_bodies import Creation, Partial
    from kvmodels.schema.declare.expressions import Expression, FieldRef, ForeignKeyRef, MultiFieldRef, Q, col
    from kvmodels.schema.declare.markers import (
        AUTO,
        CASCADE,
        PROTECT,
        SET_NULL,
        AggregateIndex,
        Field,
        ForeignKey,
        Index,
        Indexed,
        MultiIndexed,
        PrimaryKey,
        Stored,
        Unique,
        UniqueConstraint,
    )
    from kvmodels.schema.declare.on_write import AutoNow, AutoNowAdd, Version
    from kvmodels.schema.definition.upgrades import Upgrade, upgrade
    from kvmodels.schema.describe.describe import (
        ColumnDescription,
        FieldDescription,
        IndexDescription,
        ModelDescription,
        describe,
    )
    from kvmodels.schema.filters.changes import F

__all__ = [
    "AUTO",
    "CASCADE",
    "COMMIT_VERSIONSTAMP",
    "PROTECT",
    "SET_NULL",
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
    "CatalogueFullError",
    "ChangedRecord",
    "CheckReport",
    "ClosedError",
    "CollectionDescription",
    "CollectionStats",
    "ColumnDescription",
    "CommitUnknownError",
    "ConcurrencyError",
    "Count",
    "Creation",
    "DanglingReferenceError",
    "Database",
    "DatabaseSettings",
    "DecodeError",
    "DoesNotExist",
    "EngineError",
    "EngineTimeoutError",
    "Expression",
    "F",
    "Field",
    "FieldDescription",
    "FieldRef",
    "FinishedOperation",
    "ForeignFileError",
    "ForeignKey",
    "ForeignKeyRef",
    "Index",
    "IndexChangedError",
    "IndexDescription",
    "IndexNotReadyError",
    "IndexStats",
    "IndexStatus",
    "IndexViolation",
    "Indexed",
    "IntegrityError",
    "InvalidArgumentError",
    "InvalidCursorError",
    "InvalidKeyError",
    "InvalidLookupError",
    "InvalidValueError",
    "KeyExplanation",
    "KeyNumber",
    "KeyTooLargeError",
    "Kv",
    "KvMap",
    "KvModel",
    "KvModelsError",
    "KvU64",
    "LimitExceededError",
    "Limits",
    "LoadConflictError",
    "LoadResult",
    "LockLostError",
    "Max",
    "Metrics",
    "MigrationReport",
    "Min",
    "ModelDefinitionError",
    "ModelDescription",
    "MultiFieldRef",
    "MultiIndexed",
    "MultipleObjectsReturned",
    "NoUsableIndexError",
    "NonIdempotentValidatorError",
    "Observer",
    "OperationCounters",
    "OperationTooLargeError",
    "Page",
    "ParsedLookups",
    "Partial",
    "PlanStep",
    "PrimaryKey",
    "PrimaryKeyChangedError",
    "ProtectedError",
    "Q",
    "QueryError",
    "QueryLog",
    "QueryPlan",
    "QuerySet",
    "ReadOnlyError",
    "RecordViolation",
    "ReferenceViolationError",
    "RefusedRecord",
    "Repository",
    "ReservedKeyError",
    "ResumeExpiredError",
    "RetriesExhaustedError",
    "RetryPolicy",
    "RowStats",
    "SchemaChangeRefusedError",
    "SchemaError",
    "SchemaMismatchError",
    "SchemaPlan",
    "SchemaProgress",
    "SchemaReport",
    "SlowLog",
    "SnapshotExpiredError",
    "SnapshotLostError",
    "StaleObjectError",
    "StorageFullError",
    "StoreStats",
    "Stored",
    "Sum",
    "Transaction",
    "TransactionAbortedError",
    "TransactionConflictError",
    "TransactionSuspendedError",
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
    "describe",
    "open_async_kv",
    "open_kv",
    "parse_lookups",
    "upgrade",
]

_NAMES_OF = {
    "api._async.database": "AsyncDatabase",
    "api._async.kv": "AsyncKv open_async_kv",
    "api._async.queryset": "AsyncQuerySet",
    "api._async.repository": "AsyncRepository",
    "api._async.transaction": "AsyncTransaction",
    "api._sync.database": "Database",
    "api._sync.kv": "Kv open_kv",
    "api._sync.queryset": "QuerySet",
    "api._sync.repository": "Repository",
    "api._sync.transaction": "Transaction",
    "api.settings": "DatabaseSettings",
    "catalog.evolution": "PlanStep RefusedRecord SchemaPlan",
    "core.keys": "COMMIT_VERSIONSTAMP",
    "core.ulid": "ULID",
    "core.values": "KeyNumber KvMap KvU64 UNDEFINED",
    "flows.bulk.options_and_results": "BulkFailure BulkItem BulkProgress BulkResult",
    "flows.check.findings": "CheckReport",
    "flows.describe.catalogue": "CollectionDescription IndexStatus",
    "flows.describe.keys": "KeyExplanation",
    "flows.describe.stats": "CollectionStats IndexStats RowStats StoreStats",
    "flows.evolution.apply": "SchemaReport",
    "flows.evolution.batches": "IndexViolation",
    "flows.evolution.build": "BuildReport",
    "flows.evolution.migrate": "MigrationReport",
    "flows.evolution.throttle": "SchemaProgress",
    "flows.evolution.violations": "RecordViolation",
    "flows.kv.record_watch": "ChangedRecord",
    "flows.retry_policy": "RetryPolicy",
    "flows.transfer.load": "LoadResult",
    "limits": "Limits",
    "query.aggregates": "Avg Count Max Min Sum",
    "query.plans": "QueryPlan",
    "query.query": "Page",
    "query.text_lookups": "ParsedLookups parse_lookups",
    "runtime.observing.counters": "Metrics OperationCounters",
    "runtime.observing.logs": "QueryLog SlowLog",
    "runtime.observing.operation": "FinishedOperation Observer",
    "schema.compile.model": "KvModel",
    "schema.compile.request_bodies": "Creation Partial",
    "schema.declare.expressions": "Expression FieldRef ForeignKeyRef MultiFieldRef Q col",
    "schema.declare.markers": (
        "AUTO AggregateIndex CASCADE Field ForeignKey Index Indexed MultiIndexed PROTECT PrimaryKey SET_NULL Stored "
        "Unique UniqueConstraint"
    ),
    "schema.declare.on_write": "AutoNow AutoNowAdd Version",
    "schema.definition.upgrades": "Upgrade upgrade",
    "schema.describe.describe": "ColumnDescription FieldDescription IndexDescription ModelDescription describe",
    "schema.filters.changes": "F",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = import_module(f"{__name__}.{module}")
    for public in _NAMES_OF[module].split():
        globals()[public] = getattr(loaded, public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
