"""The names of `import kvmodels`, pinned: a name is added or removed only together with this list."""

from __future__ import annotations

import importlib.resources
import inspect
import subprocess
import sys

import pytest

import kvmodels
from kvmodels.errors import ERRORS
from tests.source_tree import PACKAGE, parse, python_files
from tests.test_layering import imports_for_checkers

PUBLIC = [
    "AUTO",
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
    "CASCADE",
    "COMMIT_VERSIONSTAMP",
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
    "PROTECT",
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
    "SET_NULL",
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


def test_type_checkers_read_the_imports_that_are_used_at_run_time():
    read = imports_for_checkers(parse(PACKAGE / "__init__.py"))
    used = {f"kvmodels.{module}": sorted(names.split()) for module, names in kvmodels._NAMES_OF.items()}
    assert {module: sorted(names) for module, names in read.items()} == used
    loaded_at_once = [error.__name__ for error in ERRORS]
    assert sorted([*loaded_at_once, *(name for names in used.values() for name in names)]) == PUBLIC


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'kvmodels' has no attribute 'Databse'"):
        _ = kvmodels.Databse
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
    "schema/declare/markers.py",
    "ext/admin/__init__.py",
    "ext/fastapi/__init__.py",
    "ext/serve/__init__.py",
    "testing/__init__.py",
}
"""The modules that users import from, and two that pass names on."""


def test_only_modules_that_users_import_from_list_their_names():
    listing = {str(path.relative_to(PACKAGE)) for path in python_files() if "\n__all__ = " in path.read_text("utf-8")}
    assert listing == WITH_LISTS
