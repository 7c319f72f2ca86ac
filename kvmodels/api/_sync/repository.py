# Generated from kvmodels/api/_async/repository.py by tools/unasync.py. Do not edit.
"""Repository: create, get, save, remove and query the records of one model.

Rules of this module: a method runs one flow and decides nothing. Queries come from ``QuerySet``: a repository is
the query set of all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, Never, NoReturn, TypeVar, overload

from pydantic import BaseModel

from kvmodels._support.naming import show_public_path
from kvmodels.api._sync.queryset import QuerySet, Runner
from kvmodels.api.refusals import refuse_positional
from kvmodels.flows.bulk import create as bulk
from kvmodels.flows.bulk import loaded_objects, query_writes
from kvmodels.flows.bulk import options_and_results as bulk_results
from kvmodels.flows.reading import lookup
from kvmodels.flows.writing import records, upsert
from kvmodels.flows.writing.changes import KEEP, Keep, created_object, deadline_of
from kvmodels.query.query import Query
from kvmodels.schema.compile import partial_model
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.filters.operands import key_values

M = TypeVar("M", bound=KvModel)


class Repository(QuerySet[M], Generic[M]):
    """The records of one model; made by ``db[User]``.

    Safe to share between threads, or tasks of one event loop. Every write is one atomic operation; a conflict is tried
    again as the ``RetryPolicy`` of the database says, and nothing is written when an error is raised.

    Args:
        runner: runs flows against the store.
    """

    __slots__ = ()

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner, Query(runner.schema))

    # --- reading by key ---------------------------------------------------------------------------------------

    @overload
    def get(self, key: Any, /) -> M: ...
    @overload
    def get(self, /, *expressions: Expression, **lookups: Any) -> M: ...
    def get(self, /, *arguments: Any, **lookups: Any) -> M:
        """The one record with this primary key, or that matches these lookups.

        Args:
            arguments: the primary key (a tuple when it is composite), or expressions such as ``User.email == "x"``.
            lookups: conditions as keywords, ``email="ada@x.org"``.

        Returns:
            The object. Cost: one read of one row by primary key, of two rows by a unique index.

        Raises:
            DoesNotExist: no record matches (``User.DoesNotExist`` too).
            MultipleObjectsReturned: more than one does.
            QueryError: a lookup that cannot be answered as written.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey, Unique
            >>> class Reader(KvModel, collection="readers"):
            ...     id: PrimaryKey[int]
            ...     email: Unique[str]
            >>> readers = Database("memory://", models=[Reader])[Reader]
            >>> ada = readers.create(id=1, email="ada@x.org")
            >>> readers.get(1) == readers.get(email="ada@x.org")
            True
        """
        found: M = self._runner.get(arguments, lookups)
        return found

    @overload
    def get_or_none(self, key: Any, /) -> M | None: ...
    @overload
    def get_or_none(self, /, *expressions: Expression, **lookups: Any) -> M | None: ...
    def get_or_none(self, /, *arguments: Any, **lookups: Any) -> M | None:
        """Like ``get``, with None where nothing matches.

        Args:
            arguments: the primary key, or expressions.
            lookups: conditions as keywords.

        Returns:
            The object or None. Cost: as ``get``.

        Raises:
            MultipleObjectsReturned: more than one record matches.
            QueryError: a lookup that cannot be answered as written.
        """
        found: M | None = self._runner.run(
            lookup.get_or_none(self._runner.context, self._runner.schema, arguments, lookups)
        )
        return found

    def in_bulk(self, keys: Iterable[Any]) -> dict[Any, M]:
        """The records with these primary keys, in one snapshot.

        Args:
            keys: primary keys, tuples when composite; repetitions are harmless.

        Returns:
            Objects by primary key, in the order of the keys; keys without a record are left out. Cost: one read.

        Raises:
            InvalidValueError: something that is no primary key of the model.
        """
        found: dict[Any, M] = self._runner.run(lookup.in_bulk(self._runner.context, self._runner.schema, keys))
        return found

    def refresh(self, obj: M) -> M:
        """Read a record again and put its values into the object.

        Args:
            obj: an object with the primary key of a record.

        Returns:
            The same object. Cost: one read.

        Raises:
            DoesNotExist: the record is gone; the object is left as it is.
        """
        self._runner.run(lookup.refresh(self._runner.context, self._runner.schema, obj))
        return obj

    def expires_at(self, target: Any) -> datetime | None:
        """When a record expires, as it is stored now.

        Args:
            target: an object or a primary key, a tuple when it is composite.

        Returns:
            The deadline in UTC, to the millisecond; None for a record that does not expire. Cost: one read.

        Raises:
            DoesNotExist: no record has this primary key, or it has expired.
        """
        return self._runner.run(lookup.expires_at(self._runner.context, self._runner.schema, target))

    def detach(self, obj: M) -> M:
        """Forget that the object was loaded: ``save`` will insert it as a new record.

        Args:
            obj: any object of the model.

        Returns:
            The same object. Cost: none.
        """
        return lookup.detach(obj)

    # --- writing one record -----------------------------------------------------------------------------------

    def create(self, /, *_: Never, expire_in: float | timedelta | Keep | None = KEEP, **fields: Any) -> M:
        """Make an object and insert it.

        Args:
            _: nothing; an object is stored with ``save`` or ``insert``.
            expire_in: seconds or a timedelta until the record expires; None for never; by default ``Meta.ttl``.
            fields: values of the model's fields, by the names that its constructor takes. Any name, if the class has
                ``extra="allow"``, an ``__init__`` or a model validator that sees the input first.

        Returns:
            The stored object. Cost: as ``insert``.

        Raises:
            UnknownFieldError: a name that the constructor would ignore.
            pydantic.ValidationError: the values do not make a valid object.
            InvalidArgumentError: a field is given under two names, ``expire_in`` is the alias of a field, or an object
                is given.
            AlreadyExistsError, UniqueViolationError: nothing was written.
        """
        refuse_positional("create", _, "Store an object with save(obj) or insert(obj); create() takes field=value.")
        return self.insert(created_object(self._runner.schema, fields, expire_in), expire_in=expire_in)

    def insert(self, obj: M, *, expire_in: float | timedelta | Keep | None = KEEP) -> M:
        """Store an object as a new record: one commit, no read when nothing is in its way.

        Args:
            obj: the object; afterwards it holds the validated values and its versionstamp.
            expire_in: seconds or a timedelta until the record expires; None for never; by default ``Meta.ttl``.

        Returns:
            The same object. Cost: one commit, and no read unless a unique value or the key is taken.

        Raises:
            AlreadyExistsError: a record with this primary key exists.
            UniqueViolationError: a unique index holds these values for another record.
            pydantic.ValidationError, InvalidValueError, LimitExceededError: the object cannot be stored.
        """
        self._runner.run(records.insert(self._runner.context, self._runner.schema, obj, deadline_of(expire_in)))
        return obj

    def save(self, obj: M, *, force: bool = False, expire_in: float | timedelta | Keep | None = KEEP) -> M:
        """Store an object: insert a new one, update a loaded one if its record is unchanged.

        Args:
            obj: the object.
            force: overwrite whatever is stored under its primary key.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.

        Returns:
            The same object. Cost: one commit, no read unless unique values changed or the record has a deadline.

        Raises:
            StaleObjectError: the record changed or went since the object was loaded; nothing was written.
            PrimaryKeyChangedError: the object was loaded under another primary key.
            AlreadyExistsError, UniqueViolationError: nothing was written.
        """
        self._runner.run(
            records.save(self._runner.context, self._runner.schema, obj, force=force, expire_in=deadline_of(expire_in))
        )
        return obj

    def patch(
        self,
        key: Any,
        body: BaseModel | None = None,
        /,
        *,
        expire_in: float | timedelta | Keep | None = KEEP,
        **changes: Any,
    ) -> M:
        """Change fields of a record, whatever version it has: read, apply, commit, again after a conflict.

        Args:
            key: the primary key, a tuple when it is composite.
            body: changes as an object of ``User.partial()`` or another pydantic model; fields that were not given to
                it stay as they are.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.
            changes: new values by field name; they count more than those of the body.

        Returns:
            The stored object. Cost: one read and one commit; both again after a conflict.

        Raises:
            DoesNotExist: no record has this primary key.
            UnknownFieldError: the model has no such field.
            InvalidArgumentError: the body is no pydantic model, or the library sets the field.
            UniqueViolationError, RetriesExhaustedError: nothing was written.
        """
        sent = partial_model.sent_values(body, changes)
        patched: M = self._runner.run(
            records.patch(self._runner.context, self._runner.schema, key, sent, deadline_of(expire_in))
        )
        return patched

    def mutate(
        self, key: Any, function: Callable[[M], M | None], /, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> M:
        """Change a record by a function: it gets a fresh copy in every attempt.

        Args:
            key: the primary key, a tuple when it is composite.
            function: changes the object in place and returns None, or returns an object with the same primary key;
                it may be called several times. An exception aborts the write.
            expire_in: seconds or a timedelta from now; None for never; by default the deadline stays.

        Returns:
            The stored object. Cost: as ``patch``.

        Raises:
            DoesNotExist: no record has this primary key.
            PrimaryKeyChangedError: the function changed the primary key.
            InvalidValueError: the function returned something else, or is async.
            UniqueViolationError, RetriesExhaustedError: nothing was written.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Counter(KvModel, collection="counters"):
            ...     id: PrimaryKey[str]
            ...     n: int = 0
            >>> counters = Database("memory://", models=[Counter])[Counter]
            >>> _ = counters.create(id="visits")
            >>> def increment(counter: Counter) -> None:
            ...     counter.n += 1
            >>> counters.mutate("visits", increment).n
            1
        """
        mutated: M = self._runner.run(
            records.mutate(self._runner.context, self._runner.schema, key, function, deadline_of(expire_in))
        )
        return mutated

    def rename(self, key: Any, new_key: Any, /) -> M:
        """Give a record another primary key, in one commit; unique values and the deadline stay with it.

        Args:
            key: the present primary key, a tuple when it is composite.
            new_key: the new one. The same key is no error: nothing is written.

        Returns:
            The stored object. Cost: one read and one commit.

        Raises:
            DoesNotExist: no record has the present primary key.
            AlreadyExistsError: a record has the new one; nothing was written.
            pydantic.ValidationError: the new key makes no valid object.
            RetriesExhaustedError: others kept changing the record.
        """
        old, new = key_values(self._runner.schema, key), key_values(self._runner.schema, new_key)
        renamed: M = self._runner.run(records.rename(self._runner.context, self._runner.schema, old, new))
        return renamed

    def remove(self, target: Any) -> bool:
        """Remove a record with all its index entries.

        Args:
            target: a primary key: the record is removed whatever version it has, and if it cannot be read as an object
                any more, without the hooks that would get this object; or an object: a loaded one only if nobody
                changed its record since.

        Returns:
            True, or False when no record has this primary key. Cost: one read and one commit; one commit of a
            loaded object, and on SQLite of a plain record, which is read in it.

        Raises:
            StaleObjectError: the record of the object changed or went since it was loaded.
            RetriesExhaustedError: others kept changing the record.
        """
        return self._runner.run(records.remove(self._runner.context, self._runner.schema, target))

    # --- writing several records, or one that may exist --------------------------------------------------------

    def get_or_create(self, /, *, defaults: Mapping[str, Any] | None = None, **lookups: Any) -> tuple[M, bool]:
        """The record that matches the lookups, created from lookups and defaults when there is none.

        Args:
            defaults: values of the other fields by name or alias, used only when a record is created.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which decides a race.

        Returns:
            The object, and whether it was created. Cost: as ``get``, and as ``insert`` where there is none.

        Raises:
            InvalidArgumentError: the lookups name no complete unique key or are not ``field=value``, or the defaults
                are no mapping.
            UnknownFieldError: the model has no such field.
            UniqueViolationError: the new record would break another unique index.
        """
        found: tuple[M, bool] = self._runner.run(
            upsert.get_or_create(self._runner.context, self._runner.schema, defaults, lookups)
        )
        return found

    def update_or_create(
        self,
        /,
        *,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Change the record that matches the lookups, or create it when there is none.

        However many callers do this at once, one of them creates the record and every other one changes it.

        Args:
            defaults: new values by field name, ``F("n") + 1`` among them; also for a new record, unless
                ``create_defaults`` are given.
            create_defaults: values of the other fields of a new record, by name or alias.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which decides a race.

        Returns:
            The stored object, and whether it was created. Cost: a read and a commit, again when another was faster.

        Raises:
            InvalidArgumentError: the lookups name no complete unique key or are not ``field=value``, defaults are no
                mapping, or a new record would be made of ``F``.
            UnknownFieldError: the model has no such field.
            UniqueViolationError: the record would break another unique index.
            RetriesExhaustedError: others were faster again and again.

        Examples:
            >>> from kvmodels import Database, F, KvModel, PrimaryKey
            >>> class Word(KvModel, collection="words"):
            ...     text: PrimaryKey[str]
            ...     seen: int = 1
            >>> words = Database("memory://", models=[Word])[Word]
            >>> for text in ("key", "value", "key"):
            ...     _ = words.update_or_create(text=text, defaults={"seen": F("seen") + 1}, create_defaults={})
            >>> [(word.text, word.seen) for word in words]
            [('key', 2), ('value', 1)]
        """
        made: tuple[M, bool] = self._runner.run(
            upsert.update_or_create(self._runner.context, self._runner.schema, defaults, create_defaults, lookups)
        )
        return made

    def bulk_create(
        self,
        objs: Iterable[M],
        *,
        batch_size: int | None = None,
        on_conflict: bulk_results.OnConflict = "error",
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> list[bulk_results.BulkItem[M]]:
        """Insert many objects in batches, each one atomic operation.

        Args:
            objs: the objects, in order.
            batch_size: records per operation; None for a single one. Not in a transaction, which is one commit.
            on_conflict: ``"error"`` raises at the first that cannot be inserted; ``"ignore"`` leaves such ones out;
                ``"update"`` overwrites the record that has the primary key.
            expire_in: seconds or a timedelta until the records expire; None for never; by default ``Meta.ttl``.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its place in the list is stored with each batch: repeated with objects of
                the same primary keys in the same order after the process was killed, it goes on behind the objects
                that are stored; repeated after its end it tells again what became of them. Objects that an earlier run
                has stored stay as they are given: load them to change them. ``db.forget_bulk(id)`` frees the name.

        Returns:
            One ``BulkItem(obj, created, error)`` for each object; neither created nor an error: overwritten. Cost: one
            commit for each batch.

        Raises:
            AlreadyExistsError, UniqueViolationError: with ``position`` of the object and ``committed``, the number
                of objects in earlier batches, which are stored.
            OperationTooLargeError: a batch is over a limit.
            InvalidArgumentError: a primary key twice with ``"update"``, an option that makes no sense, or an id of
                another write.
        """
        return self._runner.run(
            bulk.bulk_create(
                self._runner.context,
                self._runner.schema,
                objs,
                batch_size=batch_size,
                on_conflict=on_conflict,
                expire_in=deadline_of(expire_in),
                progress=progress,
                resume_id=resume_id,
            )
        )

    def bulk_update(
        self,
        objs: Iterable[M],
        fields: Iterable[str] | None = None,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Store many loaded objects in batches, each one commit; each if its record is unchanged.

        Args:
            objs: objects that were loaded or stored before; each record once.
            fields: names of the fields to store; by default the whole objects. Afterwards an object holds what is
                stored of it, so changes to its other fields are taken back.
            batch_size: the most records of one commit; by default what the engine takes, 500 at most.
            on_error: ``"raise"`` ends at the first object that cannot be stored, with the batches before it committed;
                ``"collect"`` leaves such objects out and lists them.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its place in the list is stored with each batch: repeated with objects of
                the same primary keys in the same order after the process was killed, it goes on behind the objects
                that are stored, whatever version those given are of; repeated after its end it tells the result
                again. Objects that an earlier run has stored stay as they are given: load them to change them.
                ``db.forget_bulk(id)`` frees the name.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: per batch one commit, without a read when
            nobody is in the way and no unique value changes.

        Raises:
            InvalidArgumentError: an object that was never stored, one twice, an option that makes no sense, or an id
                of another write.
            StaleObjectError: a record changed or went since its object was loaded.
            UnknownFieldError, PrimaryKeyChangedError, UniqueViolationError, pydantic.ValidationError: of an object.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Price(KvModel, collection="prices"):
            ...     sku: PrimaryKey[str]
            ...     cents: int
            >>> prices = Database("memory://", models=[Price])[Price]
            >>> _ = prices.bulk_create([Price(sku="nut", cents=10), Price(sku="bolt", cents=20)])
            >>> loaded = prices.to_list()
            >>> for price in loaded:
            ...     price.cents += 1
            >>> prices.bulk_update(loaded).written
            2
            >>> prices.get("nut").cents
            11
        """
        options = bulk_results.BulkOptions(batch_size, on_error, progress, resume_id)
        return self._runner.run(
            loaded_objects.bulk_update(self._runner.context, self._runner.schema, objs, fields, options)
        )

    def update(self, /, *_: Any, **__: Any) -> NoReturn:
        """Refused: a whole collection is changed by ``all().update(...)``, so not by mistake.

        Args:
            _: changes of ``update`` of a query set.
            __: options and changes of the same.

        Returns:
            Nothing, because it raises. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Cup(KvModel, collection="cups"):
            ...     id: PrimaryKey[int]
            ...     full: bool = True
            >>> cups = Database("memory://", models=[Cup])[Cup]
            >>> _ = cups.create(id=1)
            >>> cups.all().update(full=False).written
            1
        """
        raise query_writes.refused_update()

    def delete(self, /, **_: Any) -> NoReturn:
        """Refused: a whole collection is emptied by ``all().delete()``, so not by mistake.

        Args:
            _: options of ``delete`` of a query set.

        Returns:
            Nothing, because it raises. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Toy(KvModel, collection="toys"):
            ...     id: PrimaryKey[int]
            >>> toys = Database("memory://", models=[Toy])[Toy]
            >>> _ = toys.create(id=1)
            >>> toys.all().delete().written
            1
        """
        raise query_writes.refused_removal()


show_public_path(Repository)
