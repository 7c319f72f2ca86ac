# Generated from kvmodels/__init__.py by tools/public_names.py. Do not edit.
from kvmodels.api._async.board import AsyncBoard as AsyncBoard
from kvmodels.api._async.database import AsyncDatabase as AsyncDatabase
from kvmodels.api._async.feeds.follower import AsyncFollower as AsyncFollower
from kvmodels.api._async.kv import AsyncKv as AsyncKv
from kvmodels.api._async.kv import open_async_kv as open_async_kv
from kvmodels.api._async.queryset import AsyncQuerySet as AsyncQuerySet
from kvmodels.api._async.ranked import AsyncRankedQuery as AsyncRankedQuery
from kvmodels.api._async.relations.links import AsyncLinks as AsyncLinks
from kvmodels.api._async.repository import AsyncRepository as AsyncRepository
from kvmodels.api._async.transaction import AsyncTransaction as AsyncTransaction
from kvmodels.api._sync.board import Board as Board
from kvmodels.api._sync.database import Database as Database
from kvmodels.api._sync.feeds.follower import Follower as Follower
from kvmodels.api._sync.kv import Kv as Kv
from kvmodels.api._sync.kv import open_kv as open_kv
from kvmodels.api._sync.queryset import QuerySet as QuerySet
from kvmodels.api._sync.ranked import RankedQuery as RankedQuery
from kvmodels.api._sync.relations.links import Links as Links
from kvmodels.api._sync.repository import Repository as Repository
from kvmodels.api._sync.transaction import Transaction as Transaction
from kvmodels.api.settings import DatabaseSettings as DatabaseSettings
from kvmodels.catalog.evolution import PlanStep as PlanStep
from kvmodels.catalog.evolution import RefusedRecord as RefusedRecord
from kvmodels.catalog.evolution import SchemaPlan as SchemaPlan
from kvmodels.codecs.sealing.key_ring import KeyProvider as KeyProvider
from kvmodels.codecs.sealing.key_ring import KeyRing as KeyRing
from kvmodels.core.keys import COMMIT_VERSIONSTAMP as COMMIT_VERSIONSTAMP
from kvmodels.core.ulid import ULID as ULID
from kvmodels.core.values import UNDEFINED as UNDEFINED
from kvmodels.core.values import KeyNumber as KeyNumber
from kvmodels.core.values import KvMap as KvMap
from kvmodels.core.values import KvU64 as KvU64
from kvmodels.errors import AlreadyExistsError as AlreadyExistsError
from kvmodels.errors import BlobGoneError as BlobGoneError
from kvmodels.errors import BlobTooLargeError as BlobTooLargeError
from kvmodels.errors import CatalogueFullError as CatalogueFullError
from kvmodels.errors import ClosedError as ClosedError
from kvmodels.errors import CommitUnknownError as CommitUnknownError
from kvmodels.errors import ConcurrencyError as ConcurrencyError
from kvmodels.errors import DanglingReferenceError as DanglingReferenceError
from kvmodels.errors import DecodeError as DecodeError
from kvmodels.errors import DecryptionError as DecryptionError
from kvmodels.errors import DoesNotExist as DoesNotExist
from kvmodels.errors import EngineError as EngineError
from kvmodels.errors import EngineTimeoutError as EngineTimeoutError
from kvmodels.errors import ExclusionViolationError as ExclusionViolationError
from kvmodels.errors import ForeignFileError as ForeignFileError
from kvmodels.errors import HistoryExpiredError as HistoryExpiredError
from kvmodels.errors import IndexChangedError as IndexChangedError
from kvmodels.errors import IndexNotReadyError as IndexNotReadyError
from kvmodels.errors import IntegrityError as IntegrityError
from kvmodels.errors import InvalidArgumentError as InvalidArgumentError
from kvmodels.errors import InvalidCursorError as InvalidCursorError
from kvmodels.errors import InvalidKeyError as InvalidKeyError
from kvmodels.errors import InvalidLookupError as InvalidLookupError
from kvmodels.errors import InvalidValueError as InvalidValueError
from kvmodels.errors import KeyTooLargeError as KeyTooLargeError
from kvmodels.errors import KvModelsError as KvModelsError
from kvmodels.errors import LimitExceededError as LimitExceededError
from kvmodels.errors import LoadConflictError as LoadConflictError
from kvmodels.errors import LockLostError as LockLostError
from kvmodels.errors import ModelDefinitionError as ModelDefinitionError
from kvmodels.errors import MultipleObjectsReturned as MultipleObjectsReturned
from kvmodels.errors import NonIdempotentValidatorError as NonIdempotentValidatorError
from kvmodels.errors import NoUsableIndexError as NoUsableIndexError
from kvmodels.errors import OperationTooLargeError as OperationTooLargeError
from kvmodels.errors import PrimaryKeyChangedError as PrimaryKeyChangedError
from kvmodels.errors import ProtectedError as ProtectedError
from kvmodels.errors import QueryError as QueryError
from kvmodels.errors import ReadOnlyError as ReadOnlyError
from kvmodels.errors import ReferenceViolationError as ReferenceViolationError
from kvmodels.errors import ReservedKeyError as ReservedKeyError
from kvmodels.errors import ResumeExpiredError as ResumeExpiredError
from kvmodels.errors import RetriesExhaustedError as RetriesExhaustedError
from kvmodels.errors import SchemaChangeRefusedError as SchemaChangeRefusedError
from kvmodels.errors import SchemaError as SchemaError
from kvmodels.errors import SchemaMismatchError as SchemaMismatchError
from kvmodels.errors import SinkPositionError as SinkPositionError
from kvmodels.errors import SnapshotExpiredError as SnapshotExpiredError
from kvmodels.errors import SnapshotLostError as SnapshotLostError
from kvmodels.errors import StaleObjectError as StaleObjectError
from kvmodels.errors import StorageFullError as StorageFullError
from kvmodels.errors import TenantError as TenantError
from kvmodels.errors import TenantModelError as TenantModelError
from kvmodels.errors import TenantNotFoundError as TenantNotFoundError
from kvmodels.errors import TenantRemovedError as TenantRemovedError
from kvmodels.errors import TransactionAbortedError as TransactionAbortedError
from kvmodels.errors import TransactionConflictError as TransactionConflictError
from kvmodels.errors import TransactionSuspendedError as TransactionSuspendedError
from kvmodels.errors import UniqueViolationError as UniqueViolationError
from kvmodels.errors import UnknownFieldError as UnknownFieldError
from kvmodels.errors import UnknownLookupError as UnknownLookupError
from kvmodels.errors import UnsupportedError as UnsupportedError
from kvmodels.errors import ValueTooLargeError as ValueTooLargeError
from kvmodels.flows.bulk.import_results import ImportResult as ImportResult
from kvmodels.flows.bulk.import_results import RejectedRow as RejectedRow
from kvmodels.flows.bulk.options_and_results import BulkFailure as BulkFailure
from kvmodels.flows.bulk.options_and_results import BulkItem as BulkItem
from kvmodels.flows.bulk.options_and_results import BulkProgress as BulkProgress
from kvmodels.flows.bulk.options_and_results import BulkResult as BulkResult
from kvmodels.flows.check.findings import CheckReport as CheckReport
from kvmodels.flows.check.tenants import TenantsCheck as TenantsCheck
from kvmodels.flows.describe.catalogue import CollectionDescription as CollectionDescription
from kvmodels.flows.describe.catalogue import IndexStatus as IndexStatus
from kvmodels.flows.describe.keys import KeyExplanation as KeyExplanation
from kvmodels.flows.describe.stats import CollectionStats as CollectionStats
from kvmodels.flows.describe.stats import IndexStats as IndexStats
from kvmodels.flows.describe.stats import RowStats as RowStats
from kvmodels.flows.describe.stats import StoreStats as StoreStats
from kvmodels.flows.describe.tenants import TenantsStats as TenantsStats
from kvmodels.flows.evolution.apply import SchemaReport as SchemaReport
from kvmodels.flows.evolution.batches import IndexViolation as IndexViolation
from kvmodels.flows.evolution.build import BuildReport as BuildReport
from kvmodels.flows.evolution.migrate import MigrationReport as MigrationReport
from kvmodels.flows.evolution.rotation import RotationReport as RotationReport
from kvmodels.flows.evolution.throttle import SchemaProgress as SchemaProgress
from kvmodels.flows.evolution.violations import RecordViolation as RecordViolation
from kvmodels.flows.feeds.changed_since import ChangePage as ChangePage
from kvmodels.flows.feeds.follow import FollowReport as FollowReport
from kvmodels.flows.feeds.position import Position as Position
from kvmodels.flows.feeds.sink import ChangeBatch as ChangeBatch
from kvmodels.flows.feeds.sink import FollowedChange as FollowedChange
from kvmodels.flows.feeds.sink import Sink as Sink
from kvmodels.flows.history.restoring import LeftOut as LeftOut
from kvmodels.flows.history.restoring import Restored as Restored
from kvmodels.flows.history.versions import Revision as Revision
from kvmodels.flows.history.versions import RevisionEnd as RevisionEnd
from kvmodels.flows.kv.record_watch import ChangedRecord as ChangedRecord
from kvmodels.flows.retry_policy import RetryPolicy as RetryPolicy
from kvmodels.flows.scans import ScanWarning as ScanWarning
from kvmodels.flows.tenant_schemas import TenantFailure as TenantFailure
from kvmodels.flows.tenant_schemas import TenantGroup as TenantGroup
from kvmodels.flows.tenant_schemas import TenantProgress as TenantProgress
from kvmodels.flows.tenant_schemas import TenantsPlan as TenantsPlan
from kvmodels.flows.tenant_schemas import TenantsReport as TenantsReport
from kvmodels.flows.tenants import TenantStatus as TenantStatus
from kvmodels.flows.transfer.load import LoadResult as LoadResult
from kvmodels.limits import Limits as Limits
from kvmodels.query.aggregates import Avg as Avg
from kvmodels.query.aggregates import Count as Count
from kvmodels.query.aggregates import Max as Max
from kvmodels.query.aggregates import Min as Min
from kvmodels.query.aggregates import Sum as Sum
from kvmodels.query.child_counts import Exists as Exists
from kvmodels.query.hits import Hit as Hit
from kvmodels.query.hits import SearchHit as SearchHit
from kvmodels.query.planning.boards import BoardPlan as BoardPlan
from kvmodels.query.plans import QueryPlan as QueryPlan
from kvmodels.query.query import Page as Page
from kvmodels.query.text_lookups import ParsedLookups as ParsedLookups
from kvmodels.query.text_lookups import parse_lookups as parse_lookups
from kvmodels.query.truncation import Trunc as Trunc
from kvmodels.runtime.observing.counters import Metrics as Metrics
from kvmodels.runtime.observing.counters import OperationCounters as OperationCounters
from kvmodels.runtime.observing.logs import QueryLog as QueryLog
from kvmodels.runtime.observing.logs import SlowLog as SlowLog
from kvmodels.runtime.observing.operation import FinishedOperation as FinishedOperation
from kvmodels.runtime.observing.operation import Observer as Observer
from kvmodels.schema.blobs.blob import Blob as Blob
from kvmodels.schema.blobs.files import BlobFile as BlobFile
from kvmodels.schema.blobs.files import BlobStream as BlobStream
from kvmodels.schema.blobs.files import OpenBlob as OpenBlob
from kvmodels.schema.compile.model import KvModel as KvModel
from kvmodels.schema.compile.request_bodies import Creation as Creation
from kvmodels.schema.compile.request_bodies import Partial as Partial
from kvmodels.schema.declare.annotations import Stored as Stored
from kvmodels.schema.declare.declarations import AggregateIndex as AggregateIndex
from kvmodels.schema.declare.declarations import Index as Index
from kvmodels.schema.declare.declarations import UniqueConstraint as UniqueConstraint
from kvmodels.schema.declare.encrypted import Encrypted as Encrypted
from kvmodels.schema.declare.expressions import Expression as Expression
from kvmodels.schema.declare.expressions import FieldRef as FieldRef
from kvmodels.schema.declare.expressions import ForeignKeyRef as ForeignKeyRef
from kvmodels.schema.declare.expressions import MultiFieldRef as MultiFieldRef
from kvmodels.schema.declare.expressions import Q as Q
from kvmodels.schema.declare.expressions import col as col
from kvmodels.schema.declare.history import History as History
from kvmodels.schema.declare.many_to_many import ManyToMany as ManyToMany
from kvmodels.schema.declare.many_to_many_ref import ManyToManyRef as ManyToManyRef
from kvmodels.schema.declare.markers import AUTO as AUTO
from kvmodels.schema.declare.markers import CASCADE as CASCADE
from kvmodels.schema.declare.markers import PROTECT as PROTECT
from kvmodels.schema.declare.markers import SET_NULL as SET_NULL
from kvmodels.schema.declare.markers import Field as Field
from kvmodels.schema.declare.markers import ForeignKey as ForeignKey
from kvmodels.schema.declare.markers import Indexed as Indexed
from kvmodels.schema.declare.markers import MultiIndexed as MultiIndexed
from kvmodels.schema.declare.markers import PrimaryKey as PrimaryKey
from kvmodels.schema.declare.markers import Unique as Unique
from kvmodels.schema.declare.on_write import AutoNow as AutoNow
from kvmodels.schema.declare.on_write import AutoNowAdd as AutoNowAdd
from kvmodels.schema.declare.on_write import Version as Version
from kvmodels.schema.definition.upgrades import Upgrade as Upgrade
from kvmodels.schema.definition.upgrades import upgrade as upgrade
from kvmodels.schema.describe.describe import ColumnDescription as ColumnDescription
from kvmodels.schema.describe.describe import FieldDescription as FieldDescription
from kvmodels.schema.describe.describe import HistoryDescription as HistoryDescription
from kvmodels.schema.describe.describe import IndexDescription as IndexDescription
from kvmodels.schema.describe.describe import ModelDescription as ModelDescription
from kvmodels.schema.describe.describe import describe as describe
from kvmodels.schema.filters.changes import F as F
from kvmodels.schema.geometry.box import Box as Box
from kvmodels.schema.geometry.circle import Circle as Circle
from kvmodels.schema.geometry.point import GeoPoint as GeoPoint
from kvmodels.schema.geometry.polygon import Polygon as Polygon
from kvmodels.schema.kinds.exclusion import ExclusionConstraint as ExclusionConstraint
from kvmodels.schema.kinds.geo import GeoIndex as GeoIndex
from kvmodels.schema.kinds.interval import IntervalIndex as IntervalIndex
from kvmodels.schema.kinds.rank import RankIndex as RankIndex
from kvmodels.schema.kinds.search import SearchIndex as SearchIndex
from kvmodels.schema.kinds.trigram import TrigramIndex as TrigramIndex
from kvmodels.schema.kinds.vector import VectorIndex as VectorIndex
from kvmodels.schema.vectors.vector import Vector as Vector
from kvmodels.schema.words.search import Search as Search

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
    "AsyncBoard",
    "AsyncDatabase",
    "AsyncFollower",
    "AsyncKv",
    "AsyncLinks",
    "AsyncQuerySet",
    "AsyncRankedQuery",
    "AsyncRepository",
    "AsyncTransaction",
    "AutoNow",
    "AutoNowAdd",
    "Avg",
    "Blob",
    "BlobFile",
    "BlobGoneError",
    "BlobStream",
    "BlobTooLargeError",
    "Board",
    "BoardPlan",
    "Box",
    "BuildReport",
    "BulkFailure",
    "BulkItem",
    "BulkProgress",
    "BulkResult",
    "CatalogueFullError",
    "ChangeBatch",
    "ChangePage",
    "ChangedRecord",
    "CheckReport",
    "Circle",
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
    "DecryptionError",
    "DoesNotExist",
    "Encrypted",
    "EngineError",
    "EngineTimeoutError",
    "ExclusionConstraint",
    "ExclusionViolationError",
    "Exists",
    "Expression",
    "F",
    "Field",
    "FieldDescription",
    "FieldRef",
    "FinishedOperation",
    "FollowReport",
    "FollowedChange",
    "Follower",
    "ForeignFileError",
    "ForeignKey",
    "ForeignKeyRef",
    "GeoIndex",
    "GeoPoint",
    "History",
    "HistoryDescription",
    "HistoryExpiredError",
    "Hit",
    "ImportResult",
    "Index",
    "IndexChangedError",
    "IndexDescription",
    "IndexNotReadyError",
    "IndexStats",
    "IndexStatus",
    "IndexViolation",
    "Indexed",
    "IntegrityError",
    "IntervalIndex",
    "InvalidArgumentError",
    "InvalidCursorError",
    "InvalidKeyError",
    "InvalidLookupError",
    "InvalidValueError",
    "KeyExplanation",
    "KeyNumber",
    "KeyProvider",
    "KeyRing",
    "KeyTooLargeError",
    "Kv",
    "KvMap",
    "KvModel",
    "KvModelsError",
    "KvU64",
    "LeftOut",
    "LimitExceededError",
    "Limits",
    "Links",
    "LoadConflictError",
    "LoadResult",
    "LockLostError",
    "ManyToMany",
    "ManyToManyRef",
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
    "OpenBlob",
    "OperationCounters",
    "OperationTooLargeError",
    "Page",
    "ParsedLookups",
    "Partial",
    "PlanStep",
    "Polygon",
    "Position",
    "PrimaryKey",
    "PrimaryKeyChangedError",
    "ProtectedError",
    "Q",
    "QueryError",
    "QueryLog",
    "QueryPlan",
    "QuerySet",
    "RankIndex",
    "RankedQuery",
    "ReadOnlyError",
    "RecordViolation",
    "ReferenceViolationError",
    "RefusedRecord",
    "RejectedRow",
    "Repository",
    "ReservedKeyError",
    "Restored",
    "ResumeExpiredError",
    "RetriesExhaustedError",
    "RetryPolicy",
    "Revision",
    "RevisionEnd",
    "RotationReport",
    "RowStats",
    "ScanWarning",
    "SchemaChangeRefusedError",
    "SchemaError",
    "SchemaMismatchError",
    "SchemaPlan",
    "SchemaProgress",
    "SchemaReport",
    "Search",
    "SearchHit",
    "SearchIndex",
    "Sink",
    "SinkPositionError",
    "SlowLog",
    "SnapshotExpiredError",
    "SnapshotLostError",
    "StaleObjectError",
    "StorageFullError",
    "StoreStats",
    "Stored",
    "Sum",
    "TenantError",
    "TenantFailure",
    "TenantGroup",
    "TenantModelError",
    "TenantNotFoundError",
    "TenantProgress",
    "TenantRemovedError",
    "TenantStatus",
    "TenantsCheck",
    "TenantsPlan",
    "TenantsReport",
    "TenantsStats",
    "Transaction",
    "TransactionAbortedError",
    "TransactionConflictError",
    "TransactionSuspendedError",
    "TrigramIndex",
    "Trunc",
    "Unique",
    "UniqueConstraint",
    "UniqueViolationError",
    "UnknownFieldError",
    "UnknownLookupError",
    "UnsupportedError",
    "Upgrade",
    "ValueTooLargeError",
    "Vector",
    "VectorIndex",
    "Version",
    "col",
    "describe",
    "open_async_kv",
    "open_kv",
    "parse_lookups",
    "upgrade",
]
