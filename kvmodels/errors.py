"""The error tree: every exception that this library raises by itself.

    KvModelsError(Exception)
    ├── ModelDefinitionError(TypeError)
    ├── NonIdempotentValidatorError
    ├── DoesNotExist(LookupError)                     also as User.DoesNotExist
    ├── MultipleObjectsReturned                       also as User.MultipleObjectsReturned
    ├── BlobGoneError(LookupError)
    ├── IntegrityError
    │   ├── AlreadyExistsError
    │   ├── UniqueViolationError
    │   ├── ReferenceViolationError
    │   ├── ProtectedError
    │   ├── LoadConflictError
    │   └── ExclusionViolationError
    ├── ConcurrencyError
    │   ├── StaleObjectError
    │   ├── RetriesExhaustedError
    │   ├── LockLostError
    │   ├── SinkPositionError
    │   └── TransactionConflictError
    ├── InvalidKeyError(ValueError)
    ├── InvalidValueError(TypeError)
    ├── InvalidArgumentError(ValueError)
    │   ├── TransactionAbortedError
    │   └── TransactionSuspendedError
    ├── ReservedKeyError(ValueError)
    ├── PrimaryKeyChangedError(ValueError)
    ├── LimitExceededError(ValueError)
    │   ├── KeyTooLargeError
    │   ├── ValueTooLargeError
    │   ├── BlobTooLargeError
    │   ├── CatalogueFullError
    │   └── OperationTooLargeError
    ├── QueryError(ValueError)
    │   ├── UnknownFieldError
    │   ├── UnknownLookupError
    │   ├── NoUsableIndexError
    │   ├── InvalidLookupError
    │   ├── InvalidCursorError
    │   └── IndexChangedError
    ├── SchemaError
    │   ├── SchemaMismatchError
    │   ├── SchemaChangeRefusedError
    │   ├── IndexNotReadyError
    │   ├── HistoryExpiredError
    │   ├── DecodeError
    │   │   └── DecryptionError
    │   └── DanglingReferenceError
    ├── TenantError
    │   ├── TenantNotFoundError(LookupError)
    │   ├── TenantRemovedError
    │   └── TenantModelError(TypeError)
    └── EngineError
        ├── CommitUnknownError
        ├── EngineTimeoutError
        ├── SnapshotExpiredError
        │   └── SnapshotLostError
        ├── ClosedError
        ├── ReadOnlyError
        ├── StorageFullError
        ├── ForeignFileError
        ├── UnsupportedError
        └── ResumeExpiredError

Rules of this module: a message is a fixed sentence; variable parts are structured attributes shown after it; the
values of fields never appear unless they are key values; every error says what to do (``hint``), survives pickling, and
has a stable ``code``. Nothing here imports from the package.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kvmodels._support.naming import short_repr, show_public_path


class KvModelsError(Exception):
    """Base class of all errors of this library; catch it to catch all of them.

    Args:
        message: a fixed sentence that says what happened.
        hint: what to do about it, or None to use the hint of the class.
        data: the attributes that the class lists in ``attributes``; those not given are None.

    Examples:
        >>> error = KeyTooLargeError("a key is too large", limit="max_key_bytes", size=2049, maximum=2048)
        >>> error.size, error.code
        (2049, 'KV602')
        >>> print(error)
        [KV602] a key is too large (limit='max_key_bytes', size=2049, maximum=2048). Shorten the key, or ...
    """

    code: ClassVar[str] = "KV000"
    attributes: ClassVar[tuple[str, ...]] = ()
    default_hint: ClassVar[str | None] = None

    message: str
    hint: str | None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "attributes" not in vars(cls):
            cls.attributes = (*cls.__annotations__, *cls.attributes)

    def __init__(self, message: str, *, hint: str | None = None, **data: Any) -> None:
        super().__init__(message)
        unknown = data.keys() - set(self.attributes)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {sorted(unknown)[0]!r}")
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        for name in self.attributes:
            setattr(self, name, data.get(name))

    @property
    def data(self) -> dict[str, Any]:
        """The structured attributes by name, without those that are None."""
        values = {name: getattr(self, name) for name in self.attributes}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        details = ", ".join(f"{name}={short_repr(value)}" for name, value in self.data.items())
        text = f"[{self.code}] {self.message}" + (f" ({details})" if details else "")
        return f"{text}. {self.hint}" if self.hint else text


class ModelDefinitionError(KvModelsError, TypeError):
    """The declaration of a model class is invalid; raised when the class is created or registered."""

    code = "KV101"
    model: str | None
    field: str | None
    option: str | None
    suggestion: str | None


class NonIdempotentValidatorError(KvModelsError):
    """A validator changes its own output, so reading a record would change its values."""

    code = "KV102"
    default_hint = "Make the validator return its own results unchanged, or set Meta.trust_validators = True."
    model: str
    field: str


class DoesNotExist(KvModelsError, LookupError):  # noqa: N818 - Django's name, which users know
    """No record matches; each model has its own subclass, such as ``User.DoesNotExist``."""

    code = "KV201"
    default_hint = "Check the key, or use get_or_none()."
    model: str
    lookup: Any


class MultipleObjectsReturned(KvModelsError):  # noqa: N818 - Django's name, which users know
    """``get`` found more than one record."""

    code = "KV202"
    default_hint = "Use filter(...).first(), or look up by the primary key or a unique index."
    model: str
    lookup: Any


class BlobGoneError(KvModelsError, LookupError):
    """The store does not have the content of a blob: a sweep has removed it, or it is in another store or tenant.

    Attributes:
        size: the size of the blob in bytes.
        sha256: the hash of its content, in hexadecimal.
    """

    code = "KV203"
    default_hint = (
        "Load the record again: it has another blob now, or none. "
        "Open a blob of another store or tenant, and write Blob(file)."
    )
    size: int | None
    sha256: str | None


class IntegrityError(KvModelsError):
    """A write would break a constraint; nothing was written.

    In a bulk write, ``position`` is the index of the object that failed, and ``committed`` is the number of objects
    before it that are already stored.
    """

    code = "KV300"
    position: int | None
    committed: int | None


class AlreadyExistsError(IntegrityError):
    """A record with this primary key exists."""

    code = "KV301"
    default_hint = "Use save() or patch() to change it, or get_or_create()."
    model: str
    key: Any


class UniqueViolationError(IntegrityError):
    """A unique index already holds these values for another record."""

    code = "KV302"
    default_hint = "Choose another value, or load the record that has this value: get(existing_key)."
    model: str
    index: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]
    existing_key: Any
    key: Any


class ReferenceViolationError(IntegrityError):
    """A foreign key names a record that does not exist, or that may not be referred to.

    ``reason`` is ``"missing"``, or ``"expires"`` for a record with a deadline. ``target`` is the primary key of the
    missing record and ``collection`` its collection; ``key`` is that of the record that was to be stored.
    """

    code = "KV303"
    default_hint = "Store the record that is referred to first, or give the key of another one."
    model: str
    field: str
    target: Any
    collection: str
    reason: str
    key: Any


class ProtectedError(IntegrityError):
    """A record cannot be removed or get another primary key, because other records refer to it.

    ``referrer`` is the collection whose records refer to it by ``field``; ``keys`` has the first of their primary keys.
    """

    code = "KV304"
    default_hint = (
        "Remove the records that refer to it first, or let them refer to another one. If their foreign key is declared "
        "with CASCADE, remove() and remove_cascade() remove them too."
    )
    model: str
    key: Any
    referrer: str
    field: str
    keys: tuple[Any, ...]


class LoadConflictError(IntegrityError):
    """Records or keys of a dump exist in the store already.

    ``keys`` has the first of their keys, ``count`` is their number. ``committed`` is the number of records and keys
    that were stored: 0, unless another writer stored one of the keys during the load.
    """

    code = "KV305"
    attributes = ("keys", "count", "committed")
    default_hint = 'Keep what the store has with on_conflict="ignore", or replace it with on_conflict="update".'
    keys: tuple[Any, ...]
    count: int


class ExclusionViolationError(IntegrityError):
    """An interval overlaps that of another record, which an ``ExclusionConstraint`` forbids.

    ``fields`` are those of the group, of the start and of the end; ``values`` are those of the record that was to be
    stored, ``existing_start`` and ``existing_end`` those of the record with the primary key ``existing_key``. An end
    that is None is unbounded.
    """

    code = "KV306"
    default_hint = "Choose another interval, or load the record that is in the way: get(existing_key)."
    model: str
    index: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]
    existing_key: Any
    existing_start: Any
    existing_end: Any
    key: Any


class ConcurrencyError(KvModelsError):
    """Another writer changed the same data first."""

    code = "KV400"


class StaleObjectError(ConcurrencyError):
    """The record has changed, expired or been removed since this object was loaded; nothing was written."""

    code = "KV401"
    default_hint = "Use refresh() and apply the change again, patch(), or save(force=True) to overwrite."
    model: str
    key: Any
    expected: str | None
    actual: str | None
    position: int | None


class RetriesExhaustedError(ConcurrencyError):
    """Every attempt ended in a conflict, or the deadline passed; nothing was written."""

    code = "KV402"
    default_hint = (
        "The keys are contended: try again later, raise RetryPolicy(attempts=, deadline_s=), or spread the load. If a "
        "hook or the function of mutate() writes this record itself, change the object that it gets instead."
    )
    attempts: int
    elapsed_s: float
    failed_checks: tuple[Any, ...]


class LockLostError(ConcurrencyError):
    """The lease of a lock ended before the lock was released; another holder may have the lock."""

    code = "KV403"
    default_hint = "Undo or repeat the work under a new lock; let the resource refuse older fencing tokens."
    name: str
    fencing_token: int


class TransactionConflictError(ConcurrencyError):
    """Another writer changed data that a transaction had read before the transaction committed; nothing was written."""

    code = "KV404"
    default_hint = "Run the transaction again from its beginning; @db.transactional() does that automatically."
    failed_checks: tuple[Any, ...]
    attempts: int


class SinkPositionError(ConcurrencyError):
    """The sink of a follower has another position than the batch begins with; nothing was stored.

    A sink raises it. The follower reads the position again and continues there.
    """

    code = "KV405"
    default_hint = "Another follower of the sink has applied a batch; one follower is enough."


class InvalidKeyError(KvModelsError, ValueError):
    """The value is not a key, or the bytes are not an encoded key."""

    code = "KV501"
    default_hint = "A key is a tuple of bytes, str, int, float and bool; only the empty key cannot be written."
    key: Any
    part: int | None
    type: str | None


class InvalidValueError(KvModelsError, TypeError):
    """The value cannot be stored, or not in this field or key.

    ``key`` is the primary key of the record, if it is known; of a sum, min or max, its key. In a bulk write,
    ``position`` is the index of the object.
    """

    code = "KV502"
    default_hint = "Give a value of the declared or documented type."
    model: str | None
    field: str | None
    path: str | None
    type: str | None
    key: Any
    position: int | None


class InvalidArgumentError(KvModelsError, ValueError):
    """The value of an argument is invalid."""

    code = "KV503"
    default_hint = "Give a value that the documentation of the call allows."
    argument: str | None
    value: Any
    expected: Any
    suggestion: str | None
    url: str | None


class TransactionAbortedError(InvalidArgumentError):
    """An inner block of a transaction failed, so the transaction cannot be committed; nothing was written."""

    code = "KV506"
    default_hint = "Let the exception leave the outer transaction() too, or run code that may fail outside of it."


class TransactionSuspendedError(InvalidArgumentError):
    """A transaction is open in a suspended function, such as a generator that has not been resumed."""

    code = "KV507"
    attributes = (*InvalidArgumentError.attributes, "began_at")
    default_hint = "Use the transaction that was yielded (tx), or end its block before another one begins."
    began_at: str


class ReservedKeyError(KvModelsError, ValueError):
    """The key of a raw write belongs to models or to the library."""

    code = "KV504"
    default_hint = "Write through the repository, or use kv.unsafe(), which gives up the guarantees of models."
    key: Any
    owner: str


class PrimaryKeyChangedError(KvModelsError, ValueError):
    """The primary key of a loaded object was changed."""

    code = "KV505"
    default_hint = "A stored primary key is fixed: repository.rename(key, new_key) changes it in one commit."
    model: str
    loaded_key: Any
    key: Any
    position: int | None


class LimitExceededError(KvModelsError, ValueError):
    """A limit of the engine would be exceeded; nothing was written.

    Attributes:
        field: the field of the model whose value is too long or has too many parts, if one is the cause.
    """

    code = "KV600"
    limit: str
    size: int
    maximum: int
    limits: str | None
    key: Any
    index: str | None
    field: str | None


class KeyTooLargeError(LimitExceededError):
    """An encoded key is longer than the engine allows."""

    code = "KV602"
    default_hint = "Shorten the key, or index a shorter field."


class ValueTooLargeError(LimitExceededError):
    """An encoded value is larger than the engine allows."""

    code = "KV603"
    default_hint = "Store less in one record, divide it into several, or store a file in a field of the type Blob."


class BlobTooLargeError(LimitExceededError):
    """The content of a blob is longer than ``max_bytes``; its record was not written.

    ``size`` is the number of bytes that were read until then, because the content is not read to its end.
    """

    code = "KV606"
    default_hint = "Store less, or allow more: Blob(source, max_bytes=1_000_000_000)."


class CatalogueFullError(LimitExceededError):
    """The catalogue of the store, one value with the descriptions of all collections, is as large as a value may be.

    Nothing was written. ``collections`` is the number of collections that it would have had.
    """

    code = "KV605"
    attributes = (*LimitExceededError.attributes, "collections")
    default_hint = (
        "Drop collections that no program uses: db.drop_collection(name), or kvmodels drop COLLECTION. Shorter names "
        "of fields and fewer indexes help too. Or divide the collections among several stores."
    )
    collections: int


class OperationTooLargeError(LimitExceededError):
    """One atomic operation has too many checks, mutations or bytes."""

    code = "KV604"
    default_hint = "Write fewer records in one operation, in bulk writes by a smaller batch_size=."


class QueryError(KvModelsError, ValueError):
    """The query cannot be answered as written."""

    code = "KV700"


class UnknownFieldError(QueryError):
    """A query, a change or a new object names a field that the model does not have."""

    code = "KV701"
    model: str
    field: str
    suggestion: str | None


class UnknownLookupError(QueryError):
    """The lookup does not exist, or not for this field."""

    code = "KV702"
    model: str
    field: str
    lookup: str
    suggestion: str | None


class NoUsableIndexError(QueryError):
    """No index serves this filter or order, and the query does not allow a scan."""

    code = "KV703"
    model: str
    filters: tuple[str, ...]
    order: tuple[str, ...]
    candidates: tuple[str, ...]


class InvalidLookupError(QueryError):
    """A text parameter is not a condition or an order of the model; raised by ``parse_lookups``."""

    code = "KV706"
    default_hint = "Give a field, two underscores and a lookup, such as age__gte, and a value of the field's type."
    model: str
    parameter: str
    reason: str
    suggestion: str | None


class InvalidCursorError(QueryError):
    """The page cursor does not belong to this query."""

    code = "KV704"
    default_hint = "Pass next_cursor of a page of the same query, unchanged, or None to start again."
    reason: str | None


class IndexChangedError(QueryError):
    """The index that a query was reading was rebuilt or dropped between two batches."""

    code = "KV705"
    default_hint = "Start the query again."
    model: str
    index: str


class SchemaError(KvModelsError):
    """The declared schema does not match the stored one."""

    code = "KV800"


class SchemaMismatchError(SchemaError):
    """This process must not use, or not write, a collection because of its stored schema."""

    code = "KV801"
    collection: str
    index: str | None
    stored: Any
    declared: Any


class SchemaChangeRefusedError(SchemaError):
    """The declared schema needs a change that is impossible, or that must be allowed by name."""

    code = "KV804"
    default_hint = "print(db.plan()) shows what each step needs; allow= permits the steps that have a name for it."
    steps: tuple[str, ...]


class IndexNotReadyError(SchemaError):
    """The index is not built yet, has violations, is being dropped, or needs records to be upgraded first."""

    code = "KV802"
    default_hint = "Run db.apply(), which builds the index and upgrades records where that must come first."
    model: str
    index: str
    state: str


class HistoryExpiredError(SchemaError):
    """The state of the past at this moment is not known: it lies before the horizon of the history, or rows are gone.

    Attributes:
        model: the model.
        key: the primary key; None for a query.
        horizon: the earliest time about which every answer is exact.
    """

    code = "KV806"
    default_hint = "Ask for a moment after the horizon, or keep versions longer: History(keep=...)."
    model: str
    key: Any
    horizon: str | None


class DecodeError(SchemaError):
    """Stored bytes cannot be decoded, or do not fit the model."""

    code = "KV803"
    default_hint = "Another program wrote it, or the store is damaged: run db.check(), or restore a backup."
    key: Any
    model: str | None
    field: str | None
    reason: str | None


class DecryptionError(DecodeError):
    """An encrypted field of a stored record cannot be opened: its key is missing, or the value is damaged.

    Attributes:
        collection: the collection of the record.
        key: the primary key of the record.
        field: the encrypted field.
        key_id: the id of the key that the value names; None if it names none.
    """

    code = "KV807"
    default_hint = (
        "Give the key with this id, Database(url, keys=KeyRing({...})). Other fields are read with "
        "only(Projection), and remove() needs no key."
    )
    collection: str | None
    key_id: int | None


class DanglingReferenceError(SchemaError):
    """A stored record refers to a missing one: another program wrote it, or the foreign key is being added."""

    code = "KV805"
    default_hint = (
        "Another program wrote it: db.check() lists such records. Store the missing one, or change the field."
    )
    model: str
    key: Any
    field: str
    target: Any


class TenantError(KvModelsError):
    """A call concerns a tenant that cannot be used, or a model on the wrong side of tenants."""

    code = "KV1000"
    tenant: str | None


class TenantNotFoundError(TenantError, LookupError):
    """The store has no tenant of this name."""

    code = "KV1001"
    default_hint = "Create it first: db.create_tenant(name), or open it with db.tenant(name, create=True)."


class TenantRemovedError(TenantError):
    """The tenant was removed, or its removal has begun; a later tenant of the same name is another one."""

    code = "KV1002"
    default_hint = "db.remove_tenant(name) finishes a removal; then the name can be created again."


class TenantModelError(TenantError, TypeError):
    """A model of tenants was used in the store itself, or a model of the store in a tenant."""

    code = "KV1003"
    model: str


class EngineError(KvModelsError):
    """The storage engine could not carry out an operation."""

    code = "KV900"
    url: str | None
    reason: str | None


class CommitUnknownError(EngineError):
    """The answer to a commit was lost: the commit may have been applied, or may still be applied."""

    code = "KV901"
    default_hint = "Call db.outcome(token) before you try again; without a token, read the record."
    token: str | None


class EngineTimeoutError(EngineError):
    """The engine was busy for longer than the deadline; nothing was written."""

    code = "KV902"
    default_hint = "Another process has held the write lock for too long; try again, or raise busy_timeout."


class SnapshotExpiredError(EngineError):
    """The snapshot was open for longer than the engine allows."""

    code = "KV903"
    default_hint = "Open a new snapshot and start again."


class SnapshotLostError(SnapshotExpiredError):
    """The store ended the snapshot before its maximum age, such as when a connection broke."""

    code = "KV910"
    default_hint = "Start again with a new snapshot; @db.transactional() runs its function again by itself."


class ClosedError(EngineError):
    """The store is closed, or was opened before this process was forked."""

    code = "KV904"
    default_hint = "Open the store again; after a fork, open it in the child."


class ReadOnlyError(EngineError):
    """The store is read-only."""

    code = "KV905"
    default_hint = "Make the file and its folder writable, and open it with readonly=False."


class StorageFullError(EngineError):
    """There is no space for the write; nothing was written."""

    code = "KV906"
    default_hint = "Free some space and try again."


class ForeignFileError(EngineError):
    """The file exists and was not created by this library; it was not changed."""

    code = "KV907"
    default_hint = "Use another path."


class UnsupportedError(EngineError):
    """The engine or the environment does not support this operation."""

    code = "KV908"


class ResumeExpiredError(EngineError):
    """The change log does not have all changes since ``since=``: it began later, or the store was restored.

    Attributes:
        since: the position.
        oldest: the oldest position that the change log reaches back to, if ``since`` is older.
        newest: the last commit of the store, if ``since`` is later.
    """

    code = "KV909"
    default_hint = "Watch without since=, which starts with the present state; raise change_log= to keep more."
    since: str
    oldest: str | None
    newest: str | None


ERRORS: Final = tuple(one for one in [*globals().values()] if isinstance(one, type) and issubclass(one, KvModelsError))
"""Every class of the tree."""

__all__ = [error.__name__ for error in ERRORS]  # pyright: ignore[reportUnsupportedDunderAll]

show_public_path(*ERRORS)
