"""kvmodels: ORM-style secondary indexes for Pydantic models on an ordered key-value store.

Every public name can be imported from here. Names that are only in submodules may change in any release.

Rules of this module: names other than errors are loaded at first use, as in pydantic, so that a synchronous program
does not load the asynchronous half. ``_NAMES_OF`` is the only list of them: ``python -m tools.public_names`` writes the
stub for type checkers and editors, ``__init__.pyi``, from it, and a test fails if the stub is not fresh.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import lazy_names
from kvmodels.errors import ERRORS

_NAMES_OF = {
    "api._async.board": "AsyncBoard",
    "api._async.database": "AsyncDatabase",
    "api._async.feeds.follower": "AsyncFollower",
    "api._async.kv": "AsyncKv open_async_kv",
    "api._async.relations.links": "AsyncLinks",
    "api._async.queryset": "AsyncQuerySet",
    "api._async.ranked": "AsyncRankedQuery",
    "api._async.repository": "AsyncRepository",
    "api._async.transaction": "AsyncTransaction",
    "api._sync.board": "Board",
    "api._sync.database": "Database",
    "api._sync.feeds.follower": "Follower",
    "api._sync.kv": "Kv open_kv",
    "api._sync.relations.links": "Links",
    "api._sync.queryset": "QuerySet",
    "api._sync.ranked": "RankedQuery",
    "api._sync.repository": "Repository",
    "api._sync.transaction": "Transaction",
    "api.settings": "DatabaseSettings",
    "catalog.evolution": "PlanStep RefusedRecord SchemaPlan",
    "codecs.sealing.key_ring": "KeyRing KeyProvider",
    "core.keys": "COMMIT_VERSIONSTAMP",
    "core.ulid": "ULID",
    "core.values": "KeyNumber KvMap KvU64 UNDEFINED",
    "flows.bulk.import_results": "ImportResult RejectedRow",
    "flows.bulk.options_and_results": "BulkFailure BulkItem BulkProgress BulkResult",
    "flows.check.findings": "CheckReport",
    "flows.check.tenants": "TenantsCheck",
    "flows.describe.catalogue": "CollectionDescription IndexStatus",
    "flows.describe.keys": "KeyExplanation",
    "flows.describe.stats": "CollectionStats IndexStats RowStats StoreStats",
    "flows.describe.tenants": "TenantsStats",
    "flows.evolution.apply": "SchemaReport",
    "flows.evolution.batches": "IndexViolation",
    "flows.evolution.build": "BuildReport",
    "flows.evolution.migrate": "MigrationReport",
    "flows.evolution.rotation": "RotationReport",
    "flows.evolution.throttle": "SchemaProgress",
    "flows.evolution.violations": "RecordViolation",
    "flows.history.restoring": "LeftOut Restored",
    "flows.history.versions": "Revision RevisionEnd",
    "flows.feeds.changed_since": "ChangePage",
    "flows.feeds.follow": "FollowReport",
    "flows.feeds.position": "Position",
    "flows.feeds.sink": "ChangeBatch FollowedChange Sink",
    "flows.kv.record_watch": "ChangedRecord",
    "flows.retry_policy": "RetryPolicy",
    "flows.scans": "ScanWarning",
    "flows.tenant_schemas": "TenantFailure TenantGroup TenantProgress TenantsPlan TenantsReport",
    "flows.tenants": "TenantStatus",
    "flows.transfer.load": "LoadResult",
    "limits": "Limits",
    "query.aggregates": "Avg Count Max Min Sum",
    "query.child_counts": "Exists",
    "query.hits": "Hit SearchHit",
    "query.planning.boards": "BoardPlan",
    "query.plans": "QueryPlan",
    "query.query": "Page",
    "query.truncation": "Trunc",
    "query.text_lookups": "ParsedLookups parse_lookups",
    "runtime.observing.counters": "Metrics OperationCounters",
    "runtime.observing.logs": "QueryLog SlowLog",
    "runtime.observing.operation": "FinishedOperation Observer",
    "schema.compile.model": "KvModel",
    "schema.compile.request_bodies": "Creation Partial",
    "schema.declare.annotations": "Stored",
    "schema.blobs.blob": "Blob",
    "schema.blobs.files": "BlobFile BlobStream OpenBlob",
    "schema.declare.declarations": "AggregateIndex Index UniqueConstraint",
    "schema.declare.encrypted": "Encrypted",
    "schema.declare.expressions": "Expression FieldRef ForeignKeyRef MultiFieldRef Q col",
    "schema.declare.history": "History",
    "schema.declare.many_to_many": "ManyToMany",
    "schema.declare.many_to_many_ref": "ManyToManyRef",
    "schema.declare.markers": "AUTO CASCADE Field ForeignKey Indexed MultiIndexed PROTECT PrimaryKey SET_NULL Unique",
    "schema.declare.on_write": "AutoNow AutoNowAdd Version",
    "schema.definition.upgrades": "Upgrade upgrade",
    "schema.describe.describe": (
        "ColumnDescription FieldDescription HistoryDescription IndexDescription ModelDescription describe"
    ),
    "schema.filters.changes": "F",
    "schema.geometry.box": "Box",
    "schema.geometry.circle": "Circle",
    "schema.geometry.point": "GeoPoint",
    "schema.geometry.polygon": "Polygon",
    "schema.kinds.geo": "GeoIndex",
    "schema.kinds.exclusion": "ExclusionConstraint",
    "schema.kinds.interval": "IntervalIndex",
    "schema.kinds.rank": "RankIndex",
    "schema.kinds.search": "SearchIndex",
    "schema.kinds.trigram": "TrigramIndex",
    "schema.kinds.vector": "VectorIndex",
    "schema.vectors.vector": "Vector",
    "schema.words.search": "Search",
}
"""The names of each module, below this package. Errors are not listed: all of them are public."""

_ERRORS = {error.__name__: error for error in ERRORS}

globals().update(_ERRORS)

__all__ = [name for names in (*_ERRORS, *_NAMES_OF.values()) for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = lazy_names(__name__, _NAMES_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
