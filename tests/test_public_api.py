"""The names of `import kvmodels`, pinned: a name is added or removed only together with this list."""

from __future__ import annotations

import ast
import importlib.resources
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kvmodels
from tests.source_tree import PACKAGE, REPOSITORY, parse, python_files
from tools import public_names

PUBLIC = [
    "AUTO",
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
    "CASCADE",
    "COMMIT_VERSIONSTAMP",
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
    "PROTECT",
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
    "SET_NULL",
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
    "ULID",
    "UNDEFINED",
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

VALUES = {"UNDEFINED"}


def test_the_exported_names_are_exactly_these():
    assert sorted(kvmodels.__all__) == PUBLIC


def test_every_exported_name_exists():
    namespace: dict[str, object] = {}
    exec("from kvmodels import *", namespace)
    assert set(PUBLIC) <= namespace.keys()


def test_exported_classes_and_functions_name_the_package_as_their_home():
    for name in set(PUBLIC) - VALUES:
        value = getattr(kvmodels, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == "kvmodels", f"{name} says it lives in {value.__module__}"


def test_the_package_is_marked_as_typed():
    assert importlib.resources.files("kvmodels").joinpath("py.typed").is_file()


def test_the_stub_for_type_checkers_and_editors_is_fresh():
    assert public_names.STUB.read_text("utf-8") == public_names.generated(), "run python tools/public_names.py"


def test_each_public_name_is_listed_once_with_the_module_that_defines_it():
    listed = [(module, name) for module, names in public_names.homes().items() for name in names]
    assert sorted(name for _, name in listed) == PUBLIC
    for module, name in listed:
        assert name in defined_names(parse(source_of(module))), f"{module} does not define {name}"


def source_of(module: str) -> Path:
    return REPOSITORY.joinpath(*module.split(".")).with_suffix(".py")


def defined_names(tree: ast.Module) -> set[str]:
    """Return the classes, functions and variables that a module defines at its top level."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'kvmodels' has no attribute 'Databse'"):
        getattr(kvmodels, "Databse")  # noqa: B009 - type checkers know no such name
    with pytest.raises(ImportError, match="cannot import name 'Databse'"):
        exec("from kvmodels import Databse")
    assert set(PUBLIC) <= set(dir(kvmodels))


NAMES_IN_A_FRESH_PROCESS = """
import kvmodels.api._sync.database
from kvmodels.query.query import Page
from kvmodels.errors import DoesNotExist
print(Page.__module__, DoesNotExist.__module__, "Page" in vars(kvmodels))
"""


def test_a_name_shows_the_public_path_before_the_package_was_asked_for_it():
    done = subprocess.run([sys.executable, "-c", NAMES_IN_A_FRESH_PROCESS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kvmodels", "kvmodels", "False"]


WITH_LISTS = {
    "__init__.py",
    "_support/slotted_dataclass.py",
    "errors.py",
    "keys.py",
    "limits.py",
    "ext/admin/__init__.py",
    "ext/fastapi/__init__.py",
    "ext/serve/__init__.py",
    "testing/__init__.py",
}
"""The modules that users import from, and one that passes names on."""


def test_only_modules_that_users_import_from_list_their_names():
    listing = {str(path.relative_to(PACKAGE)) for path in python_files() if "\n__all__ = " in path.read_text("utf-8")}
    assert listing == WITH_LISTS
