"""AsyncRepository: create, get, save, remove and query the records of one model.

Rules of this module: a method runs one flow and contains no decisions. Query methods come from ``AsyncQuerySet``: a
repository is the query set of all records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Concatenate, Generic, Literal, Never, NoReturn, ParamSpec, TypeVar, overload

from pydantic import BaseModel

from kvmodels._support.naming import show_public_path
from kvmodels.api._async import board
from kvmodels.api._async import history as histories
from kvmodels.api._async.queryset import AsyncQuerySet, AsyncRunner
from kvmodels.api._async.relations.links import AsyncLinks
from kvmodels.api.progress import listening
from kvmodels.api.refusals import NO_OBJECT, fields_refusal, positional_refusal
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.bulk import create as bulk
from kvmodels.flows.bulk import create_from, import_results, loaded_objects, query_writes, unique_owners
from kvmodels.flows.bulk import options_and_results as bulk_results
from kvmodels.flows.bulk import remove_cascade as cascading
from kvmodels.flows.context import Context
from kvmodels.flows.effects import AnyFlow
from kvmodels.flows.feeds import changed_since as feeds
from kvmodels.flows.feeds import resumed_watch
from kvmodels.flows.feeds.position import Position
from kvmodels.flows.history import restoring, trash
from kvmodels.flows.history.versions import Revision
from kvmodels.flows.kv import record_watch
from kvmodels.flows.reading import links as reading_links
from kvmodels.flows.reading import lookup, queries, referrers
from kvmodels.flows.reading import related as relations
from kvmodels.flows.reading.referrers import ReferrerOptions
from kvmodels.flows.writing import records, upsert
from kvmodels.flows.writing.changes import KEEP, Keep, deadline_of
from kvmodels.frames import sources
from kvmodels.query.planning import boards
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import OrderColumn, Query
from kvmodels.schema.compile import request_bodies
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Expression, ForeignKeyRef
from kvmodels.schema.declare.many_to_many_ref import ManyToManyRef
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.operands import key_values

M = TypeVar("M", bound=KvModel)
P = ParamSpec("P")
R = TypeVar("R", bound=KvModel)
T = TypeVar("T")

_CREATE_HINT = (
    "Store an object with save(obj) or insert(obj); create() takes field=value, or an object of Creation[User]."
)
_PATCH_HINT = "Give the changes as keywords, patch(key, **changes), or an object of the model's Partial."


class AsyncRepository(AsyncQuerySet[M], Generic[M]):
    """The records of one model; created by ``db[User]``.

    Derive a class from it to give the repository of a model methods of its own: ``class Users(AsyncRepository[User])``,
    created by ``db.repository(User, Users)``. Methods read and write with ``self``; the class needs no constructor.

    Safe to share between threads, or between tasks of one event loop. Every write is one atomic operation. A conflict
    is retried according to the ``RetryPolicy`` of the database, and nothing is written if an error is raised.

    Args:
        runner: runs flows against the store.
    """

    __slots__ = ()

    def __init__(self, runner: AsyncRunner) -> None:
        super().__init__(runner, Query(runner.schema, order=runner.schema.ordering))

    def _run_flow(
        self,
        verb: str,
        flow: Callable[Concatenate[Context, ModelSchema, P], AnyFlow[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, T]:
        """Run the flow of a method to its end; methods that are called often do it without this call."""
        runner = self._runner
        return runner.run(verb, flow(runner.context, runner.schema, *args, **kwargs))

    # --- places -------------------------------------------------------------------------------------------------

    def rank(self, index: str, /, **fields: Any) -> board.AsyncBoard[M]:
        """Return the board of one group of an index of ranks.

        Args:
            index: the name of the ``RankIndex``.
            fields: a value of each field of its group, ``league="gold"``.

        Returns:
            The board, with ranks, records by position, percentiles and counts. Cost: none, nothing is read.

        Raises:
            UnknownFieldError: the model declares no index of ranks with this name.
            NoUsableIndexError: a field of the group is missing, or another one is given.
            InvalidValueError: a field cannot hold the value.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey, RankIndex
            >>> class Player(KvModel, collection="players"):
            ...     id: PrimaryKey[str]
            ...     league: str
            ...     score: int
            ...     class Meta:
            ...         indexes = (RankIndex("-score", group="league", low=0, high=100_000, name="board"),)
            >>> players = (await AsyncDatabase("memory://", models=[Player]).open())[Player]
            >>> for id, score in [("ada", 900), ("bo", 1_200), ("cy", 300)]:
            ...     _ = await players.create(id=id, league="gold", score=score)
            >>> gold = players.rank("board", league="gold")
            >>> await gold.rank_of("ada"), (await gold[0]).id, await gold.count(score__gte=500)
            (2, 'bo', 2)
        """
        return board.AsyncBoard(self._runner, boards.board_query(self._query.schema, index, fields))

    # --- links --------------------------------------------------------------------------------------------------

    def links(self, relation: ManyToManyRef[M, T]) -> AsyncLinks[M, T]:
        """Return the links of the records by a many-to-many relation, to read and to change them.

        Args:
            relation: the relation that the model declares, ``Post.tags``.

        Returns:
            The links, with ``add``, ``remove``, ``set``, ``clear`` and ``fetch``. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: this is not a relation that the model declares.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, ManyToMany, PrimaryKey
            >>> class Topic(KvModel, collection="topics"):
            ...     id: PrimaryKey[int]
            >>> class Talk(KvModel, collection="talks"):
            ...     id: PrimaryKey[int]
            ...     topics: ManyToMany[Topic] = ManyToMany()
            >>> db = await AsyncDatabase("memory://", models=[Topic, Talk]).open()
            >>> talk, topic = await db[Talk].create(id=1), await db[Topic].create(id=7)
            >>> topics = db[Talk].links(Talk.topics)
            >>> await topics.add(talk, topic), await topics.fetch_owners([topic])
            (1, {7: [Talk(id=1)]})
        """
        return AsyncLinks(self._runner, reading_links.relation_of(self._query.schema, relation))

    # --- reading by key ---------------------------------------------------------------------------------------

    @overload
    async def get(self, key: Any, /) -> M: ...
    @overload
    async def get(self, /, *expressions: Expression, **lookups: Any) -> M: ...
    async def get(self, /, *arguments: Any, **lookups: Any) -> M:
        """Return the one record with this primary key, or that matches these lookups.

        Args:
            arguments: the primary key (a tuple if it is composite), or expressions such as ``User.email == "x"``.
            lookups: conditions as keywords, ``email="ada@x.org"``.

        Returns:
            The object. Cost: one read of one row by primary key, of two rows by a unique index.

        Raises:
            DoesNotExist: no record matches (``User.DoesNotExist`` too).
            MultipleObjectsReturned: more than one record matches.
            QueryError: the lookup cannot be answered as written.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey, Unique
            >>> class Reader(KvModel, collection="readers"):
            ...     id: PrimaryKey[int]
            ...     email: Unique[str]
            >>> readers = (await AsyncDatabase("memory://", models=[Reader]).open())[Reader]
            >>> ada = await readers.create(id=1, email="ada@x.org")
            >>> await readers.get(1) == await readers.get(email="ada@x.org")
            True
        """
        runner = self._runner
        found: M = await runner.run("get", lookup.get(runner.context, runner.schema, arguments, lookups))
        return found

    @overload
    async def get_or_none(self, key: Any, /) -> M | None: ...
    @overload
    async def get_or_none(self, /, *expressions: Expression, **lookups: Any) -> M | None: ...
    async def get_or_none(self, /, *arguments: Any, **lookups: Any) -> M | None:
        """Return the record like ``get``, or None if no record matches.

        Args:
            arguments: the primary key, or expressions.
            lookups: conditions as keywords.

        Returns:
            The object or None. Cost: as for ``get``.

        Raises:
            MultipleObjectsReturned: more than one record matches.
            QueryError: the lookup cannot be answered as written.
        """
        found: M | None = await self._run_flow("get_or_none", lookup.get_or_none, arguments, lookups)
        return found

    async def in_bulk(self, keys: Iterable[Any]) -> dict[Any, M]:
        """Return the records with these primary keys, read in one snapshot.

        Args:
            keys: primary keys, tuples if composite; repetitions are allowed.

        Returns:
            Objects by primary key, in the order of the keys, without keys that have no record. Cost: one read.

        Raises:
            InvalidValueError: a value is not a primary key of the model.
        """
        return await self._run_flow("in_bulk", lookup.in_bulk, keys)

    async def related(self, obj: M, key: ForeignKeyRef[M, Any, T]) -> T:
        """Return the record that an object refers to.

        Args:
            obj: an object of the model.
            key: the foreign key, ``Book.author_id``, or a path, ``Chapter.book_id.to(Book.author_id)``.

        Returns:
            The object of the target; None if the field is None. Cost: one read for each foreign key.

        Raises:
            InvalidArgumentError: this is not a foreign key of the model, or its target is not in the database.
            DoesNotExist: the object was never stored, and refers to a missing record.
            StaleObjectError: the record was changed or removed since the object was loaded, and the target is gone.
            DanglingReferenceError: the record refers to one that does not exist; None if the field may be None.

        Examples:
            >>> from kvmodels import AsyncDatabase, ForeignKey, KvModel, PrimaryKey
            >>> class Team(KvModel, collection="teams"):
            ...     id: PrimaryKey[int]
            >>> class Player(KvModel, collection="players"):
            ...     id: PrimaryKey[int]
            ...     team_id: ForeignKey[int, Team]
            >>> db = await AsyncDatabase("memory://", models=[Team, Player]).open()
            >>> team = await db[Team].create(id=7)
            >>> player = await db[Player].create(id=1, team_id=team)
            >>> await db[Player].related(player, Player.team_id)
            Team(id=7)
        """
        found: T = await self._run_flow("related", relations.related, obj, key)
        return found

    async def fetch_referrers(
        self,
        objs: Iterable[M],
        key: ForeignKeyRef[R, Any, M | None],
        *,
        limit: int,
        filter: Expression | None = None,  # noqa: A002 - the name of the method of a query
        order_by: OrderColumn | Iterable[OrderColumn] = (),
    ) -> dict[Any, list[R]]:
        """Return for each object the first records that refer to it.

        Args:
            objs: objects of the model, such as the items of a page.
            key: the foreign key of the other model, ``Book.author_id``.
            limit: the most records for each object, 1 or more.
            filter: a condition on the referring records: ``Book.year >= 1900``, ``Q(year__gte=1900)``.
            order_by: a column to order them by, or several; by default the primary key. An index that begins with the
                foreign key must have this order: ``Index("author_id", "-year")``. ``explain_referrers`` shows the range
                that is read for each.

        Returns:
            Lists of objects by the primary keys of ``objs``. Cost: two reads, of one range for each object and of the
            records; more if the engine does not take so many at once, or if conditions are tested on the records. If
            no single range has the records of an object, as with a list of values before the order, each object costs
            a query.

        Raises:
            InvalidArgumentError: the foreign key does not refer to this model, or the limit is not a positive number.
            NoUsableIndexError: no index has this order; the hint shows the line to add.
            IndexNotReadyError: an index is not built.
            UnknownFieldError, UnknownLookupError, InvalidValueError: the filter or the order is invalid.

        Examples:
            >>> from kvmodels import AsyncDatabase, ForeignKey, Index, KvModel, PrimaryKey
            >>> class Shelf(KvModel, collection="shelves"):
            ...     id: PrimaryKey[int]
            >>> class Box(KvModel, collection="boxes"):
            ...     id: PrimaryKey[int]
            ...     shelf_id: ForeignKey[int, Shelf]
            ...     weight: int
            ...     class Meta:
            ...         indexes = (Index("shelf_id", "-weight"),)
            >>> db = await AsyncDatabase("memory://", models=[Shelf, Box]).open()
            >>> shelf = await db[Shelf].create(id=7)
            >>> _ = await db[Box].bulk_create([Box(id=number, shelf_id=7, weight=number) for number in range(4)])
            >>> light = Box.weight < 3
            >>> await db[Shelf].fetch_referrers([shelf], Box.shelf_id, filter=light, order_by="-weight", limit=1)
            {7: [Box(id=2, shelf_id=7, weight=2)]}
        """
        options = ReferrerOptions(limit, filter, order_by)
        return await self._run_flow("fetch_referrers", referrers.fetch_referrers, objs, key, options)

    async def explain_referrers(
        self,
        objs: Iterable[M],
        key: ForeignKeyRef[R, Any, M | None],
        *,
        limit: int,
        filter: Expression | None = None,  # noqa: A002 - as in fetch_referrers
        order_by: OrderColumn | Iterable[OrderColumn] = (),
        analyze: bool = False,
    ) -> QueryPlan:
        """Return how ``fetch_referrers`` reads the records of each object.

        Args:
            objs: objects of the model, at least one.
            key: the foreign key of the other model.
            limit: the most records for each object.
            filter: a condition on the referring records.
            order_by: a column to order them by, or several.
            analyze: also read the records, and count what is read.

        Returns:
            The plan for the first object; ``each`` is a text with the number of objects and of requests. Cost: none but
            the schema; with ``analyze``, that of ``fetch_referrers``.

        Raises:
            InvalidArgumentError: like ``fetch_referrers``; or there is no object.
            NoUsableIndexError, IndexNotReadyError, UnknownFieldError, UnknownLookupError, InvalidValueError: like
                ``fetch_referrers``.

        Examples:
            >>> from kvmodels import AsyncDatabase, ForeignKey, KvModel, PrimaryKey
            >>> class Dock(KvModel, collection="docks"):
            ...     id: PrimaryKey[int]
            >>> class Boat(KvModel, collection="boats"):
            ...     id: PrimaryKey[int]
            ...     dock_id: ForeignKey[int, Dock]
            >>> db = await AsyncDatabase("memory://", models=[Dock, Boat]).open()
            >>> docks = [await db[Dock].create(id=number) for number in range(2)]
            >>> print(await db[Dock].explain_referrers(docks, Boat.dock_id, limit=5))
            Boat: 1 range of index dock_id
              reads only  dock_id = 0
              in order    id
              reads       at most 10 rows and records
              each        the same for 2 objects, at most 5 of each, all ranges in one request for each batch
        """
        options = ReferrerOptions(limit, filter, order_by)
        return await self._run_flow("explain", queries.explain_referrers, objs, key, options, analyze=analyze)

    def watch(
        self, *, since: str | None = None, resume: Position | str | None = None, timeout: float | None = None
    ) -> histories.AsyncRecordWatchIterator[M]:
        """Watch the records of the model: the latest version of each record that changes, or its removal.

        The database must keep a change log: ``AsyncDatabase(url, change_log=3600)``. Without ``since``, the watch first
        delivers the present records in batches of 500. After that, and with ``since`` from the start, it delivers the
        records that change, in commit order. Several changes of a record may be delivered as one. A record may be
        delivered twice in the same version, but never in an older one. If several classes share the collection, a
        changed record of another class is delivered as a removal, because it may have been of this class before.

        Args:
            since: resume after this versionstamp, such as ``watch.versionstamp`` of an earlier watch.
            resume: resume at this position of ``changed_since`` or of ``watch.position``, also in the middle of the
                present records; ``Position.BEGINNING`` for a watch that has a position from the start.
            timeout: end the iteration after this many seconds without a change; None for no timeout.

        Returns:
            An iterator of lists of ``ChangedRecord(key, record, versionstamp)``; it ends when the database is closed.
            Cost: one read of the change log for each delivery, and nothing while it waits.

        Raises:
            InvalidArgumentError: an argument is invalid; at the first item: in a transaction.
            UnsupportedError: at the first item: the store keeps no change log.
            ResumeExpiredError: at an item: the change log does not reach back to ``since`` or ``resume``, or the store
                was restored.
            DecodeError: at an item: a record cannot be read as an object; its changes are delivered again.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Light(KvModel, collection="lights"):
            ...     id: PrimaryKey[int]
            ...     on: bool = False
            >>> async with AsyncDatabase("memory://", models=[Light], change_log=60) as db:
            ...     _ = await db[Light].create(id=1)
            ...     watch = db[Light].watch(timeout=0)
            ...     present = await anext(watch)
            ...     _ = await db[Light].patch(1, on=True)
            ...     _ = await db[Light].remove(1)
            ...     changed = await anext(watch)
            >>> [(one.key, one.record) for one in present], [(one.key, one.record) for one in changed]
            ([(1, Light(id=1, on=False))], [(1, None)])
        """
        context, schema = self._runner.context, self._runner.schema
        if resume is None:
            watch = record_watch.RecordWatch(context, schema, time.monotonic, since=since, timeout=timeout)
            return histories.AsyncRecordWatchIterator(self._runner, watch)
        if since is not None:
            hint = "Pass the position alone; it has a versionstamp."
            raise InvalidArgumentError("a watch takes since= or resume=", argument="since", value=since, hint=hint)
        resumed = resumed_watch.ResumedWatch(context, schema, time.monotonic, resume=resume, timeout=timeout)
        return histories.AsyncRecordWatchIterator(self._runner, resumed)

    async def changed_since(
        self, position: Position | str | None = None, /, *, limit: int = 500
    ) -> feeds.ChangePage[M]:
        """Return the records that have changed or were removed since a position, for a copy that is kept elsewhere.

        The database must keep a change log: ``AsyncDatabase(url, change_log=3600)``. Without a position it begins with
        the present records. Store the position of a page together with its changes, and pass it to the next call:
        repeat while ``has_more``, and again later. A scan of the present records may be interrupted for as long as the
        change log reaches back. The call does not wait for changes; ``watch(resume=)`` does. If several classes share
        the collection, a changed record of another class is returned as a removal.

        Args:
            position: the ``position`` of an earlier page or watch, or its text; None begins.
            limit: the number of changes, and in the first scan of records, that a page ends with; a commit is not
                divided between pages.

        Returns:
            The changes: each record once in its latest version, in the order of the last change. A removal has the
            record None; a record that expires is removed when the store sweeps it. A record may be returned twice in
            the same version, but never in an older one. Cost: two reads, of the row that names the store and of the
            change log; the first call in a store also writes this row.

        Raises:
            ResumeExpiredError: the change log does not reach back to the position, or the position belongs to another
                store, such as this one before a backup was restored. Begin with None, and remove what is not returned.
            InvalidArgumentError: this is not a position, or it belongs to another collection; in a transaction.
            UnsupportedError: the store keeps no change log.
            DecodeError: a record cannot be read as an object.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Lamp(KvModel, collection="lamps"):
            ...     id: PrimaryKey[int]
            ...     on: bool = False
            >>> async with AsyncDatabase("memory://", models=[Lamp], change_log=60) as db:
            ...     _ = await db[Lamp].create(id=1)
            ...     first = await db[Lamp].changed_since()
            ...     _ = await db[Lamp].create(id=2)
            ...     _ = await db[Lamp].remove(1)
            ...     second = await db[Lamp].changed_since(first.position)
            >>> [(one.key, one.record) for one in first], [(one.key, one.record) for one in second]
            ([(1, Lamp(id=1, on=False))], [(2, Lamp(id=2, on=False)), (1, None)])
        """
        flow = feeds.changed_since(self._runner.context, self._runner.schema, position, limit)
        found: feeds.ChangePage[M] = await self._runner.run("changed_since", flow)
        return found

    # --- old versions -----------------------------------------------------------------------------------------

    def history(self, key: Any, /) -> histories.AsyncRecordHistory[M]:
        """Return the versions of a record, newest first: iterate over it, or call ``page`` or ``at``.

        Args:
            key: the primary key, a tuple if it is composite. The record may be removed.

        Returns:
            The history. Cost: none; nothing is read.

        Examples:
            >>> from kvmodels import AsyncDatabase, History, KvModel, PrimaryKey
            >>> class Deal(KvModel, collection="deals"):
            ...     id: PrimaryKey[int]
            ...     price: int
            ...     class Meta:
            ...         history = History()
            >>> db = await AsyncDatabase("memory://", models=[Deal]).open()
            >>> _ = await db[Deal].create(id=1, price=10)
            >>> with db.acting("ada", reason="ticket 17"):
            ...     _ = await db[Deal].patch(1, price=12)
            >>> [(one.actor, one.changes) async for one in db[Deal].history(1)]
            [('ada', {'price': (10, 12)}), (None, {'id': (None, 1), 'price': (None, 10)})]
        """
        return histories.AsyncRecordHistory(self._runner, key)

    def as_of(self, when: datetime | str, /) -> histories.AsyncPast[M]:
        """Return the records as they were at a moment, read-only.

        Args:
            when: an aware datetime that is not in the future; a versionstamp if the history keeps versions for ever.

        Returns:
            The past, with ``get``, ``get_or_none``, ``get_many``, ``exists`` and ``filter``. Cost: none; nothing is
            read.

        Examples:
            >>> from datetime import UTC, datetime
            >>> from kvmodels import AsyncDatabase, History, KvModel, PrimaryKey
            >>> class Bond(KvModel, collection="bonds"):
            ...     id: PrimaryKey[int]
            ...     class Meta:
            ...         history = History()
            >>> bonds = (await AsyncDatabase("memory://", models=[Bond]).open())[Bond]
            >>> _ = await bonds.create(id=1)
            >>> await bonds.as_of(datetime(2020, 1, 1, tzinfo=UTC)).get_or_none(1) is None
            True
        """
        return histories.AsyncPast(self._runner, when)

    async def revert(
        self, key: Any, revision: Revision[M] | str, /, *, if_version: str | Collection[str] | None = None
    ) -> M:
        """Write the values of an old version of a record; fields that the history excludes keep their values.

        Args:
            key: the primary key, a tuple if it is composite.
            revision: a revision of this record, or the versionstamp at which it began.
            if_version: the expected versionstamp of the record, or several; None: any.

        Returns:
            The stored object. Cost: one read and one commit.

        Raises:
            DoesNotExist: there is no such record; ``restore`` brings a removed one back.
            HistoryExpiredError: the version is not kept any more.
            StaleObjectError: the record has another version than ``if_version``.
            IntegrityError: a unique value is taken, or a foreign key refers to a missing record.
        """
        found: M = await self._run_flow("revert", restoring.revert, key, revision, if_version=if_version)
        return found

    def trash(self) -> histories.AsyncTrash[M]:
        """Return the last revisions of removed records, in the order of their keys: iterate over it, or call ``page``.

        Returns:
            The removed records. Cost: none; nothing is read.
        """
        return histories.AsyncTrash(self._runner)

    @overload
    async def restore(
        self, key: Any, changes: Mapping[str, Any] | None = None, /, *, also: Literal[False] = False
    ) -> M: ...
    @overload
    async def restore(
        self, key: Any, changes: Mapping[str, Any] | None = None, /, *, also: Literal[True]
    ) -> restoring.Restored: ...
    async def restore(self, key: Any, changes: Mapping[str, Any] | None = None, /, *, also: bool = False) -> Any:
        """Insert the last version of a removed record again.

        Args:
            key: the primary key, a tuple if it is composite.
            changes: values of fields that are to differ, such as a unique value that is taken by now.
            also: restore in the same commit what the same removal took with it: removed records, and foreign keys that
                it has set to None.

        Returns:
            The stored object; with ``also`` a ``Restored`` with what was left out. Cost: two reads and one commit.

        Raises:
            DoesNotExist: no removed record has this key.
            AlreadyExistsError: a record has the key by now.
            IntegrityError: a unique value is taken, or a foreign key refers to a missing record.
            OperationTooLargeError: with ``also``: one commit cannot hold so many records.

        Examples:
            >>> from kvmodels import AsyncDatabase, History, KvModel, PrimaryKey
            >>> class Plan(KvModel, collection="plans"):
            ...     id: PrimaryKey[int]
            ...     title: str
            ...     class Meta:
            ...         history = History()
            >>> plans = (await AsyncDatabase("memory://", models=[Plan]).open())[Plan]
            >>> _ = await plans.create(id=7, title="old")
            >>> _ = await plans.remove(7)
            >>> [one.record async for one in plans.trash()]
            [Plan(id=7, title='old')]
            >>> await plans.restore(7, {"title": "new"})
            Plan(id=7, title='new')
        """
        return await self._run_flow("restore", restoring.restore, key, changes, also=also)

    async def forget(self, key: Any, /, *, including: bool = False) -> int:
        """Remove all old versions of a removed record; copies in backups stay.

        Args:
            key: the primary key, a tuple if it is composite. In a shared collection, versions of other classes at this
                key are removed as well.
            including: remove the record as well, in the first commit and without an old version of it.

        Returns:
            The number of removed versions. Cost: one commit, then one for each 100 versions. Repeat it after an
            interruption.

        Raises:
            AlreadyExistsError: the record exists, and ``including`` is not given.
            ProtectedError: with ``including``: other records refer to it.
            InvalidArgumentError: in a transaction.
        """
        return await self._run_flow("forget", trash.forget, key, including=including)

    async def refresh(self, obj: M) -> M:
        """Read a record again and copy its values into the object.

        Args:
            obj: an object with the primary key of a record.

        Returns:
            The same object. Cost: one read.

        Raises:
            DoesNotExist: the record no longer exists; the object is unchanged.
        """
        await self._run_flow("refresh", lookup.refresh, obj)
        return obj

    async def expires_at(self, target: Any) -> datetime | None:
        """Return the expiry time of a record as it is stored now.

        Args:
            target: an object or a primary key, a tuple if it is composite.

        Returns:
            The deadline in UTC, to the millisecond; None if the record does not expire. Cost: one read.

        Raises:
            DoesNotExist: no record has this primary key, or it has expired.
        """
        return await self._run_flow("expires_at", lookup.expires_at, target)

    def detach(self, obj: M) -> M:
        """Detach an object from its record, so that ``save`` inserts it as a new record.

        Args:
            obj: any object of the model.

        Returns:
            The same object. Cost: none.
        """
        return lookup.detach(obj)

    # --- writing one record -----------------------------------------------------------------------------------

    async def create(
        self,
        body: request_bodies.Creation[M] | None = None,
        /,
        *_: Never,
        expire_in: float | timedelta | Keep | None = KEEP,
        **fields: Any,
    ) -> M:
        """Create an object and insert it.

        Args:
            body: fields as an object of ``Creation[User]``; fields that were not set in it get the defaults of the
                model.
            _: not allowed; store an object with ``save`` or ``insert``.
            expire_in: lifetime as seconds or a timedelta; None: no deadline; by default ``Meta.ttl``.
            fields: values of the model's fields, by the names that its constructor takes; they take precedence over
                ``body``. Any name is allowed if the class has ``extra="allow"``, an ``__init__``, or a model validator
                that sees the input first.

        Returns:
            The stored object. Cost: as for ``insert``. If a loaded object is given for a foreign key, its record is not
            read again, unless it has changed since.

        Raises:
            UnknownFieldError: the constructor would ignore a name.
            pydantic.ValidationError: the values are invalid.
            InvalidArgumentError: a field is given under two names, ``expire_in`` is the alias of a field, or an object
                is passed.
            AlreadyExistsError, UniqueViolationError: the key or a unique value is taken; nothing was written.
            ReferenceViolationError: a foreign key refers to a missing record; nothing was written.
        """
        if _:
            raise positional_refusal("create", _, _CREATE_HINT)
        sent: Mapping[str, Any] = fields
        body_fields: set[str] | None = None
        if body is not None:
            sent = request_bodies.sent_values(body, fields, kind=request_bodies.Creation, hint=_CREATE_HINT)
            body_fields = sent.keys() - fields
        context, schema = self._runner.context, self._runner.schema
        flow = records.create(context, schema, sent, expire_in, body_fields=body_fields)
        created: M = await self._runner.run("insert", flow)
        return created

    async def insert(
        self, /, obj: M = NO_OBJECT, *, expire_in: float | timedelta | Keep | None = KEEP, **_: Never
    ) -> M:
        """Store an object as a new record: one commit, without a read unless the key or a unique value is taken.

        Args:
            obj: the object; afterwards it has the validated values and the versionstamp of its record.
            expire_in: lifetime as seconds or a timedelta; None: no deadline; by default ``Meta.ttl``.
            _: not allowed; ``create`` takes fields.

        Returns:
            The same object. Cost: one commit, and no read unless a unique value or the key is taken.

        Raises:
            InvalidArgumentError: fields are given in place of an object.
            AlreadyExistsError: a record with this primary key exists.
            UniqueViolationError: a unique index holds these values for another record.
            ReferenceViolationError: a foreign key refers to a missing record; nothing was written.
            pydantic.ValidationError, InvalidValueError, LimitExceededError: the object cannot be stored.
        """
        if _ or obj is NO_OBJECT:
            raise fields_refusal("insert", _)
        await self._runner.run(
            "insert", records.insert(self._runner.context, self._runner.schema, obj, deadline_of(expire_in))
        )
        return obj

    async def save(
        self,
        /,
        obj: M = NO_OBJECT,
        *,
        force: bool = False,
        expire_in: float | timedelta | Keep | None = KEEP,
        **_: Never,
    ) -> M:
        """Store an object: insert a new one, or update a loaded one if its record is unchanged.

        Args:
            obj: the object.
            force: overwrite any record with this primary key.
            expire_in: lifetime from now, seconds or a timedelta; None: no deadline; by default the deadline stays.
            _: not allowed; ``create`` and ``patch`` take fields.

        Returns:
            The same object. Cost: one commit, no read unless unique values changed or the record has a deadline.

        Raises:
            InvalidArgumentError: fields are given in place of an object.
            StaleObjectError: the record was changed or removed since the object was loaded; nothing was written.
            PrimaryKeyChangedError: the object was loaded under another primary key.
            AlreadyExistsError, UniqueViolationError: the key or a unique value is taken; nothing was written.
            ReferenceViolationError: a foreign key refers to a missing record; nothing was written.
        """
        if _ or obj is NO_OBJECT:
            raise fields_refusal("save", _)
        await self._runner.run(
            "save",
            records.save(self._runner.context, self._runner.schema, obj, force=force, expire_in=deadline_of(expire_in)),
        )
        return obj

    async def patch(
        self,
        key: Any,
        body: BaseModel | None = None,
        /,
        *,
        if_version: str | Collection[str] | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        **changes: Any,
    ) -> M:
        """Change fields of a record: read, apply and commit, and retry after a conflict.

        Args:
            key: the primary key, a tuple if it is composite.
            body: changes as an object of ``Partial[User]`` or another pydantic model; fields that were not set in it
                stay unchanged.
            if_version: change only this version, the ``versionstamp`` of an object that was read or stored, or one of a
                list of versions; None: any.
            expire_in: lifetime from now, seconds or a timedelta; None: no deadline; by default the deadline stays.
            changes: new values by field name; they take precedence over ``body``.

        Returns:
            The stored object. Cost: one read and one commit; both again after a conflict.

        Raises:
            DoesNotExist: no record has this primary key.
            StaleObjectError: the record was changed or removed since ``if_version``; nothing was written.
            UnknownFieldError: the model has no such field.
            PrimaryKeyChangedError: the changes have another primary key.
            InvalidArgumentError: ``body`` is not a pydantic model, ``if_version`` is not a versionstamp, or the library
                sets the field.
            UniqueViolationError, ReferenceViolationError, RetriesExhaustedError: the change was not possible; nothing
                was written.
        """
        sent: Mapping[str, Any] = changes
        body_fields: Collection[str] = ()
        if body is not None:
            sent = request_bodies.sent_values(body, changes, kind=BaseModel, hint=_PATCH_HINT)
            body_fields = sent.keys() - changes
        context, schema, lifetime = self._runner.context, self._runner.schema, deadline_of(expire_in)
        flow = records.patch(context, schema, key, sent, lifetime, if_version=if_version, body_fields=body_fields)
        patched: M = await self._runner.run("patch", flow)
        return patched

    async def mutate(
        self, key: Any, function: Callable[[M], M | None], /, *, expire_in: float | timedelta | Keep | None = KEEP
    ) -> M:
        """Change a record with a function, which receives a fresh copy in every attempt.

        Args:
            key: the primary key, a tuple if it is composite.
            function: changes the object in place and returns None, or returns an object with the same primary key. It
                may be called several times. An exception aborts the write.
            expire_in: lifetime from now, seconds or a timedelta; None: no deadline; by default the deadline stays.

        Returns:
            The stored object. Cost: as for ``patch``.

        Raises:
            DoesNotExist: no record has this primary key.
            PrimaryKeyChangedError: the function changed the primary key.
            InvalidValueError: the function returned another value, or is async.
            UniqueViolationError, ReferenceViolationError, RetriesExhaustedError: the change was not possible; nothing
                was written.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Counter(KvModel, collection="counters"):
            ...     id: PrimaryKey[str]
            ...     n: int = 0
            >>> counters = (await AsyncDatabase("memory://", models=[Counter]).open())[Counter]
            >>> _ = await counters.create(id="visits")
            >>> def increment(counter: Counter) -> None:
            ...     counter.n += 1
            >>> (await counters.mutate("visits", increment)).n
            1
        """
        mutated: M = await self._run_flow("mutate", records.mutate, key, function, deadline_of(expire_in))
        return mutated

    async def rename(self, key: Any, new_key: Any, /) -> M:
        """Change the primary key of a record in one commit; its unique values and deadline stay.

        Args:
            key: the present primary key, a tuple if it is composite.
            new_key: the new primary key. If it equals the present one, nothing is written.

        Returns:
            The stored object. Cost: one read and one commit.

        Raises:
            DoesNotExist: no record has the present primary key.
            AlreadyExistsError: another record has the new primary key; nothing was written.
            ProtectedError: other records refer to this one; nothing was written.
            pydantic.ValidationError: the new key is invalid.
            RetriesExhaustedError: other writers changed the record during every attempt.
        """
        old, new = key_values(self._runner.schema, key), key_values(self._runner.schema, new_key)
        renamed: M = await self._run_flow("rename", records.rename, old, new)
        return renamed

    async def remove(self, target: Any, *, if_version: str | Collection[str] | None = None) -> bool:
        """Remove a record with all its index entries.

        Args:
            target: a primary key or an object. By primary key, the record is removed whatever its version, even if it
                cannot be read as an object; then hooks that need the object do not run. A loaded object is removed only
                if its record is unchanged.
            if_version: with a primary key: remove only this version, the ``versionstamp`` of an object, or one of a
                list of versions; None: any.

        Returns:
            True, or False if no record has this primary key and ``if_version`` is None. Cost: one read and one commit;
            only one commit for a loaded object, and on SQLite for a plain record of any version, which is read inside
            the commit.

        Raises:
            StaleObjectError: the record was changed or removed since the object was loaded, or since ``if_version``.
            InvalidArgumentError: ``if_version`` is not a versionstamp, or is given together with an object.
            ProtectedError: other records refer to this one; nothing was written.
            RetriesExhaustedError: other writers changed the record during every attempt.
        """
        context, schema = self._runner.context, self._runner.schema
        return await self._runner.run("remove", records.remove(context, schema, target, if_version=if_version))

    async def remove_cascade(
        self,
        target: Any,
        *,
        resume_id: str,
        batch_size: int | None = None,
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
    ) -> bulk_results.BulkResult:
        """Remove a record after the records that refer to it, in batches, where ``remove`` would be too large.

        Records that refer by a foreign key with CASCADE are removed, deepest first, and those with SET_NULL are
        changed. Each batch is one atomic operation, and no reference dangles at any time. Earlier batches stay
        committed if a later one is refused.

        Args:
            target: a primary key or an object, whose record is removed whatever its version.
            resume_id: a name for this removal. Its progress is stored with each batch. If the process is killed,
                calling it again continues, and after the end it returns the stored result. If the record was removed in
                between, the call ends, also if there is a new record with its key. ``db.forget_bulk(id)`` frees the
                name.
            batch_size: the maximum number of records per operation; None: as many as the engine allows, at most 500.
                Records that begin to refer to one of a batch meanwhile are removed or changed with it.
            progress: True for a progress bar (extra ``rich``), or a function that is called with a ``BulkProgress``
                after each batch.

        Returns:
            A ``BulkResult``: ``written`` is the number of records that batches removed or changed, including this one.
            It is 0 if no record has this key. Cost: for each record its entry, the record and the entries that refer to
            it are read; one commit per batch.

        Raises:
            ProtectedError: a record that this removal does not remove refers to one of the others.
            RetriesExhaustedError: after 20 rounds other writers still store records that refer to this one.
            SchemaMismatchError: this process declares another effect, or lacks a model whose records would change.
            OperationTooLargeError: records that refer to each other in a cycle do not fit into one operation.
            InvalidArgumentError: an invalid option, the id of another write, or a transaction.

        Examples:
            >>> from typing import Annotated
            >>> from kvmodels import CASCADE, AsyncDatabase, ForeignKey, KvModel, PrimaryKey
            >>> class Album(KvModel, collection="albums"):
            ...     id: PrimaryKey[int]
            >>> class Track(KvModel, collection="tracks"):
            ...     id: PrimaryKey[int]
            ...     album_id: Annotated[ForeignKey[int, Album], CASCADE]
            >>> db = await AsyncDatabase("memory://", models=[Album, Track]).open()
            >>> album = await db[Album].create(id=1)
            >>> _ = await db[Track].bulk_create([Track(id=number, album_id=1) for number in range(1000)])
            >>> (await db[Album].remove_cascade(1, resume_id="album-1")).written
            1001
        """
        with listening.listener(progress, f"remove {self._query.schema.collection}") as listen:
            options = bulk_results.BulkOptions(batch_size, "raise", listen, resume_id)
            return await self._run_flow("remove_cascade", cascading.remove_cascade, target, options)

    # # --- writing several records, or a record that may exist ---------------------------------------------------

    async def get_or_create(
        self,
        /,
        *,
        defaults: Mapping[str, Any] | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Return the record that matches the lookups, or create it from the lookups and defaults.

        Args:
            defaults: values of the other fields by name or alias, used only to create a record.
            expire_in: lifetime of a new record as seconds or a timedelta; None: no deadline; by default ``Meta.ttl``. A
                record that exists keeps its deadline.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which resolves races.

        Returns:
            The object, and whether it was created. Cost: as for ``get``, plus ``insert`` if it is created.

        Raises:
            InvalidArgumentError: the lookups are not ``field=value`` for a complete unique key, the defaults are not a
                mapping, or the lifetime is not positive.
            UnknownFieldError: the model has no such field.
            UniqueViolationError: the new record would violate another unique index.
            ReferenceViolationError: a foreign key refers to a missing record; nothing was written.
        """
        find = partial(upsert.get_or_create, expire_in=deadline_of(expire_in))
        return await self._run_flow("get_or_create", find, defaults, lookups)

    async def update_or_create(
        self,
        /,
        *,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Update the record that matches the lookups, or create it.

        If any number of callers do this at once, one of them creates the record and all others update it.

        Args:
            defaults: new values by field name, including ``F("n") + 1``; also used for a new record, unless
                ``create_defaults`` is given.
            create_defaults: values of the other fields of a new record, by name or alias.
            expire_in: lifetime from now of the new or changed record, as seconds or a timedelta; None: no deadline; by
                default that of a new record is ``Meta.ttl``, and a record that exists keeps its deadline.
            lookups: ``field=value`` for all fields of the primary key or of a unique index, which resolves races.

        Returns:
            The stored object, and whether it was created. Cost: one read and one commit, both again after a conflict.

        Raises:
            InvalidArgumentError: the lookups are not ``field=value`` for a complete unique key, defaults are not a
                mapping, or a new record would be created from ``F``.
            UnknownFieldError: the model has no such field.
            UniqueViolationError: the record would violate another unique index.
            ReferenceViolationError: a foreign key refers to a missing record; nothing was written.
            RetriesExhaustedError: every attempt met a conflict.

        Examples:
            >>> from kvmodels import AsyncDatabase, F, KvModel, PrimaryKey
            >>> class Word(KvModel, collection="words"):
            ...     text: PrimaryKey[str]
            ...     seen: int = 1
            >>> words = (await AsyncDatabase("memory://", models=[Word]).open())[Word]
            >>> for text in ("key", "value", "key"):
            ...     _ = await words.update_or_create(text=text, defaults={"seen": F("seen") + 1}, create_defaults={})
            >>> [(word.text, word.seen) async for word in words]
            [('key', 2), ('value', 1)]
        """
        update = partial(upsert.update_or_create, expire_in=deadline_of(expire_in))
        return await self._run_flow("update_or_create", update, defaults, create_defaults, lookups)

    @overload
    async def bulk_create(
        self,
        objs: Iterable[M],
        *,
        batch_size: int | None = None,
        on_conflict: bulk_results.OnConflict = "error",
        unique: unique_owners.UniqueFields | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        results: Literal[True] = True,
    ) -> list[bulk_results.BulkItem[M]]: ...

    @overload
    async def bulk_create(
        self,
        objs: Iterable[M],
        *,
        batch_size: int | None = None,
        on_conflict: bulk_results.OnConflict = "error",
        unique: unique_owners.UniqueFields | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        results: Literal[False],
    ) -> bulk_results.BulkResult: ...

    async def bulk_create(
        self,
        objs: Iterable[M],
        *,
        batch_size: int | None = None,
        on_conflict: bulk_results.OnConflict = "error",
        unique: unique_owners.UniqueFields | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        results: bool = True,
    ) -> list[bulk_results.BulkItem[M]] | bulk_results.BulkResult:
        """Insert many objects in batches, each of which is one atomic operation.

        Args:
            objs: the objects, in order. With ``batch_size``, an iterator without a length, such as a generator, is read
                batch by batch, so that one batch is in memory, and an invalid object is found when its batch is read.
                With ``resume_id`` all objects are read first, because their keys identify the write.
            batch_size: the maximum number of records per operation: a batch that is too large for the engine is halved.
                None for a single operation, which stores all objects or none. Not allowed in a transaction, which is
                one commit.
            on_conflict: ``"error"`` raises at the first object that cannot be inserted, ``"ignore"`` skips such
                objects, and ``"update"`` overwrites the record with the same primary key.
            unique: with ``"update"``, the unique index that decides instead of the primary key, by its fields or name:
                an object overwrites the record with the same values, and gets its primary key. An object without such a
                record is inserted, and refused if its primary key exists.
            expire_in: lifetime as seconds or a timedelta; None: no deadline; by default ``Meta.ttl``.
            progress: True for a progress bar (extra ``rich``), or a function that is called with a ``BulkProgress``
                after each batch.
            resume_id: a name for this write. Its position in the list is stored with each batch. If the process is
                killed, calling it again with objects of the same primary keys in the same order resumes after the
                stored objects. After the end, calling it again returns the stored outcomes. Objects that an earlier run
                stored are returned as given; load them before you change them. ``db.forget_bulk(id)`` frees the name.
            results: False returns a ``BulkResult`` with numbers and the first 1,000 failures, and keeps no objects.

        Returns:
            One ``BulkItem(obj, created, error)`` per object; without ``created`` and ``error``, the record was
            overwritten. Cost: one commit per batch; ``"ignore"`` and ``"update"`` read the records before, and
            ``unique`` its entries and then both in one snapshot.

        Raises:
            AlreadyExistsError, UniqueViolationError: with the ``position`` of the object, and ``committed``, the number
                of objects in earlier batches, which are stored.
            ReferenceViolationError: a foreign key refers to a missing record, also to one of a later batch; with the
                same attributes.
            OperationTooLargeError: a single object, or all objects without ``batch_size``, exceed a limit.
            RetriesExhaustedError: a batch met a conflict in every attempt.
            InvalidArgumentError: a repeated primary key, or values of ``unique``, with ``"update"``, an invalid option,
                or the id of another write.
            IndexNotReadyError: the index of ``unique`` is not complete.
        """
        create = partial(
            bulk.bulk_create,
            batch_size=batch_size,
            on_conflict=on_conflict,
            unique=unique,
            expire_in=deadline_of(expire_in),
            resume_id=resume_id,
            results=results,
        )
        if progress is None:  # most calls, which pass through no other module
            return await self._run_flow("bulk_create", create, objs, progress=None)
        with listening.listener(progress, f"create {self._query.schema.collection}") as listen:
            return await self._run_flow("bulk_create", create, objs, progress=listen)

    async def bulk_create_from(
        self,
        source: sources.TableOrFile,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        on_conflict: bulk_results.OnConflict = "error",
        unique: unique_owners.UniqueFields | None = None,
        expire_in: float | timedelta | Keep | None = KEEP,
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> import_results.ImportResult:
        """Insert a record for each row of a table or file, after the model has validated the row.

        Rows are read, validated and written batch by batch, so that one batch is in memory.

        Args:
            source: a table with an Arrow stream, such as a data frame of pandas or polars, a ``pyarrow.Table``, a
                relation of DuckDB or a query; or the path of a ``.parquet`` or ``.csv`` file. Columns have the names of
                fields. An empty cell of CSV is an absent value, and a list in it is written as JSON.
            batch_size: the maximum number of records per operation, by default 500: a batch that is too large for the
                engine is halved. Not allowed in a transaction, which is one commit.
            on_error: ``"raise"`` ends the import at the first row that the model rejects; earlier batches stay
                committed. ``"collect"`` leaves out such rows and lists them.
            on_conflict: as for ``bulk_create``: ``"error"``, ``"ignore"`` or ``"update"``.
            unique: as for ``bulk_create``.
            expire_in: as for ``bulk_create``.
            progress: True for a progress bar (extra ``rich``), or a function that is called with a ``BulkProgress``
                after each batch.
            resume_id: a name for this import. Calling it again with the same rows resumes after the stored records. All
                rows are read and validated first, because their primary keys identify the import.

        Returns:
            ``ImportResult(rows, written, rejections, rejected, failed, batches, resumed)``. Cost: as for
            ``bulk_create``.

        Raises:
            InvalidArgumentError: the source is no table and no path of such a file, two columns have one name, or an
                option is invalid.
            UnknownFieldError: a column is not a field; nothing was written.
            EngineError, DecodeError: the file cannot be read, or is damaged.
            UnsupportedError: pyarrow is not installed, and the source is not CSV.
            pydantic.ValidationError: the model rejects a row; a note has its place.
            AlreadyExistsError, UniqueViolationError, ReferenceViolationError, OperationTooLargeError,
                RetriesExhaustedError, IndexNotReadyError: as for ``bulk_create``; ``position`` is that of the row.

        Examples:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Nail(KvModel, collection="nails"):
            ...     sku: PrimaryKey[str]
            ...     cents: int
            >>> nails = (await AsyncDatabase("memory://", models=[Nail]).open())[Nail]
            >>> with TemporaryDirectory() as folder:
            ...     file = Path(folder, "nails.csv")
            ...     _ = file.write_text(chr(10).join(["sku,cents", "n1,5", "n2,free"]))
            ...     result = await nails.bulk_create_from(file, on_error="collect")
            >>> result.written, result.rejected[0].place, result.rejected[0].errors[0]["loc"]
            (1, 'line 3', ('cents',))
        """
        with (
            listening.listener(progress, f"create {self._query.schema.collection}") as listen,
            sources.opened(source, self._query.schema.model) as found,
        ):
            options = bulk_results.BulkOptions(batch_size, on_error, listen, resume_id, on_conflict)
            rows = create_from.ImportedRows(found, options)
            create = partial(create_from.bulk_create_from, expire_in=deadline_of(expire_in), unique=unique)
            return rows.result(await self._run_flow("bulk_create", create, rows))

    async def bulk_update(
        self,
        objs: Iterable[M],
        fields: Iterable[str] | None = None,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Store many loaded objects in batches with one commit each, every object only if its record is unchanged.

        Args:
            objs: objects that were loaded or stored before; each record at most once. An iterator without a length,
                such as a generator, is read batch by batch, so that one batch is in memory, and an invalid or repeated
                object is found when its batch is read. With ``resume_id`` all objects are read first.
            fields: names of the fields to store; by default all. Afterwards each object has the stored values, so
                changes to its other fields are undone.
            batch_size: the maximum number of records per commit; by default the engine's limit, at most 500.
            on_error: ``"raise"`` stops at the first object that cannot be stored; earlier batches stay committed.
                ``"collect"`` skips such objects and lists them.
            progress: True for a progress bar (extra ``rich``), or a function that is called with a ``BulkProgress``
                after each batch.
            resume_id: a name for this write. Its position in the list is stored with each batch. If the process is
                killed, calling it again with objects of the same primary keys in the same order resumes after the
                stored objects, whatever their versions. After the end, calling it again returns the stored result.
                Objects that an earlier run stored are returned as given; load them before you change them.
                ``db.forget_bulk(id)`` frees the name.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: one commit per batch, without a read
            unless there is a conflict or a unique value changes.

        Raises:
            InvalidArgumentError: an object was never stored or is repeated, an option is invalid, or the id belongs to
                another write.
            StaleObjectError: a record was changed or removed since its object was loaded.
            UnknownFieldError, PrimaryKeyChangedError, UniqueViolationError, ReferenceViolationError,
                pydantic.ValidationError: an object cannot be stored.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Price(KvModel, collection="prices"):
            ...     sku: PrimaryKey[str]
            ...     cents: int
            >>> prices = (await AsyncDatabase("memory://", models=[Price]).open())[Price]
            >>> _ = await prices.bulk_create([Price(sku="nut", cents=10), Price(sku="bolt", cents=20)])
            >>> loaded = await prices.to_list()
            >>> for price in loaded:
            ...     price.cents += 1
            >>> (await prices.bulk_update(loaded)).written
            2
            >>> (await prices.get("nut")).cents
            11
        """
        with listening.listener(progress, f"update {self._query.schema.collection}") as listen:
            options = bulk_results.BulkOptions(batch_size, on_error, listen, resume_id)
            return await self._run_flow("bulk_update", loaded_objects.bulk_update, objs, fields, options)

    async def update(self, /, *_: Any, **__: Any) -> NoReturn:
        """Refuse to update a whole collection; ``all().update(...)`` does it explicitly.

        Args:
            _: changes, as for ``update`` of a query set.
            __: options and changes, as for ``update`` of a query set.

        Returns:
            Never returns. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Cup(KvModel, collection="cups"):
            ...     id: PrimaryKey[int]
            ...     full: bool = True
            >>> cups = (await AsyncDatabase("memory://", models=[Cup]).open())[Cup]
            >>> _ = await cups.create(id=1)
            >>> (await cups.all().update(full=False)).written
            1
        """
        raise query_writes.refused_update()

    async def delete(self, /, **_: Any) -> NoReturn:
        """Refuse to delete a whole collection; ``all().delete()`` does it explicitly.

        Args:
            _: options, as for ``delete`` of a query set.

        Returns:
            Never returns. Cost: nothing is read or written.

        Raises:
            InvalidArgumentError: always.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Toy(KvModel, collection="toys"):
            ...     id: PrimaryKey[int]
            >>> toys = (await AsyncDatabase("memory://", models=[Toy]).open())[Toy]
            >>> _ = await toys.create(id=1)
            >>> (await toys.all().delete()).written
            1
        """
        raise query_writes.refused_removal()


show_public_path(AsyncRepository)
